# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingTypeArgument=false, reportAttributeAccessIssue=false
"""Runs BERT and XLM-RoBERTa encoders on the CPU with OpenVINO; `openvino_graph` builds the graph."""

from pathlib import Path
from typing import Literal

import numpy as np
import openvino as ov

from services.inference.backend import OutOfMemory
from services.inference.backends.classifier import ClassifierHead
from services.inference.backends.cores import usable_cores
from services.inference.backends.heads import TokenHeads, matrices, scored_tokens
from services.inference.backends.openvino_graph import build_model
from services.inference.backends.packing import Packed
from services.inference.backends.rows import sparse_rows, unit_rows
from services.inference.cards import ModelCard, ModelKind
from services.inference.checkpoint import EncoderConfig, Weights, read_config
from services.inference.types import BatchOutput, FloatArray, IntArray, Output, TokenBatch

#: Shapes whose kernels are kept: about 1 MB each. Unbounded by default (5,000), which is a leak in all but name.
_KEPT_SHAPES = "64"
#: Parts of the messages of allocators that failed.
_OUT_OF_MEMORY = ("bad_alloc", "could not allocate", "out of memory", "not enough memory", "Failed to allocate")
_BUSY = "busy state"
_SMALL_TOKENS, _STEP_SMALL, _STEP_LARGE = 512, 4, 8


class OpenVinoBackend:
    """One pass at a time of a model that was compiled for the CPU, alone or beside others that share it.

    `run` releases the interpreter lock while it computes.
    """

    def __init__(
        self, card: ModelCard, compiled: ov.CompiledModel, precision: str, *,
        classifier: ClassifierHead | None, heads: TokenHeads,
    ) -> None:  # fmt: skip
        self.card = card
        self.device = "cpu"
        self.padding_free = False
        self.precision = precision
        self._classifier = classifier
        self._heads = heads
        self._compiled = compiled
        self._request = compiled.create_infer_request()

    @classmethod
    def load(
        cls, folder: Path, card: ModelCard, *, precision: Literal["auto", "bf16", "f32"] = "auto", threads: int = 0
    ) -> "OpenVinoBackend":
        """`load_streams` with one stream: each pass has all threads."""
        return cls.load_streams(folder, card, precision=precision, threads=threads, streams=1)[0]

    @classmethod
    def load_streams(
        cls, folder: Path, card: ModelCard, *, precision: Literal["auto", "bf16", "f32"] = "auto", threads: int = 0,
        streams: int,
    ) -> "list[OpenVinoBackend]":  # fmt: skip
        """Build and compile the model in `folder` once, for `streams` passes at a time that share its threads.

        Raises `ModelInvalid` where its tensors do not fit its config. `threads` 0 takes every core that this process
        may use; there are no more streams than threads. One thread a stream does more short passes in all, since no
        thread waits for another; one stream does a long text sooner.
        """
        config = EncoderConfig.of(read_config(folder), card.name)
        core = ov.Core()
        native_bf16 = "BF16" in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        chosen = precision if precision != "auto" else "bf16" if native_bf16 else "f32"
        cores = threads or usable_cores()
        kept = max(1, min(streams, cores))
        options = {
            "PERFORMANCE_HINT": "LATENCY",  # streams are set below, and the hint would set others
            "NUM_STREAMS": str(kept),
            "INFERENCE_PRECISION_HINT": chosen,
            # Pinned threads fight with the other processes of a small machine for the same cores.
            "ENABLE_CPU_PINNING": "NO",
            "CPU_RUNTIME_CACHE_CAPACITY": _KEPT_SHAPES,
            "INFERENCE_NUM_THREADS": str(cores),
        }
        weights = Weights(folder)
        classifier = ClassifierHead.of(weights, config.hidden) if card.kind is ModelKind.RERANKER else None
        heads = TokenHeads.of(folder, card, config, weights)
        compiled = core.compile_model(build_model(card, config, weights, heads), "CPU", options)
        return [cls(card, compiled, chosen, classifier=classifier, heads=heads) for _ in range(kept)]

    def run(self, batch: TokenBatch) -> BatchOutput:
        try:
            return self._run(batch)
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, MemoryError) or any(sign in str(error) for sign in _OUT_OF_MEMORY):
                raise OutOfMemory(f"no memory for a batch of {batch.padded_tokens} tokens") from error
            raise

    def release_memory(self) -> None:
        self._request = self._compiled.create_infer_request()  # drops the inputs and outputs of the last pass
        try:
            self._compiled.release_memory()
        except RuntimeError as error:
            if _BUSY not in str(error):  # another stream is in a pass, and holds what could be released
                raise

    def close(self) -> None:
        del self._request, self._compiled

    def _run(self, batch: TokenBatch) -> BatchOutput:
        inputs = [_widened(array, self.card.max_tokens) for array in (batch.ids, batch.mask, batch.type_ids)]
        match self.card.kind:
            case ModelKind.DENSE:
                return self._dense(batch, inputs)
            case ModelKind.RERANKER:
                assert self._classifier is not None
                return BatchOutput(logits=self._classifier.logits(self._infer(inputs)[0]))
            case ModelKind.SPARSE:
                return BatchOutput(sparse=sparse_rows(self._infer(inputs)[0]))

    def _dense(self, batch: TokenBatch, inputs: list[IntArray]) -> BatchOutput:
        """The dense vectors, and of the outputs of the heads those that are wanted."""
        columns, width = batch.ids.shape[1], inputs[0].shape[1]
        wants_multi = Output.MULTI_VECTOR in batch.outputs
        packed = Packed.of(batch) if wants_multi or Output.SPARSE in batch.outputs else None
        if self._heads.multi_vector is not None:
            scored = np.zeros(0, np.int32)
            if packed is not None and wants_multi:
                places = packed.places[scored_tokens(packed)]
                scored = places // columns * width + places % columns
            inputs = [*inputs, scored]
        outputs = self._infer(inputs)
        dense = unit_rows(outputs[0]) if Output.DENSE in batch.outputs else None
        if packed is None:
            return BatchOutput(dense=dense)
        sparse = multi_vector = None
        if Output.SPARSE in batch.outputs:
            sparse = self._heads.terms(packed, outputs[1][:, :columns].reshape(-1)[packed.places])
        if wants_multi:
            multi_vector = matrices(packed, outputs[-1])
        return BatchOutput(dense=dense, sparse=sparse, multi_vector=multi_vector)

    def _infer(self, inputs: list[IntArray]) -> list[FloatArray]:
        """The outputs as float32 views of the device's own memory, good until the next call: copy what is kept."""
        outputs = self._request.infer(inputs, share_inputs=True, share_outputs=True)
        return [np.asarray(outputs[i], np.float32) for i in range(len(outputs))]


def _widened(array: IntArray, most: int) -> IntArray:
    """`array` with columns of zeros (masked out) up to a common width, `most` at the most.

    Few widths mean that most shapes were prepared before: a new one costs more CPU than a short text itself, and
    memory for as long as it is kept.
    """
    rows, columns = array.shape
    step = _STEP_SMALL if rows * columns <= _SMALL_TOKENS else _STEP_LARGE
    missing = min(-columns % step, max(0, most - columns))
    return np.pad(array, ((0, 0), (0, missing))) if missing else array
