"""tei.v1.Rerank: how well texts answer a query, best first."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from services.common.auth import Role
from services.common.errors import FieldViolation, InvalidRequest, Reason
from services.common.ordered import in_order
from services.common.rpc import Call, Edge, rpc
from services.common.validation import Violations, require_room
from services.domain.scores import sigmoid
from services.inference.engine import InferenceEngine, RerankOutcome
from services.inference.types import Lane, Truncation
from services.tei.convert import MAX_CHARS, Spent, first_error, placed, require_text, truncation_in
from services.tei.groups import Group, grouped
from services.tei.headers import with_headers
from services.tei.models import Offers
from services.tei.v1 import tei_pb2 as pb
from services.tei.v1 import tei_pb2_grpc as stubs

_GROUPS_IN_WORK = 4
#: Queries up to this many characters are cut on the event loop: it takes less than handing them to a thread.
_INLINE_CHARS = 4_000


@dataclass(slots=True)
class _Judged:
    """What has been judged so far, in the order of the request."""

    spent: Spent
    texts: list[str] = field(default_factory=list[str])
    logits: list[float] = field(default_factory=list[float])

    def add(self, texts: Sequence[str], outcome: RerankOutcome) -> None:
        self.texts += texts
        self.logits += outcome.logits
        self.spent.add(outcome.timing, sum(item.token_count for item in outcome.items))

    def out(self, *, raw_scores: bool, return_text: bool, max_bytes: int) -> pb.RerankResponse:
        """By logit and not by what is sent: far from 0 probabilities are equal. Equal logits stay in order."""
        order = sorted(range(len(self.logits)), key=lambda index: -self.logits[index])
        ranks = [
            pb.Rank(
                index=index,
                text=self.texts[index] if return_text else None,
                score=self.logits[index] if raw_scores else sigmoid(self.logits[index]),
            )
            for index in order
        ]
        reply = pb.RerankResponse(ranks=ranks, metadata=self.spent.out())
        require_room(reply.ByteSize(), max_bytes)
        return reply


class TeiRerankServicer(stubs.RerankServicer):
    """The first text that fails fails the call: the reply has no place for it."""

    def __init__(self, edge: Edge, offers: Offers) -> None:
        self.edge = edge
        self.offers = offers

    @with_headers
    @rpc(Role.READER)
    async def Rerank(self, call: Call, request: pb.RerankRequest) -> pb.RerankResponse:
        judged = _Judged(Spent.now(len(request.query) + sum(map(len, request.texts))))
        _check_size(len(request.texts), self.offers.judging.max_items)
        truncation = _checked(request.query, request.texts, request.truncate, request.truncation_direction, "texts")
        async with self.offers.reranker() as engine:
            query = await _fitted(engine, request.query, truncation)
            outcome = await engine.rerank(
                query, request.texts, truncation=truncation, lane=Lane.INTERACTIVE, deadline=call.deadline,
                client=call.client,
            )  # fmt: skip
        _raise_first_error(outcome, "texts", 0)
        judged.add(request.texts, outcome)
        return judged.out(
            raw_scores=request.raw_scores, return_text=request.return_text, max_bytes=self.offers.max_reply_bytes
        )

    @with_headers
    @rpc(Role.READER)
    async def RerankStream(self, call: Call, request: AsyncIterator[pb.RerankStreamRequest]) -> pb.RerankResponse:
        judged = _Judged(Spent.now())
        head: pb.RerankStreamRequest | None = None
        groups = grouped(request, max_texts=self.offers.judging.max_items)
        async for group, outcome in in_order(groups, partial(self._judge_group, call), in_work=_GROUPS_IN_WORK):
            head = head or group.head
            judged.spent.chars += len(group.head.query) + sum(map(len, group.texts))
            judged.add(group.texts, outcome)
        if head is None:
            raise InvalidRequest.of(
                FieldViolation(field="stream", description="ended without a message; send at least one text"),
                reason=Reason.EMPTY_INPUT,
            )
        return judged.out(
            raw_scores=head.raw_scores, return_text=head.return_text, max_bytes=self.offers.max_reply_bytes
        )

    async def _judge_group(self, call: Call, group: Group) -> tuple[Group, RerankOutcome]:
        head = group.head
        truncation = _checked(
            head.query, group.texts, head.truncate, head.truncation_direction, "stream", first=group.first
        )
        async with self.offers.reranker() as engine:
            query = await _fitted(engine, head.query, truncation)
            outcome = await engine.rerank(
                query, group.texts, truncation=truncation, lane=Lane.BULK,
                deadline=call.deadline.within(self.edge.default_timeout_s), client=call.client,
            )  # fmt: skip
        _raise_first_error(outcome, "stream", group.first)
        return group, outcome


def _check_size(count: int, most: int) -> None:
    if count == 0:
        raise InvalidRequest.of(
            FieldViolation(field="texts", description="is empty; send at least one text"), reason=Reason.EMPTY_INPUT
        )
    if count > most:
        raise InvalidRequest.of(
            FieldViolation(field="texts", description=f"holds {count}, at most {most} are allowed"),
            reason=Reason.BATCH_TOO_LARGE,
        )


def _checked(
    query: str, texts: Sequence[str], truncate: bool, direction: int, field: str, *, first: int = 0
) -> Truncation:
    """How texts may be cut. Raises EMPTY_INPUT, or with every other violation."""
    require_text("query", query)
    for place, text in enumerate(texts, first):
        require_text(f"{field}[{place}]", text)
    found = Violations()
    found.length("query", query, MAX_CHARS)
    for place, text in enumerate(texts, first):
        found.length(f"{field}[{place}]", text, MAX_CHARS)
    truncation = truncation_in(truncate, direction, found)
    found.raise_if_any()
    return truncation


async def _fitted(engine: InferenceEngine, query: str, truncation: Truncation) -> str:
    """The query, without its end where it is too long and may be cut: half of the input belongs to the text."""
    if truncation is Truncation.FAIL:
        return query
    fit = partial(engine.tokenizer.fit_query, query, cut=True)
    fitted, _ = fit() if len(query) <= _INLINE_CHARS else await asyncio.to_thread(fit)
    return fitted


def _raise_first_error(outcome: RerankOutcome, field: str, first: int) -> None:
    if (failed := first_error([item.error for item in outcome.items])) is not None:
        place, error = failed
        raise placed(error, f"{field}[{first + place}]")
