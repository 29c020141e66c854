"""The whole search: plan, embed, query, fuse, fetch, rerank, cut. Each stage is one block of `Searcher._search`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from services.common.clock import Clock, Deadline
from services.common.errors import Overloaded
from services.common.metrics import Metrics
from services.domain.scores import RerankScore
from services.index.types import Hit, IndexQuery
from services.retriever.concurrent import all_of
from services.retriever.embedding import EmbeddingRun, QueryEmbeddings
from services.retriever.fetch import FetchedPool, Fetching
from services.retriever.guess import Guesses
from services.retriever.plan import Group, Member, Plan, plan_search
from services.retriever.pool import MemberHits, Pool
from services.retriever.ports import IndexPort, SnapshotPort
from services.retriever.rerank import Judgement, Reranking
from services.retriever.stages import Stage, StageLog
from services.retriever.types import (
    Dropped,
    DropReason,
    EmbeddingNeed,
    Passage,
    QueryVectors,
    SearchCall,
    SearchReply,
    StageState,
)

#: The call's own deadline ends first and says so; the index's time limit is for a hanging index.
_GRACE_S = 0.25
_MAX_DROPPED = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchParts:
    """What a search is made of."""

    snapshots: SnapshotPort
    index: IndexPort
    embeddings: QueryEmbeddings
    fetching: Fetching
    reranking: Reranking
    clock: Clock
    metrics: Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A group in its final order, with rerank scores where there are; `judged` says whether reranking ran."""

    fetched: FetchedPool
    order: Sequence[tuple[str, RerankScore | None]]
    judged: bool


class Searcher:
    """Searches. At most `max_searches` at once: more are refused, not queued."""

    def __init__(self, parts: SearchParts, *, max_searches: int, index_timeout_s: float) -> None:
        self._parts = parts
        self._guesses = Guesses()
        self._max_searches = max_searches
        self._index_timeout_s = index_timeout_s
        self._in_work = 0

    async def search(self, call: SearchCall, deadline: Deadline) -> SearchReply:
        """Errors: KNOWLEDGE_BASE_NOT_FOUND, INVALID_REQUEST (top_k above the candidates), INVALID_FILTER, OVERLOADED,
        EMBEDDER_UNAVAILABLE, INDEX_UNAVAILABLE, CATALOG_UNAVAILABLE, and those of the embedding model."""
        if self._in_work >= self._max_searches:
            raise Overloaded(f"{self._max_searches} searches are in work; retry later", retry_after_s=0.5)
        self._in_work += 1
        try:
            return await self._search(call, deadline)
        finally:
            self._in_work -= 1

    async def _search(self, call: SearchCall, deadline: Deadline) -> SearchReply:
        parts, started = self._parts, self._parts.clock.monotonic()
        log = StageLog(parts.clock, parts.metrics)
        embedding = EmbeddingRun(parts.embeddings, call.query, deadline)
        try:
            with log.stage("plan"):
                await embedding.begin(self._guesses.needs(call))
                snapshot = await parts.snapshots.search_snapshot(call.tenant_id, call.knowledge_base_ids)
                self._guesses.learn(call.tenant_id, snapshot)
                plan = plan_search(call, snapshot)
            with log.stage("embed") as stage:
                vectors = await embedding.vectors(plan.needs)
                _report_embedding(stage, vectors)
        finally:
            await embedding.aclose()
        with log.stage("query") as stage:
            found = await self._query(call, plan, vectors, deadline)
            stage.candidates_out = sum(len(m.dense or ()) + len(m.bm25 or ()) for hits in found for m in hits)
        with log.stage("fuse", stage.candidates_out) as stage:
            pools = [Pool(group, hits) for group, hits in zip(plan.groups, found, strict=True)]
            selections = [pool.select(frozenset()) for pool in pools]
            stage.candidates_out = sum(len(selection.kept) for selection in selections)
        with log.stage("fetch", stage.candidates_out) as stage:
            fetched = await parts.fetching.fetch(call.tenant_id, pools, selections, deadline)
            stage.candidates_out = sum(len(one.ready) for one in fetched)
        with log.stage("rerank", stage.candidates_out) as stage:
            ranked = await all_of([self._rank(call, one, deadline, stage) for one in fetched])
            stage.candidates_out = stage.candidates_in
            if not any(group.rerank for group in plan.groups):
                stage.skip()
        with log.stage("cut", stage.candidates_out) as stage:
            passages, dropped = _cut(ranked, with_dropped=call.include_dropped)
            stage.candidates_out = len(passages)
        total_ms = (parts.clock.monotonic() - started) * 1000
        return SearchReply(passages=passages, stages=tuple(log.reports), dropped=dropped, total_ms=total_ms)

    async def _query(
        self, call: SearchCall, plan: Plan, vectors: Mapping[EmbeddingNeed, QueryVectors], deadline: Deadline
    ) -> list[list[MemberHits]]:
        """The lists of every member of every group: one batch query a knowledge base, all at the same time."""
        timeout_s = deadline.capped(self._index_timeout_s) + _GRACE_S
        members = [member for group in plan.groups for member in group.members]
        found = await all_of([self._query_member(call, member, vectors, timeout_s) for member in members])
        left = iter(found)
        return [[next(left) for _ in group.members] for group in plan.groups]

    async def _query_member(
        self, call: SearchCall, member: Member, vectors: Mapping[EmbeddingNeed, QueryVectors], timeout_s: float
    ) -> MemberHits:
        if member.empty:
            return MemberHits()
        query = vectors[member.need]
        # A query without words has an empty BM25 vector, and no list.
        sparse = (query.sparse,) if query.sparse is not None and len(query.sparse.indices) else ()
        dense = (query.dense,) if query.dense is not None else ()
        if not dense and not sparse:
            return MemberHits()
        lists = await self._parts.index.search(
            IndexQuery(
                schema=member.schema,
                kb_id=member.kb.id,
                index_version=member.kb.index.id,
                hidden_doc_versions=member.kb.hidden_doc_versions,
                filters=call.filters,
                dense=dense,
                sparse=sparse,
                limit=member.list_limit,
            ),
            timeout_s=timeout_s,
        )
        by_dense: Sequence[Hit] | None = lists[0] if dense else None
        return MemberHits(dense=by_dense, bm25=lists[-1] if sparse else None)

    async def _rank(self, call: SearchCall, fetched: FetchedPool, deadline: Deadline, stage: Stage) -> Ranked:
        """The fused order, or the reranker's where it is wanted and can be had."""
        keys = fetched.ready
        judgement = Judgement()
        if fetched.pool.group.rerank and keys:
            texts = [fetched.texts[key].stored.text for key in keys]
            judgement = await self._parts.reranking.judge(call.query, texts, model=call.rerank_model, deadline=deadline)
        if judgement.reason:
            stage.degrade(judgement.reason)
        if judgement.scores is None:
            return Ranked(fetched=fetched, order=[(key, None) for key in keys], judged=False)
        scored = list(zip(keys, judgement.scores, strict=True))
        scored.sort(key=lambda entry: float("inf") if entry[1] is None else -entry[1].logit)  # stable: fused order
        return Ranked(fetched=fetched, order=scored, judged=True)


