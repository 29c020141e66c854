"""The one thread that drives the device: takes a prepared pass, runs it, hands back one outcome per item."""

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from services.common import logs
from services.common.errors import ServiceError
from services.inference.backend import Backend, OutOfMemory
from services.inference.errors import DeviceLost, InferenceFailed
from services.inference.queueing import Ticket
from services.inference.types import BatchOutput, Encoded, ItemOutput, Lane, Output, Outputs, TokenBatch

_log = logs.get(__name__)
_T = TypeVar("_T")

_REASON_CHARS = 500


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pass:
    """One forward pass, ready for the device: `batch` row i belongs to `tickets[i]`.

    `tokens` is what it costs: padded tokens, or the real ones where the device runs without padding.
    """

    tickets: tuple[Ticket, ...]
    batch: TokenBatch
    real_tokens: int
    tokens: int

    @property
    def lane(self) -> Lane:
        return self.tickets[0].lane


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PassEnded:
    """What came of a pass: `outcomes[i]` for `tickets[i]`; `seconds` on the device; `clean` if it ran as one.

    `out_of_memory`: it was too much for the device at first, whatever came of it then.
    """

    work: Pass
    outcomes: tuple[ItemOutput | ServiceError, ...]
    seconds: float
    clean: bool
    out_of_memory: bool = False


def pad(items: list[Encoded], outputs: Outputs) -> TokenBatch:
    """Items side by side, padded on the right with zeros (the mask hides them)."""
    longest = max(item.token_count for item in items)
    ids, mask, type_ids = np.zeros((3, len(items), longest), np.int32)
    for row, item in enumerate(items):
        ids[row, : item.token_count] = item.ids
        mask[row, : item.token_count] = 1
        type_ids[row, : item.token_count] = item.type_ids
    return TokenBatch(ids=ids, mask=mask, type_ids=type_ids, outputs=outputs)


def prepare(tickets: list[Ticket], *, padding_free: bool) -> Pass:
    outputs = frozenset[Output]().union(*{ticket.outputs for ticket in tickets})
    batch = pad([ticket.encoded for ticket in tickets], outputs)
    real = sum(ticket.tokens for ticket in tickets)
    return Pass(
        tickets=tuple(tickets), batch=batch, real_tokens=real, tokens=real if padding_free else batch.padded_tokens
    )


