"""The invariants of cutting passes: budget, order, and that nobody starves."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.inference.cost import CostModel, seconds_until_free
from services.inference.queueing import LaneQueue, Lanes, PassLimits, Ticket, cut
from services.inference.types import Lane
from tests.helpers.inference import DENSE, of_length

BUDGET, MAX_ITEMS = 128, 8
LIMITS = PassLimits(budget_tokens=BUDGET, max_items=MAX_ITEMS)
LENGTHS = st.lists(st.integers(3, 200), min_size=1, max_size=60)


def _tickets(lengths: list[int], lane: Lane = Lane.BULK) -> list[Ticket]:
    return [_ticket(i, n, lane) for i, n in enumerate(lengths)]


def _ticket(index: int, tokens: int, lane: Lane = Lane.BULK, client: str = "") -> Ticket:
    waiters: list[tuple[object, int]] = [(None, index)]
    return Ticket(key=index, encoded=of_length(tokens), outputs=DENSE, lane=lane, client=client, waiters=waiters)


def _index(ticket: Ticket) -> int:
    return ticket.waiters[0][1]


def _drain(queue: LaneQueue) -> list[list[Ticket]]:
    passes: list[list[Ticket]] = []
    while taken := cut(queue, LIMITS):
        passes.append(taken)
    return passes


@settings(deadline=None)
@given(LENGTHS)
def test_cut_when_drained_then_every_item_is_in_exactly_one_pass(lengths: list[int]):
    queue, tickets = LaneQueue(), _tickets(lengths)
    queue.push(tickets)
    taken = [_index(ticket) for one in _drain(queue) for ticket in one]
    assert sorted(taken) == list(range(len(lengths)))
    assert len(queue) == queue.tokens == 0


@settings(deadline=None)
@given(LENGTHS)
def test_cut_when_passes_hold_several_items_then_the_padded_size_is_within_the_budget(lengths: list[int]):
    queue = LaneQueue()
    queue.push(_tickets(lengths))
    for taken in _drain(queue):
        assert len(taken) <= MAX_ITEMS
        assert len(taken) == 1 or len(taken) * max(t.tokens for t in taken) <= BUDGET


@settings(deadline=None)
@given(LENGTHS)
def test_cut_when_drained_then_each_pass_holds_the_oldest_that_waited(lengths: list[int]):
    queue = LaneQueue()
    queue.push(_tickets(lengths))
    waiting = set(range(len(lengths)))
    for taken in _drain(queue):
        indices = {_index(ticket) for ticket in taken}
        assert min(waiting) in indices
        waiting -= indices


@settings(deadline=None)
@given(LENGTHS, st.data())
def test_queue_when_items_are_discarded_or_given_back_then_the_tokens_add_up(lengths: list[int], data: st.DataObject):
    queue, tickets = LaneQueue(), _tickets(lengths)
    queue.push(tickets)
    for ticket in data.draw(st.lists(st.sampled_from(tickets), max_size=20)):
        queue.discard(ticket)
    taken = cut(queue, LIMITS)
    left = queue.tokens
    queue.push_front(taken)
    assert queue.tokens == left + sum(t.tokens for t in taken) == sum(t.tokens for t in queue.window())
    turns = [t.turn for t in queue.window()]
    assert turns == sorted(turns)


@settings(deadline=None)
@given(st.lists(st.integers(3, 120), min_size=2, max_size=40), st.lists(st.integers(16, 256), min_size=1, max_size=20))
def test_cut_when_passes_are_taken_back_and_cut_anew_then_the_oldest_item_is_always_among_them(
    lengths: list[int], budgets: list[int]
):
    """A pass that was cut for another budget, or before others came, must not put its company before older items."""
    queue = LaneQueue()
    tickets = _tickets(lengths)
    queue.push(tickets)
    waiting = set(tickets)
    for budget in budgets:
        queue.push_front(cut(queue, LIMITS))
        if taken := cut(queue, PassLimits(budget_tokens=budget, max_items=MAX_ITEMS)):
            assert min(waiting, key=lambda ticket: ticket.turn) in taken
            queue.started(taken)
            waiting -= set(taken)


def test_cut_when_new_clients_come_without_an_end_then_one_who_waits_has_its_turn():
    """As where each call comes over a connection of its own, and there are no credentials to know clients by."""
    queue = LaneQueue()
    mine = [_ticket(number, 50, client="mine") for number in range(3)]
    queue.push(mine)
    left = 0
    while any(ticket.queued for ticket in mine):
        queue.push([_ticket(99, 50, client=f"new-{left}")])
        queue.started(cut(queue, PassLimits(budget_tokens=50, max_items=1)))
        left += 1
        assert left < 50


def test_queue_when_it_is_never_empty_and_clients_come_and_go_then_they_are_forgotten():
    queue = LaneQueue()
    queue.push([_ticket(0, 50, client="0")])
    for number in range(1, 5_000):
        queue.push([_ticket(number, 50, client=str(number))])
        queue.started(cut(queue, PassLimits(budget_tokens=50, max_items=1)))
    assert len(queue) == queue.clients == 1
    assert len(queue._next_turn) < 2_000  # pyright: ignore[reportPrivateUsage]  # what is kept cannot be seen otherwise


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 6))
def test_lanes_when_both_wait_then_bulk_gets_its_share_and_interactive_the_rest(ahead: int, behind: int, every: int):
    lanes = Lanes(bulk_every=every)
    lanes.queues[Lane.INTERACTIVE].push(_tickets([10] * ahead, Lane.INTERACTIVE))
    lanes.queues[Lane.BULK].push(_tickets([10] * behind, Lane.BULK))
    waited = 0
    while all(len(queue) for queue in lanes.queues.values()):
        lane = lanes.next_lane()
        assert lane is not None
        lanes.started(lane, cut(lanes.queues[lane], PassLimits(budget_tokens=10, max_items=1)))
        waited = 0 if lane is Lane.BULK else waited + 1
        assert waited < every or every == 1
    assert len(lanes) == abs(len(lanes.queues[Lane.INTERACTIVE]) - len(lanes.queues[Lane.BULK]))


def test_cost_when_passes_follow_a_line_then_finds_it():
    cost = CostModel()
    for tokens in (32, 512, 2048, 64, 1024):
        cost.observe(tokens, 0.002 + tokens * 1e-5)
    assert abs(cost.seconds(4096, passes=2) - (2 * 0.002 + 4096 * 1e-5)) < 1e-6


def test_cost_when_nothing_was_seen_then_promises_nothing():
    assert CostModel().seconds(1000) == 0.0


def test_cost_when_all_passes_were_equal_then_scales_with_the_tokens():
    cost = CostModel()
    for _ in range(5):
        cost.observe(100, 0.01)
    assert abs(cost.seconds(1000) - 0.1) < 1e-9


def test_cost_when_one_pass_was_held_up_then_expects_no_such_thing_but_learns_what_lasts():
    cost = CostModel()
    for _ in range(50):
        cost.observe(1000, 0.05)
    cost.observe(1000, 120.0)
    assert cost.seconds(1000) < 0.1
    for _ in range(50):
        cost.observe(1000, 5.0)
    assert cost.seconds(1000) > 2


@pytest.mark.parametrize(
    ("work_s", "busy_s", "free_s"),
    [(0.0, [2.0], 2.0), (1.0, [2.0], 3.0), (0.0, [2.0, 0.0], 0.0), (1.0, [2.0, 0.0], 1.0), (4.0, [2.0, 0.0], 3.0),
     (3.0, [1.0, 1.0, 1.0], 2.0), (0.5, [0.0, 5.0, 1.0], 0.5), (2.0, [0.0, 5.0, 1.0], 1.5)],
)  # fmt: skip
def test_seconds_until_free_when_devices_are_busy_then_work_fills_the_idle_ones_first(
    work_s: float, busy_s: list[float], free_s: float
):
    assert seconds_until_free(work_s, busy_s) == pytest.approx(free_s)


_ARRIVALS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(3, 120)), min_size=1, max_size=80)


@settings(deadline=None)
@given(_ARRIVALS)
def test_cut_when_clients_compete_then_nobody_gets_ahead_by_more_than_a_pass(arrivals: list[tuple[str, int]]):
    """While two clients wait, the tokens they were given differ by at most what a pass and an item can hold."""
    queue = LaneQueue()
    queue.push([_ticket(i, tokens, client=client) for i, (client, tokens) in enumerate(arrivals)])
    waiting = {client: sum(t for c, t in arrivals if c == client) for client, _ in arrivals}
    given_to = dict.fromkeys(waiting, 0)
    while taken := cut(queue, PassLimits(budget_tokens=128, max_items=8, padding_free=True)):
        queue.started(taken)
        for ticket in taken:
            given_to[ticket.client] += ticket.tokens
        busy = [given_to[client] for client in waiting if given_to[client] < waiting[client]]
        assert not busy or max(busy) - min(busy) <= 128 + 2 * 120
    assert given_to == waiting


@settings(deadline=None)
@given(_ARRIVALS)
def test_cut_when_an_item_waits_then_the_passes_before_it_are_bounded_by_the_work_of_earlier_turns(
    arrivals: list[tuple[str, int]],
):
    queue = LaneQueue()
    tickets = [_ticket(i, tokens, client=client) for i, (client, tokens) in enumerate(arrivals)]
    queue.push(tickets)
    #: Later ones of its client may run ahead of an item; it is moved back by what they have, and by no more.
    earlier: dict[Ticket, int] = {}
    for ticket in tickets:
        later = sum(t.tokens for t in tickets if t.client == ticket.client and t.turn > ticket.turn)
        earlier[ticket] = sum(other.turn <= ticket.turn + later for other in tickets if other.client != ticket.client)
        earlier[ticket] += sum(t.turn <= ticket.turn for t in tickets if t.client == ticket.client)
    passes = 0
    while taken := cut(queue, LIMITS):
        passes += 1
        queue.started(taken)
        assert all(passes <= earlier[ticket] for ticket in taken)


def test_cut_when_an_item_is_of_a_rare_length_then_company_of_its_client_does_not_pass_it_over_without_an_end():
    queue, limits = LaneQueue(), PassLimits(budget_tokens=400, max_items=4)
    queue.push([_ticket(0, 100, client="other"), _ticket(1, 5, client="mixed")])
    rare = _ticket(2, 5, client="mixed")
    queue.push([_ticket(3, 300, client="mixed"), rare])
    for passes in range(200):
        queue.push([_ticket(10 + passes, 100, client=client) for client in ("other", "mixed") for _ in range(3)])
        taken = cut(queue, limits)
        if rare in taken:
            break
        queue.started(taken)
    assert not rare.queued


def test_push_when_a_client_is_new_then_it_starts_where_the_others_are_now():
    queue = LaneQueue()
    queue.push([_ticket(i, 100, client="old") for i in range(50)])
    for _ in range(10):
        queue.started(cut(queue, PassLimits(budget_tokens=100, max_items=1)))
    queue.push([_ticket(99, 100, client="new")])
    assert cut(queue, PassLimits(budget_tokens=100, max_items=1))[0].client == "new"


@settings(deadline=None)
@given(_ARRIVALS, st.sampled_from("abd"), st.integers(1, 300))
def test_tokens_before_when_a_client_asks_then_others_count_as_far_as_their_turns_allow(
    arrivals: list[tuple[str, int]], client: str, tokens: int
):
    queue = LaneQueue()
    queue.push([_ticket(i, n, client=c) for i, (c, n) in enumerate(arrivals)])
    own = sum(n for c, n in arrivals if c == client)
    before = queue.tokens_before(client, tokens)
    assert own <= before <= queue.tokens
    assert before <= own + 3 * (own + tokens)


@settings(deadline=None)
@given(LENGTHS)
def test_cut_when_the_device_pads_then_company_is_of_like_length(lengths: list[int]):
    queue = LaneQueue()
    queue.push(_tickets(lengths))
    for taken in _drain(queue):
        longest, shortest = max(t.tokens for t in taken), min(t.tokens for t in taken)
        assert longest - shortest <= max(32, 0.2 * longest) * 2


@settings(deadline=None)
@given(st.lists(st.integers(3, 100), min_size=40, max_size=80), st.integers(1, 12))
def test_cut_when_one_client_has_much_of_all_lengths_then_a_newcomer_goes_next_whatever_has_run(
    lengths: list[int], passes: int
):
    queue = LaneQueue()
    queue.push(_ticket(i, tokens, client="busy") for i, tokens in enumerate(lengths))
    for _ in range(passes):
        queue.started(cut(queue, LIMITS))
    newcomer = _ticket(len(lengths), 3, client="new")
    queue.push([newcomer])
    assert newcomer in cut(queue, LIMITS)


@settings(deadline=None)
@given(LENGTHS, st.lists(st.sampled_from("ab"), min_size=60, max_size=60), st.data())
def test_started_when_items_ran_ahead_of_their_turn_then_the_others_keep_their_order(
    lengths: list[int], clients: str, data: st.DataObject
):
    queue = LaneQueue()
    tickets = [_ticket(i, tokens, client=clients[i]) for i, tokens in enumerate(lengths)]
    queue.push(tickets)
    while taken := cut(queue, LIMITS):
        if data.draw(st.booleans()):
            queue.push_front(taken)
            continue
        queue.started(taken)
        for client in "ab":
            waiting = [ticket for ticket in tickets if ticket.queued and ticket.client == client]
            assert [_index(t) for t in sorted(waiting, key=lambda t: t.turn)] == [_index(t) for t in waiting]
