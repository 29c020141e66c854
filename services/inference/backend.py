"""What the batcher asks of a device: run one padded batch. Implementations are in `services.inference.backends`."""

from typing import Protocol

from services.inference.cards import ModelCard
from services.inference.types import BatchOutput, TokenBatch


class Backend(Protocol):
    """A loaded model on a device. Used by one thread at a time.

    `run` returns rows in the order of the batch, with at least the outputs that the batch wants. A row does not
    depend on what else is in the batch (cosine >= 0.9999 against the same text alone). It raises `DeviceLost` when no
    later call can succeed, and anything else when this batch failed.
    """

    card: ModelCard
    device: str

    def run(self, batch: TokenBatch) -> BatchOutput: ...

    def close(self) -> None: ...