class DeviceWorker:
    """Owns a daemon thread and a slot for the next pass.

    `offer` fills the slot, `retract` empties it if the thread has not taken it yet. `on_taken` and `on_ended` are
    called from the thread. The thread outlives every exception of the backend but `DeviceLost`, and ends by `stop`.
    """

    def __init__(
        self, backend: Backend, *, on_taken: Callable[[Pass], None], on_ended: Callable[[PassEnded], None]
    ) -> None:
        self._backend = backend
        self._on_taken = on_taken
        self._on_ended = on_ended
        self._slot: Pass | None = None
        self._stopping = False
        self._lock = threading.Lock()
        #: Wakes the thread: handing over by a condition costs the event loop several times as much.
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._rung = False
        self._thread = threading.Thread(target=self._loop, name=f"device-{backend.card.name}", daemon=True)
        self._thread.start()

    def offer(self, work: Pass) -> None:
        with self._lock:
            if self._slot is not None:
                raise RuntimeError("the slot of the device worker is taken; retract first")
            self._slot = work
            self._ring()

    def retract(self) -> Pass | None:
        with self._lock:
            work, self._slot = self._slot, None
            return work

    def stop(self) -> None:
        """Let the thread end after the pass it is in; a pass in the slot is not run."""
        with self._lock:
            self._stopping = True
            self._ring()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def _loop(self) -> None:
        while (work := self._take()) is not None:
            if not _told(self._on_taken, work):
                return
            ended = self._run(work)
            if any(isinstance(outcome, DeviceLost) for outcome in ended.outcomes):
                self.stop()  # before anybody is told: the pass in the slot must not be tried on a dead device
            if not _told(self._on_ended, ended):
                return

    def _take(self) -> Pass | None:
        while True:
            self._bell.get()
            with self._lock:
                self._rung = False
                if self._stopping:
                    return None
                work, self._slot = self._slot, None
            if work is not None:  # else it was retracted before the bell was heard
                return work

    def _ring(self) -> None:
        """At most one ring is unheard, however often work is offered and retracted during a pass."""
        if not self._rung:
            self._rung = True
            self._bell.put(None)

    def _run(self, work: Pass) -> PassEnded:
        started = time.perf_counter()
        try:
            outcomes, clean = split(self._backend.run(work.batch), work.batch.size), True
        except Exception as error:
            _log.warning(
                "pass_failed", model=self._backend.card.name, items=work.batch.size, kind=type(error).__name__,
                reason=str(error)[:_REASON_CHARS],
            )  # fmt: skip
            items = [ticket.encoded for ticket in work.tickets]
            outcomes, clean = self._rescue(items, work.batch.outputs, error), False
            out_of_memory = isinstance(error, OutOfMemory)
        else:
            out_of_memory = False
        return PassEnded(
            work=work, outcomes=tuple(outcomes), seconds=time.perf_counter() - started, clean=clean,
            out_of_memory=out_of_memory,
        )  # fmt: skip

    def _rescue(self, items: list[Encoded], outputs: Outputs, error: Exception) -> list[ItemOutput | ServiceError]:
        """What can be had of a pass that failed: all of it once memory is free, else its halves, down to single items,
        so that only the culprit fails."""
        if isinstance(error, OutOfMemory):
            try:
                self._backend.release_memory()
                return split(self._backend.run(pad(items, outputs)), len(items))
            except Exception as again:
                error = again
        if isinstance(error, DeviceLost):
            return [error] * len(items)
        if len(items) == 1:
            return [_failed(error)]
        middle = len(items) // 2
        out: list[ItemOutput | ServiceError] = []
        for half in (items[:middle], items[middle:]):
            if out and isinstance(lost := out[-1], DeviceLost):
                out += [lost] * len(half)
                continue
            try:
                out.extend(split(self._backend.run(pad(half, outputs)), len(half)))
            except Exception as failure:
                out.extend(self._rescue(half, outputs, failure))
        return out


def _told(callback: Callable[[_T], None], argument: _T) -> bool:
    """False where the event loop that waits for it is closed: nobody is left to tell."""
    try:
        callback(argument)
    except RuntimeError:
        return False
    return True


def _failed(error: Exception) -> InferenceFailed:
    if isinstance(error, OutOfMemory):
        return InferenceFailed("the device has no room for this input, even on its own")
    return InferenceFailed(f"the model failed on this input ({type(error).__name__})")


def split(output: BatchOutput, size: int) -> list[ItemOutput | ServiceError]:
    """One outcome per row; a row that is not finite, or a dense row without a direction, is an `InferenceFailed`.

    Raises `InferenceFailed` for the pass when an output has another number of rows.
    """
    columns = (output.dense, output.sparse, output.multi_vector, output.logits)
    for column in columns:
        if column is not None and len(column) != size:
            raise InferenceFailed(f"the backend gave {len(column)} rows for {size} items")
    if all(column is None for column in columns):
        raise InferenceFailed("the backend gave nothing")
    good = np.ones(size, np.bool_)
    if output.dense is not None:
        good &= np.isfinite(output.dense).all(axis=1) & (np.abs(output.dense).max(axis=1, initial=0.0) > 0.0)
    if output.logits is not None:
        good &= np.isfinite(output.logits)
    if output.sparse is not None:
        good &= [bool(np.isfinite(vector.values).all()) for vector in output.sparse]
    if output.multi_vector is not None:
        good &= [bool(np.isfinite(matrix).all()) for matrix in output.multi_vector]
    logits = None if output.logits is None else output.logits.tolist()
    return [
        ItemOutput(
            None if output.dense is None else output.dense[row],
            None if output.sparse is None else output.sparse[row],
            None if output.multi_vector is None else output.multi_vector[row],
            None if logits is None else logits[row],
        )
        if ok
        else _not_finite()
        for row, ok in enumerate(good.tolist())
    ]


def _not_finite() -> InferenceFailed:
    return InferenceFailed("the model gave no finite, non-zero value for this input")
