# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingImports=false, reportPrivateImportUsage=false
"""Runs any encoder that transformers knows, on GPUs or the CPU; BERT and XLM-RoBERTa without padding."""

from contextlib import nullcontext
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from services.inference.backend import OutOfMemory
from services.inference.backends.cores import usable_cores
from services.inference.backends.torch_encoder import PACKED_ARCHITECTURES
from services.inference.backends.torch_models import TorchModel, load_model
from services.inference.cards import ModelCard
from services.inference.errors import DeviceLost
from services.inference.types import BatchOutput, TokenBatch

Precision: TypeAlias = Literal["auto", "bf16", "f16", "f32"]

_DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
#: Parts of CUDA's messages after which the context of the process is unusable.
_FATAL = ("device-side assert", "illegal memory access", "unspecified launch failure", "ECC error", "device lost")
#: What torch's allocator of main memory says where the one of a GPU raises `OutOfMemoryError`.
_CPU_OUT_OF_MEMORY = "can't allocate memory"


class TorchBackend:
    """A model on one device. Scores and pooling are computed in f32 whatever the model's precision."""

    def __init__(self, card: ModelCard, model: TorchModel, device: torch.device, precision: str) -> None:
        self.card = card
        self.device = str(device)
        self.padding_free = model.padding_free
        self.precision = precision
        self._device = device
        self._model = model

    @classmethod
    def load(
        cls, folder: Path, card: ModelCard, *, device: str = "auto", precision: Precision = "auto", threads: int = 0,
        packed: bool = True,
    ) -> "TorchBackend":  # fmt: skip
        """From a folder of the store. Nothing is downloaded and no code of the model is run.

        `packed` off runs BERT and XLM-RoBERTa through transformers too. Raises `ModelInvalid`.
        """
        chosen = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)
        if chosen.type == "cpu":
            torch.set_num_threads(threads or usable_cores())
        own = packed and card.architecture in PACKED_ARCHITECTURES
        used = resolved(precision, chosen)
        with _current(chosen), torch.inference_mode():
            model = load_model(folder, card, device=chosen, dtype=_DTYPES[used], packed=own)
        return cls(card, model, chosen, used)

    def run(self, batch: TokenBatch) -> BatchOutput:
        try:
            with _current(self._device), torch.inference_mode():
                return self._model.run(batch)
        except (torch.OutOfMemoryError, MemoryError) as error:
            raise _too_big(batch) from error
        except RuntimeError as error:
            if _CPU_OUT_OF_MEMORY in str(error):
                raise _too_big(batch) from error
            if self._device.type == "cuda" and any(sign in str(error) for sign in _FATAL):
                raise DeviceLost("the accelerator was lost; this server is draining, use another one") from error
            raise

    def release_memory(self) -> None:
        self._model.release_memory()
        if self._device.type == "cuda":
            with _current(self._device):
                torch.cuda.empty_cache()

    def close(self) -> None:
        self.release_memory()
        del self._model


def read_pickled_weights(path: Path) -> dict[str, npt.NDArray[np.float32]]:
    """The floating-point tensors of a PyTorch file, as f32; loaded without running anything from the pickle."""
    state = torch.load(path, map_location="cpu", weights_only=True)
    return {name: tensor.float().numpy() for name, tensor in state.items() if tensor.is_floating_point()}


def resolved(precision: Precision, device: torch.device) -> str:
    if precision != "auto":
        return precision
    return "bf16" if _computes_bf16(device) else "f32"


def _computes_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        with _current(device):
            return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and bool(torch.cpu._is_avx512_bf16_supported())  # pyright: ignore[reportPrivateUsage]


def _current(device: torch.device) -> "torch.cuda.device | nullcontext[None]":
    """Kernels and graphs go to the current GPU, which is a matter of the thread."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _too_big(batch: TokenBatch) -> OutOfMemory:
    return OutOfMemory(f"no memory for a batch of {batch.size} texts and {batch.padded_tokens} padded tokens")
