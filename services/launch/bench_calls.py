"""The calls that `pergamon bench` makes: what each carries, drawn from a seed, and what of it was answered."""

import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, cycle, islice
from typing import Literal

from pergamon.client import AsyncClient, Priority, SearchOptions, Truncation

from services.launch.bench_load import Ticket
from services.launch.bench_texts import Span, batches_of, text_of

#: Calls whose texts are drawn before the run; later ones repeat their texts behind a number of their own, so that
#: drawing costs nothing while it is measured and no cache of the server can answer.
_DRAWN_CALLS = 128
_QUERY_WORDS = Span(least=4, most=12)
PriorityName = Literal["interactive", "bulk"]
_PRIORITIES: dict[PriorityName, Priority.ValueType] = {
    "interactive": Priority.PRIORITY_INTERACTIVE,
    "bulk": Priority.PRIORITY_BULK,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """`texts` (or passages) a call, `words` a text, and the share of calls in the bulk lane, 0 to 1."""

    texts: Span
    words: Span
    bulk_share: float = 0.0
    seed: int = 0


def embed_calls(client: AsyncClient, mix: Mix, *, model: str, sparse: bool, timeout_s: float) -> Iterator[Ticket]:
    """Embed with dense vectors, and BM25 ones if `sparse`; labels are the priorities."""
    lanes = random.Random(mix.seed + 1)  # noqa: S311 - for measurements, guards nothing

    async def send(texts: list[str], priority: PriorityName) -> int:
        response = await client.embed(
            texts,
            dense_model=model,
            sparse=sparse,
            bm25_average_length=100.0 if sparse else 0.0,
            truncation=Truncation.TRUNCATION_RIGHT,
            priority=_PRIORITIES[priority],
            timeout_s=timeout_s,
        )
        return sum(not report.HasField("error") for report in response.reports)

    for texts in _numbered(mix):
        priority: PriorityName = "bulk" if lanes.random() < mix.bulk_share else "interactive"
        yield _ticket(priority, len(texts), partial(send, texts, priority))


def rerank_calls(client: AsyncClient, mix: Mix, *, model: str, timeout_s: float) -> Iterator[Ticket]:
    """Rerank `mix.texts` passages for one query a call."""
    rng = random.Random(mix.seed + 2)  # noqa: S311 - for measurements, guards nothing

    async def send(query: str, passages: list[str]) -> int:
        return len((await client.rerank(query, passages, model=model, timeout_s=timeout_s)).scores)

    for passages in _numbered(mix):
        query = text_of(rng, _QUERY_WORDS.draw(rng))
        yield _ticket("rerank", len(passages), partial(send, query, passages))


def search_calls(
    client: AsyncClient, queries: Sequence[str], knowledge_base_ids: Sequence[str], options: SearchOptions, *,
    timeout_s: float,
) -> Iterator[Ticket]:  # fmt: skip
    """Search for `queries` in turn; a search counts as one text, whatever it finds."""

    async def send(query: str) -> int:
        await client.search(query, knowledge_base_ids, timeout_s=timeout_s, **options)
        return 1

    for query in cycle(queries):
        yield _ticket("search", 1, partial(send, query))


def made_up_queries(seed: int, number: int = 10_000) -> list[str]:
    rng = random.Random(seed)  # noqa: S311 - for measurements, guards nothing
    return [text_of(rng, _QUERY_WORDS.draw(rng)) for _ in range(number)]


def _numbered(mix: Mix) -> Iterator[list[str]]:
    rng = random.Random(mix.seed)  # noqa: S311 - for measurements, guards nothing
    drawn = list(islice(batches_of(rng, mix.texts, mix.words), _DRAWN_CALLS))
    for number in count():
        yield [f"{number}.{row} {text}" for row, text in enumerate(drawn[number % _DRAWN_CALLS])]


def _ticket(label: str, texts: int, send: Callable[[], Awaitable[int]]) -> Ticket:
    return Ticket(label=label, texts=texts, send=send)
