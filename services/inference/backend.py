"""What the batcher asks of a device: run one padded batch. Implementations are in `services.inference.backends`."""

from typing import Protocol

from services.inference.cards import ModelCard
from services.inference.types import BatchOutput, TokenBatch


class OutOfMemory(Exception):
    """The device had no room for this batch. A smaller one may fit, or the same one after `release_memory`."""


class Backend(Protocol):
    """A loaded model on a device. Used by one thread at a time.

    `run` returns rows in the order of the batch, with at least the outputs that the batch wants. A row does not
    depend on what else is in the batch (cosine >= 0.9999 against the same text alone). It raises `DeviceLost` when no
    later call can succeed, `OutOfMemory` when the batch was too much at this moment, and anything else when this batch
    failed. `padding_free` says that padding costs it nothing, so that texts of all lengths go well together.
    """

    card: ModelCard
    device: str
    padding_free: bool

    def run(self, batch: TokenBatch) -> BatchOutput: ...

    def release_memory(self) -> None:
        """Give back what is cached and not in use. Called after `OutOfMemory`, before the next try."""
        ...

    def close(self) -> None: ...
