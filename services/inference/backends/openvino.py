# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingTypeArgument=false, reportAttributeAccessIssue=false
"""Runs BERT and XLM-RoBERTa encoders on the CPU with OpenVINO; `openvino_graph` builds the graph."""

from pathlib import Path
from typing import Literal

import numpy as np
import openvino as ov

from services.inference.backends.classifier import ClassifierHead
from services.inference.backends.openvino_graph import build_model
from services.inference.backends.rows import sparse_rows, unit_rows
from services.inference.cards import ModelCard, ModelKind
from services.inference.checkpoint import EncoderConfig, Weights, read_config
from services.inference.types import BatchOutput, IntArray, TokenBatch

#: Shapes whose kernels are kept: about 1 MB each. Unbounded by default (5,000), which is a leak in all but name.
_KEPT_SHAPES = "48"
_SMALL_TOKENS, _STEP_SMALL, _STEP_LARGE = 512, 16, 8


class OpenVinoBackend:
    """One compiled model on the CPU, one pass at a time. `run` releases the interpreter lock while it computes."""

    def __init__(
        self, card: ModelCard, compiled: ov.CompiledModel, precision: str, head: ClassifierHead | None
    ) -> None:
        self.card = card
        self.device = "cpu"
        self.padding_free = False
        self.precision = precision
        self._head = head
        self._request = compiled.create_infer_request()

    @classmethod
    def load(
        cls, folder: Path, card: ModelCard, *, precision: Literal["auto", "bf16", "f32"] = "auto", threads: int = 0
    ) -> "OpenVinoBackend":
        """Build and compile the model in `folder`. Raises `ModelInvalid` where its tensors do not fit its config."""
        config = EncoderConfig.of(read_config(folder), card.name)
        core = ov.Core()
        native_bf16 = "BF16" in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        chosen = precision if precision != "auto" else "bf16" if native_bf16 else "f32"
        options = {
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": "1",
            "INFERENCE_PRECISION_HINT": chosen,
            # Pinned threads fight with the other processes of a small machine for the same cores.
            "ENABLE_CPU_PINNING": "NO",
            "CPU_RUNTIME_CACHE_CAPACITY": _KEPT_SHAPES,
        }
        if threads:
            options["INFERENCE_NUM_THREADS"] = str(threads)
        weights = Weights(folder)
        head = ClassifierHead.of(weights, config.hidden) if card.kind is ModelKind.RERANKER else None
        return cls(card, core.compile_model(build_model(card, config, weights), "CPU", options), chosen, head)

    def run(self, batch: TokenBatch) -> BatchOutput:
        inputs = [_widened(array, self.card.max_tokens) for array in (batch.ids, batch.mask, batch.type_ids)]
        outputs = self._request.infer(inputs, share_inputs=True)
        rows = np.asarray(outputs[0], np.float32)
        match self.card.kind:
            case ModelKind.DENSE:
                return BatchOutput(dense=unit_rows(rows))
            case ModelKind.RERANKER:
                assert self._head is not None
                return BatchOutput(logits=self._head.logits(rows))
            case ModelKind.SPARSE:
                return BatchOutput(sparse=sparse_rows(rows))

    def release_memory(self) -> None:
        """The memory of a CPU is the system's; kept shapes are few."""

    def close(self) -> None:
        del self._request


def _widened(array: IntArray, most: int) -> IntArray:
    """`array` with columns of zeros (masked out) up to a common width, `most` at the most.

    Few widths mean that most shapes were prepared before: a new one costs more CPU than a short text itself, and
    memory for as long as it is kept.
    """
    rows, columns = array.shape
    step = _STEP_SMALL if rows * columns <= _SMALL_TOKENS else _STEP_LARGE
    missing = min(-columns % step, max(0, most - columns))
    return np.pad(array, ((0, 0), (0, missing))) if missing else array
