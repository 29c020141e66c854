"""The two lanes of waiting items, and how the next pass is cut from them. Pure: no clock, no threads, no device."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

from services.inference.types import Encoded, Lane, Outputs

#: How many waiting items, oldest first, are looked at to find company of like length for the oldest.
WINDOW_ITEMS = 512


@dataclass(slots=True, eq=False, kw_only=True)
class Ticket:
    """One item in the queue: `call` is whose it is (opaque here), `index` its place there."""

    call: object
    index: int
    encoded: Encoded
    outputs: Outputs
    lane: Lane
    tokens: int = field(init=False)

    def __post_init__(self) -> None:
        self.tokens = self.encoded.token_count


class LaneQueue:
    """First in, first out; removal anywhere in constant time; knows the tokens it holds."""

    def __init__(self) -> None:
        self._items: dict[Ticket, None] = {}
        self.tokens = 0

    def __len__(self) -> int:
        return len(self._items)

    def push(self, tickets: Iterable[Ticket]) -> None:
        for ticket in tickets:
            self._items[ticket] = None
            self.tokens += ticket.tokens

    def push_front(self, tickets: Iterable[Ticket]) -> None:
        """Give back what was cut but not run, in front of everything that waits."""
        returned = dict.fromkeys(tickets)
        self.tokens += sum(ticket.tokens for ticket in returned)
        self._items = returned | self._items

    def discard(self, ticket: Ticket) -> bool:
        if ticket not in self._items:
            return False
        del self._items[ticket]
        self.tokens -= ticket.tokens
        return True

    def window(self) -> list[Ticket]:
        return list(islice(self._items, WINDOW_ITEMS))


def cut(queue: LaneQueue, *, budget_tokens: int, max_items: int) -> list[Ticket]:
    """Take the next pass out of `queue`: the oldest item, and those of its window that are closest to it in length.

    The padded size (items times the longest) stays within `budget_tokens`; an item that alone exceeds it goes
    alone. Because the oldest always goes, no item waits for more passes than there were items before it.
    """
    window = queue.window()
    if not window:
        return []
    oldest = window[0]
    ordered = sorted(window, key=lambda ticket: ticket.tokens)
    low = high = ordered.index(oldest)  # identity: tickets compare by it
    while high - low + 1 < max_items:
        size = high - low + 2
        fits_below = low > 0 and size * ordered[high].tokens <= budget_tokens
        fits_above = high + 1 < len(ordered) and size * ordered[high + 1].tokens <= budget_tokens
        if not fits_below and not fits_above:
            break
        gap_below = ordered[high].tokens - ordered[low - 1].tokens if fits_below else None
        gap_above = ordered[high + 1].tokens - ordered[low].tokens if fits_above else None
        if gap_above is not None and (gap_below is None or gap_above <= gap_below):
            high += 1
        else:
            low -= 1
    taken = ordered[low : high + 1]
    for ticket in taken:
        queue.discard(ticket)
    return taken


class Lanes:
    """INTERACTIVE before BULK; but every `bulk_every`-th pass is BULK's while both wait."""

    def __init__(self, *, budget_tokens: int, max_items: int, bulk_every: int) -> None:
        self.queues = {lane: LaneQueue() for lane in Lane}
        self._budget_tokens = budget_tokens
        self._max_items = max_items
        self._bulk_every = bulk_every
        self._passes_since_bulk = 0

    def __len__(self) -> int:
        return sum(len(queue) for queue in self.queues.values())

    def next_lane(self) -> Lane | None:
        interactive, bulk = self.queues[Lane.INTERACTIVE], self.queues[Lane.BULK]
        if len(bulk) and (not len(interactive) or self._passes_since_bulk >= self._bulk_every - 1):
            return Lane.BULK
        return Lane.INTERACTIVE if len(interactive) else None

    def cut(self) -> list[Ticket]:
        """The next pass; empty if nothing waits. Does not count as a pass until `started`."""
        lane = self.next_lane()
        if lane is None:
            return []
        return cut(self.queues[lane], budget_tokens=self._budget_tokens, max_items=self._max_items)

    def give_back(self, tickets: list[Ticket]) -> None:
        if tickets:
            self.queues[tickets[0].lane].push_front(tickets)

    def started(self, lane: Lane) -> None:
        self._passes_since_bulk = 0 if lane is Lane.BULK else self._passes_since_bulk + 1
