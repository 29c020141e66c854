# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingTypeArgument=false, reportAttributeAccessIssue=false
# pyright: reportMissingImports=false, reportPrivateImportUsage=false
"""Runs any encoder that transformers knows, on a GPU or the CPU. The only file that imports torch."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification

from services.inference.backends.rows import sparse_rows, unit_rows
from services.inference.backend import OutOfMemory
from services.inference.cards import ModelCard, ModelKind, Pooling
from services.inference.errors import DeviceLost, ModelInvalid
from services.inference.types import BatchOutput, TokenBatch

_CLASSES = {
    ModelKind.DENSE: AutoModel,
    ModelKind.RERANKER: AutoModelForSequenceClassification,
    ModelKind.SPARSE: AutoModelForMaskedLM,
}
#: Parts of CUDA's messages after which the context of the process is unusable.
_FATAL = ("device-side assert", "illegal memory access", "unspecified launch failure", "ECC error", "device lost")


class TorchBackend:
    """A transformers model in evaluation mode. Scores and pooling are computed in f32 whatever the model's dtype."""

    def __init__(self, card: ModelCard, model: Any, device: torch.device, *, has_type_ids: bool) -> None:
        self.card = card
        self.device = str(device)
        self.padding_free = False
        self._device = device
        self._model = model
        self._has_type_ids = has_type_ids

    @classmethod
    def load(
        cls, folder: Path, card: ModelCard, *, device: str = "auto",
        precision: Literal["auto", "bf16", "f32"] = "auto", threads: int = 0,
    ) -> "TorchBackend":  # fmt: skip
        """From a folder of the store. Nothing is downloaded and no code of the model is run."""
        chosen = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)
        if threads and chosen.type == "cpu":
            torch.set_num_threads(threads)
        bf16 = precision == "bf16" or (precision == "auto" and _computes_bf16(chosen))
        model = _load_model(folder, card, torch.bfloat16 if bf16 else torch.float32).eval().to(chosen)
        if card.kind is ModelKind.RERANKER:
            _widen_head(model)
        return cls(card, model, chosen, has_type_ids=getattr(model.config, "type_vocab_size", 0) > 1)

    def run(self, batch: TokenBatch) -> BatchOutput:
        try:
            with torch.inference_mode():
                return self._run(batch)
        except torch.OutOfMemoryError as error:
            raise OutOfMemory from error
        except RuntimeError as error:
            if self._device.type == "cuda" and any(sign in str(error) for sign in _FATAL):
                raise DeviceLost("the accelerator was lost; this server is draining, use another one") from error
            raise

    def release_memory(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def close(self) -> None:
        del self._model
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def _run(self, batch: TokenBatch) -> BatchOutput:
        mask = self._tensor(batch.mask)
        inputs = {"input_ids": self._tensor(batch.ids), "attention_mask": mask}
        if self._has_type_ids:
            inputs["token_type_ids"] = self._tensor(batch.type_ids)
        output = self._model(**inputs)
        match self.card.kind:
            case ModelKind.DENSE:
                hidden = output.last_hidden_state.float()
                return BatchOutput(dense=unit_rows(_array(_pool(hidden, mask, self.card.pooling))))
            case ModelKind.RERANKER:
                return BatchOutput(logits=_array(output.logits.float()[:, 0]))
            case ModelKind.SPARSE:
                logits = output.logits.float().masked_fill(mask.unsqueeze(-1) == 0, float("-inf"))
                return BatchOutput(sparse=sparse_rows(_array(torch.log1p(torch.relu(logits.amax(dim=1))))))

    def _tensor(self, array: npt.NDArray[np.int32]) -> torch.Tensor:
        return torch.from_numpy(array).to(self._device, torch.long)


def _load_model(folder: Path, card: ModelCard, dtype: torch.dtype) -> Any:
    try:
        model, report = _CLASSES[card.kind].from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False, use_safetensors=True, dtype=dtype,
            output_loading_info=True,
        )  # fmt: skip
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ModelInvalid(f"model {card.name!r} cannot be loaded by transformers: {type(error).__name__}") from error
    # The pooler of a dense model is made up by transformers where the checkpoint has none; nothing here uses it.
    missing = sorted(
        n for n in report["missing_keys"] if not (card.kind is ModelKind.DENSE and n.startswith("pooler."))
    )
    if missing:
        raise ModelInvalid(f"weights of model {card.name!r} lack {', '.join(missing[:5])}; pull it again")
    return model


def _widen_head(model: Any) -> None:
    """Compute the classifier in f32: in bf16 logits near 11 come in steps of 0.06, and different passages would tie."""
    head = getattr(model, "classifier", None)
    if isinstance(head, torch.nn.Module):
        head.float()
        head.register_forward_pre_hook(lambda _, inputs: tuple(tensor.float() for tensor in inputs))


def read_pickled_weights(path: Path) -> dict[str, npt.NDArray[np.float32]]:
    """The floating-point tensors of a pytorch_model.bin, as f32; loaded without running anything from the pickle."""
    state = torch.load(path, map_location="cpu", weights_only=True)
    return {name: tensor.float().numpy() for name, tensor in state.items() if tensor.is_floating_point()}


def _pool(hidden: torch.Tensor, mask: torch.Tensor, pooling: Pooling) -> torch.Tensor:
    if pooling is Pooling.CLS:
        return hidden[:, 0]
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1.0)


def _array(tensor: torch.Tensor) -> npt.NDArray[np.float32]:
    return tensor.cpu().numpy()


def _computes_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    return bool(torch.cpu._is_avx512_bf16_supported())  # pyright: ignore[reportPrivateUsage]
