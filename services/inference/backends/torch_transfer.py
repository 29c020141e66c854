# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingImports=false, reportPrivateImportUsage=false
"""Moves a batch to the device in one copy, and results back."""

import numpy as np
import torch

from services.inference.backends.packing import Packed
from services.inference.backends.torch_encoder import Tensor, Texts
from services.inference.checkpoint import EncoderConfig
from services.inference.types import FloatArray


class Uploader:
    """Ids, positions, types and bounds of a batch go through one page-locked buffer, asynchronously.

    The buffer is used again by the next batch: read back a result of this one before, as every `run` does.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._buffer = self._host(0)

    def texts(self, packed: Packed, config: EncoderConfig) -> Texts:
        tokens = len(packed.ids)
        offsets = packed.offsets
        parts = (packed.ids, offsets + np.int32(config.position_offset), packed.type_ids, packed.bounds)
        size = sum(map(len, parts))
        if len(self._buffer) < size:
            self._buffer = self._host(size + size // 2)
        np.concatenate(parts, out=self._buffer.numpy()[:size])
        sent = self._buffer[:size].to(self._device, non_blocking=True, copy=True)
        return Texts(
            ids=sent[:tokens], positions=sent[tokens : 2 * tokens], type_ids=sent[2 * tokens : 3 * tokens],
            bounds=sent[3 * tokens :], runs=packed.runs(), longest=int(packed.lengths.max(initial=0)),
        )  # fmt: skip

    def _host(self, size: int) -> Tensor:
        return torch.empty(size, dtype=torch.int32, pin_memory=self._device.type == "cuda")


def array(tensor: Tensor) -> FloatArray:
    """float32 on the host; waits for the device."""
    return tensor.float().cpu().numpy()
