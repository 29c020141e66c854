"""From a request and the settings of its knowledge bases to what will be done. No input or output here."""

import struct
from dataclasses import dataclass

from services.catalog.types import RetrievalDefaults, SearchedKnowledgeBase, SearchSnapshot
from services.common.errors import FieldViolation, InvalidRequest
from services.domain.scores import SearchMode
from services.index.schema import CollectionSchema
from services.retriever.types import Combination, EmbeddingNeed, SearchCall

#: Candidates of each ranked list. Never depends on top_k, so that a shorter result is the start of a longer one.
LIST_CANDIDATES = 150
MAX_CANDIDATES = 200
_RERANK_FACTOR = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One knowledge base of a group, and how it is searched."""

    kb: SearchedKnowledgeBase
    schema: CollectionSchema
    need: EmbeddingNeed
    dense_weight: float
    bm25_weight: float
    threshold: float
    list_limit: int

    @property
    def empty(self) -> bool:
        """Nothing was live in it when the snapshot was taken, so nothing may be found."""
        return self.kb.index.chunk_count == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Knowledge bases whose candidates compete: one with ROUTED, all with MERGED."""

    members: tuple[Member, ...]
    top_k: int
    candidates: int
    rerank: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    groups: tuple[Group, ...]

    @property
    def needs(self) -> frozenset[EmbeddingNeed]:
        return frozenset(member.need for group in self.groups for member in group.members if not member.empty)


def plan_search(call: SearchCall, snapshot: SearchSnapshot) -> Plan:
    """Raises InvalidRequest when top_k exceeds the candidates of a group."""
    bases = snapshot.knowledge_bases
    if call.combination is Combination.MERGED:
        return Plan(groups=(_group(call, bases),))
    return Plan(groups=tuple(_group(call, (kb,)) for kb in bases))


def _group(call: SearchCall, bases: tuple[SearchedKnowledgeBase, ...]) -> Group:
    rerank = call.rerank if call.rerank is not None else any(kb.retrieval.rerank for kb in bases)
    candidates = call.candidates or max(_candidates(kb.retrieval, rerank=rerank) for kb in bases)
    top_k = _top_k(call, bases, candidates)
    members = tuple(_member(call, kb, candidates) for kb in bases)
    return Group(members=members, top_k=top_k, candidates=candidates, rerank=rerank)


def _candidates(defaults: RetrievalDefaults, *, rerank: bool) -> int:
    wanted = max(defaults.candidates, _RERANK_FACTOR * defaults.result_count) if rerank else defaults.candidates
    return min(wanted, MAX_CANDIDATES)


def _top_k(call: SearchCall, bases: tuple[SearchedKnowledgeBase, ...], candidates: int) -> int:
    if call.top_k is None:
        stored = max(kb.retrieval.result_count if call.for_context else kb.retrieval.top_k for kb in bases)
        return min(stored, candidates)
    if call.top_k > candidates:
        problem = f"is {call.top_k}, but only {candidates} candidates go on; ask for fewer, or set candidates"
        raise InvalidRequest.of(FieldViolation(field="top_k", description=problem))
    return call.top_k


def _member(call: SearchCall, kb: SearchedKnowledgeBase, candidates: int) -> Member:
    defaults = kb.retrieval
    dense_weight = defaults.dense_weight if call.dense_weight is None else call.dense_weight
    bm25_weight = defaults.bm25_weight if call.bm25_weight is None else call.bm25_weight
    mode = _effective(call.mode or _stored_mode(defaults), dense_weight, bm25_weight)
    return Member(
        kb=kb,
        schema=CollectionSchema(
            model=kb.embedding_model,
            dimensions=kb.index.dimensions,
            tokenizer_version=kb.index.tokenizer_version,
        ),
        need=EmbeddingNeed(
            dense_model=None if mode is SearchMode.KEYWORD else kb.embedding_model,
            sparse_model=None if mode is SearchMode.SEMANTIC else kb.sparse_model,
            tokenizer_version=kb.index.tokenizer_version,
            language="" if mode is SearchMode.SEMANTIC else kb.language,
        ),
        # A list that is alone has a weight, whatever the fusion would have given it.
        dense_weight=dense_weight or 1.0,
        bm25_weight=bm25_weight or 1.0,
        # In the precision of the probability that it is compared with and that is shown.
        threshold=_as_f32(defaults.threshold if call.threshold is None else call.threshold),
        list_limit=max(LIST_CANDIDATES, candidates),
    )


def _stored_mode(defaults: RetrievalDefaults) -> SearchMode:
    return SearchMode.SEMANTIC if defaults.mode is SearchMode.HYBRID and not defaults.fusion else defaults.mode


def _effective(mode: SearchMode, dense_weight: float, bm25_weight: float) -> SearchMode:
    """A list of weight 0 is not asked for."""
    if mode is not SearchMode.HYBRID or (dense_weight > 0 and bm25_weight > 0):
        return mode
    return SearchMode.SEMANTIC if dense_weight > 0 else SearchMode.KEYWORD


def _as_f32(value: float) -> float:
    rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return rounded