def _report_embedding(stage: Stage, vectors: Mapping[EmbeddingNeed, QueryVectors]) -> None:
    if not vectors:
        stage.skip()
    for found in vectors.values():
        if found.degraded:
            stage.degrade(f"{found.degraded}: searched by keyword only")
        elif found.truncated and stage.state is StageState.OK:
            stage.reason = "the query was cut to the model's input"


def _cut(ranked: Sequence[Ranked], *, with_dropped: bool) -> tuple[tuple[Passage, ...], tuple[Dropped, ...]]:
    """The results of each group: what passes the threshold, up to top_k."""
    passages: list[Passage] = []
    dropped: list[Dropped] = []
    for one in ranked:
        pool, group = one.fetched.pool, one.fetched.pool.group
        fine: list[tuple[str, RerankScore | None]] = []
        refused: list[tuple[str, RerankScore | None]] = []
        for key, score in one.order:
            passed = not one.judged or _passes(score, group.members[pool.hit(key)[0]].threshold)
            (fine if passed else refused).append((key, score))
        passages += [_passage(group, one.fetched, key, score) for key, score in fine[: group.top_k]]
        if with_dropped and len(dropped) < _MAX_DROPPED:
            dropped += [_dropped(pool, key, score, DropReason.THRESHOLD) for key, score in refused]
            dropped += [_dropped(pool, key, score, DropReason.CUT) for key, score in fine[group.top_k :]]
            dropped += _left_out(one.fetched)
    return tuple(passages), tuple(dropped[:_MAX_DROPPED])


def _passes(score: RerankScore | None, threshold: float) -> bool:
    """Off at 0. A passage that could not be judged has no probability that would pass."""
    return threshold <= 0 or (score is not None and score.probability >= threshold)


def _left_out(fetched: FetchedPool) -> list[Dropped]:
    """What did not come as far as the ranking."""
    pool, selection = fetched.pool, fetched.selection
    unread = [key for key in selection.kept if key not in fetched.texts]
    left = [(key, DropReason.DUPLICATE) for key in selection.duplicates]
    left += [(key, DropReason.VANISHED) for key in (*sorted(fetched.gone), *sorted(pool.late))]
    left += [(key, DropReason.CUT) for key in (*unread, *selection.cut)]
    return [_dropped(pool, key, None, reason) for key, reason in left]


def _passage(group: Group, fetched: FetchedPool, key: str, score: RerankScore | None) -> Passage:
    candidate, found = fetched.pool.candidate(key), fetched.texts[key]
    return Passage(
        knowledge_base_name=group.members[candidate.member].kb.name,
        stored=found.stored,
        document=found.document,
        fused_rank=candidate.fused_rank,
        scores=candidate.scores if score is None else replace(candidate.scores, rerank=score),
    )


def _dropped(pool: Pool, key: str, score: RerankScore | None, reason: DropReason) -> Dropped:
    candidate = pool.candidate(key)
    if score is not None:
        candidate = replace(candidate, scores=replace(candidate.scores, rerank=score))
    return Dropped(candidate=candidate, reason=reason)
