"""Who goes next: two lanes of waiting items, turns between clients, how a pass is cut. Pure: no clock, no device."""

import heapq
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice, takewhile
from operator import attrgetter

from services.inference.types import Encoded, Lane, Outputs

#: How many waiting items, in the order of their turns, are looked at to find company of like length for the first.
WINDOW_ITEMS = 512
#: Company may be shorter than the longest of a pass by this share, or by so many tokens, which a pass of its own costs.
_SHORTER_SHARE, _SHORTER_TOKENS = 0.2, 32

_turn = attrgetter("turn")


@dataclass(slots=True, eq=False, kw_only=True)
class Ticket:
    """One item of work, and who waits for it.

    `waiters` are opaque here: several where the same text was asked for more than once. `turn` is its place in the
    lane, given by the queue. `queued` is False once it is in a pass.
    """

    key: object
    encoded: Encoded
    outputs: Outputs
    lane: Lane
    client: str
    waiters: list[tuple[object, int]]
    tokens: int = field(init=False)
    turn: float = 0.0
    queued: bool = False

    def __post_init__(self) -> None:
        self.tokens = self.encoded.token_count

    def is_after(self, other: "Ticket") -> bool:
        return self.turn > other.turn


class LaneQueue:
    """The items of one lane, by turns that are fair between clients: weighted fair queueing (Demers et al. 1989), with
    turns by start time (Goyal et al. 1996).

    Each client's items follow each other at a distance of their tokens on a common axis; the next to go is the one
    furthest back on it. A client that has used nothing starts where the axis is now, however much others have queued.
    The axis advances by the tokens that run, for each client that wants some: clients that come without an end cannot
    all start before one who waits. What runs ahead of its turn, for its length, moves back those of its client that it
    went before: the client has used as much as if they had gone in order.
    """

    def __init__(self) -> None:
        #: The items of each client, by their turns.
        self._clients: dict[str, OrderedDict[Ticket, None]] = {}
        self._tokens_of: dict[str, int] = {}
        self._next_turn: dict[str, float] = {}
        self._prune_at = WINDOW_ITEMS
        self._now = 0.0
        self._items = 0
        self.tokens = 0

    def __len__(self) -> int:
        return self._items

    @property
    def clients(self) -> int:
        return len(self._clients)

    def turn_of(self, client: str) -> float:
        """The turn that an item of `client` would get now."""
        return max(self._now, self._next_turn.get(client, 0.0))

    def tokens_before(self, client: str, tokens: int) -> int:
        """Tokens that go before work of `tokens` that `client` would add now: its own, and of others what their turns
        allow them until then."""
        own = self._tokens_of.get(client, 0)
        if own == self.tokens:
            return own
        return own + sum(min(held, own + tokens) for other, held in self._tokens_of.items() if other != client)

    def push(self, tickets: Iterable[Ticket]) -> None:
        for ticket in tickets:
            ticket.turn = self.turn_of(ticket.client)
            self._next_turn[ticket.client] = ticket.turn + ticket.tokens
            self._add(ticket)

    def push_front(self, tickets: Iterable[Ticket]) -> None:
        """Give back what was cut but not run; it keeps its turn, and goes before those of later turns alone."""
        back: dict[str, list[Ticket]] = {}
        for ticket in tickets:
            back.setdefault(ticket.client, []).append(ticket)
        for client, own in back.items():
            last = max(own, key=_turn)
            earlier = list(takewhile(last.is_after, self._clients.get(client, ())))
            for ticket in own:
                self._add(ticket)
            for ticket in sorted([*own, *earlier], key=_turn, reverse=True):
                self._clients[client].move_to_end(ticket, last=False)

    def discard(self, ticket: Ticket) -> bool:
        items = self._clients.get(ticket.client)
        if items is None or ticket not in items:
            return False
        del items[ticket]
        ticket.queued = False
        self.tokens -= ticket.tokens
        self._items -= 1
        self._tokens_of[ticket.client] -= ticket.tokens
        if not items:
            del self._clients[ticket.client], self._tokens_of[ticket.client]
        return True

    def started(self, tickets: Iterable[Ticket]) -> None:
        """These are on the device: the axis has come to the turn of the first of them, or beyond."""
        tickets = list(tickets)
        clients = len(self._clients.keys() | {ticket.client for ticket in tickets})
        tokens = sum(ticket.tokens for ticket in tickets)
        # As if one more wanted some: who comes now goes before the next of one client that is alone.
        self._now = max(self._now + tokens / (clients + 1), min(map(_turn, tickets)))
        self._move_back(tickets)
        if len(self._next_turn) > self._prune_at:  # else it would grow by every connection that ever came
            self._next_turn = {client: turn for client, turn in self._next_turn.items() if turn > self._now}
            self._prune_at = max(WINDOW_ITEMS, 2 * len(self._next_turn))

    def _move_back(self, ran: list[Ticket]) -> None:
        """Each waiting item of the client whose turn it was, by its tokens that ran and had later turns. Their order
        stands, and as the first of them ran too, none is moved oftener than there were items of its client before it.
        """
        client = min(ran, key=_turn).client
        ahead = sorted((ticket for ticket in ran if ticket.client == client), key=_turn, reverse=True)
        tokens, least = sum(ticket.tokens for ticket in ahead), 0.0
        for waiting in self._clients.get(client, ()):
            while ahead and ahead[-1].turn <= waiting.turn:
                tokens -= ahead.pop().tokens
            if not ahead and waiting.turn >= least:
                break
            least = waiting.turn = max(waiting.turn + tokens, least)

    def window(self) -> list[Ticket]:
        """The next so many, by their turns."""
        if len(self._clients) == 1:
            (only,) = self._clients.values()
            return list(islice(only, WINDOW_ITEMS))
        return list(islice(heapq.merge(*self._clients.values(), key=_turn), WINDOW_ITEMS))

    def _add(self, ticket: Ticket) -> None:
        items = self._clients.setdefault(ticket.client, OrderedDict())
        items[ticket] = None
        ticket.queued = True
        self.tokens += ticket.tokens
        self._items += 1
        self._tokens_of[ticket.client] = self._tokens_of.get(ticket.client, 0) + ticket.tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class PassLimits:
    """What bounds a pass. `budget_tokens` counts padding unless the device runs without any (`padding_free`)."""

    budget_tokens: int
    max_items: int
    padding_free: bool = False


def cut(queue: LaneQueue, limits: PassLimits) -> list[Ticket]:
    """Take the next pass out of `queue`: the item whose turn it is, and company from its window.

    An item that alone exceeds the budget goes alone. Because the first always goes, no item waits for more passes than
    there were items before it by their turns.
    """
    window = queue.window()
    if not window:
        return []
    taken = _in_turn(window, limits) if limits.padding_free else _of_like_length(window, limits)
    for ticket in taken:
        queue.discard(ticket)
    return taken


def _in_turn(window: list[Ticket], limits: PassLimits) -> list[Ticket]:
    """As many as fit, in order; what does not fit is passed over, and is among the first next time."""
    taken: list[Ticket] = []
    room = limits.budget_tokens
    for ticket in window:
        if ticket.tokens <= room or not taken:
            taken.append(ticket)
            room -= ticket.tokens
            if room <= 0 or len(taken) >= limits.max_items:
                break
    return taken


def _of_like_length(window: list[Ticket], limits: PassLimits) -> list[Ticket]:
    """The first, and those closest to it in length, as long as the padded size is within the budget.

    Company that is much shorter than the longest would cost more as padding than in a pass of its own.
    """
    first = window[0]
    ordered = sorted(window, key=attrgetter("tokens"))
    low = high = ordered.index(first)  # identity: tickets compare by it
    while high - low + 1 < limits.max_items:
        size, longest, shortest = high - low + 2, ordered[high].tokens, ordered[low].tokens
        below = ordered[low - 1].tokens if low else 0
        above = ordered[high + 1].tokens if high + 1 < len(ordered) else 0
        fits_below = low > 0 and size * longest <= limits.budget_tokens and _alike(below, longest)
        fits_above = above > 0 and size * above <= limits.budget_tokens and _alike(shortest, above)
        if fits_above and (not fits_below or above - shortest <= longest - below):
            high += 1
        elif fits_below:
            low -= 1
        else:
            break
    return ordered[low : high + 1]


def _alike(tokens: int, longest: int) -> bool:
    return longest - tokens <= max(_SHORTER_TOKENS, longest * _SHORTER_SHARE)


class Lanes:
    """INTERACTIVE before BULK; but every `bulk_every`-th pass is BULK's while both wait."""

    def __init__(self, *, bulk_every: int) -> None:
        self.queues = {lane: LaneQueue() for lane in Lane}
        self._bulk_every = bulk_every
        self._passes_since_bulk = 0

    def __len__(self) -> int:
        return sum(len(queue) for queue in self.queues.values())

    def next_lane(self) -> Lane | None:
        interactive, bulk = self.queues[Lane.INTERACTIVE], self.queues[Lane.BULK]
        if len(bulk) and (not len(interactive) or self._passes_since_bulk >= self._bulk_every - 1):
            return Lane.BULK
        return Lane.INTERACTIVE if len(interactive) else None

    def give_back(self, tickets: Iterable[Ticket]) -> None:
        tickets = list(tickets)
        if tickets:
            self.queues[tickets[0].lane].push_front(tickets)

    def started(self, lane: Lane, tickets: Iterable[Ticket]) -> None:
        self._passes_since_bulk = 0 if lane is Lane.BULK else self._passes_since_bulk + 1
        self.queues[lane].started(tickets)
