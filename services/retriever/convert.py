"""The retriever's messages between the wire and the inside."""

import math
from collections.abc import Sequence
from datetime import datetime

from google.protobuf.timestamp_pb2 import Timestamp
from pergamon.retriever.v1 import retriever_pb2 as pb

from services.common.auth import Principal
from services.common.errors import NotFound, Reason
from services.common.validation import Violations, looks_like
from services.domain.blocks import BoundingBox
from services.domain.filters import Filter
from services.domain.ids import KnowledgeBaseId
from services.domain.scores import MatchedBy, PassageScores, RankedScore, RelevanceLabel, RerankScore, SearchMode
from services.retriever.convert_filter import FilterReader
from services.retriever.plan import MAX_CANDIDATES
from services.retriever.types import (
    Combination,
    Context,
    ContextCall,
    ContextFormat,
    Dropped,
    DropReason,
    Passage,
    SearchCall,
    SearchReply,
    StageReport,
    StageState,
)

MAX_QUERY_CHARS = 8_192
MAX_TOP_K = 100
MAX_KNOWLEDGE_BASES = 32
MAX_WEIGHT = 1_000.0
MAX_BUDGET_TOKENS = 100_000
MAX_BLOCKS = 50

_MODES: dict[int, SearchMode | None] = {
    pb.SEARCH_MODE_UNSPECIFIED: None,
    pb.SEARCH_MODE_HYBRID: SearchMode.HYBRID,
    pb.SEARCH_MODE_SEMANTIC: SearchMode.SEMANTIC,
    pb.SEARCH_MODE_KEYWORD: SearchMode.KEYWORD,
}
_COMBINATIONS: dict[int, Combination] = {
    pb.COMBINATION_UNSPECIFIED: Combination.ROUTED,
    pb.COMBINATION_ROUTED: Combination.ROUTED,
    pb.COMBINATION_MERGED: Combination.MERGED,
}
_RERANK: dict[int, bool | None] = {
    pb.RERANK_CHOICE_UNSPECIFIED: None,
    pb.RERANK_CHOICE_ON: True,
    pb.RERANK_CHOICE_OFF: False,
}
_FORMATS: dict[int, ContextFormat] = {
    pb.CONTEXT_FORMAT_UNSPECIFIED: ContextFormat.BLOCKS,
    pb.CONTEXT_FORMAT_BLOCKS: ContextFormat.BLOCKS,
    pb.CONTEXT_FORMAT_DOCUMENTS: ContextFormat.DOCUMENTS,
}
_LABELS = {
    RelevanceLabel.HIGH: pb.RELEVANCE_LABEL_HIGH,
    RelevanceLabel.MEDIUM: pb.RELEVANCE_LABEL_MEDIUM,
    RelevanceLabel.LOW: pb.RELEVANCE_LABEL_LOW,
}
_MATCHED = {
    MatchedBy.SEMANTIC: pb.MATCHED_BY_SEMANTIC,
    MatchedBy.KEYWORD: pb.MATCHED_BY_KEYWORD,
    MatchedBy.BOTH: pb.MATCHED_BY_BOTH,
}
_STATES = {
    StageState.OK: pb.STAGE_STATE_OK,
    StageState.SKIPPED: pb.STAGE_STATE_SKIPPED,
    StageState.DEGRADED: pb.STAGE_STATE_DEGRADED,
}
_DROPS = {
    DropReason.THRESHOLD: pb.DROP_REASON_THRESHOLD,
    DropReason.DUPLICATE: pb.DROP_REASON_DUPLICATE,
    DropReason.CUT: pb.DROP_REASON_CUT,
    DropReason.VANISHED: pb.DROP_REASON_VANISHED,
}


def search_in(request: pb.SearchRequest, principal: Principal) -> SearchCall:
    """Raises InvalidRequest with every violation (INVALID_FILTER where only the filter is wrong), NotFound for an id
    that no knowledge base can have."""
    found, in_filter = Violations(), Violations()
    call = _search(request, principal, found, in_filter, "")
    _raise(found, in_filter)
    return _existing(call)


def retrieve_in(request: pb.RetrieveRequest, principal: Principal) -> tuple[SearchCall, ContextCall]:
    """As `search_in`, with the violations of the context's fields too."""
    found, in_filter = Violations(), Violations()
    call = _search(request.search, principal, found, in_filter, "search.", for_context=True)
    context = _context(request, call, found)
    _raise(found, in_filter)
    return _existing(call), context


def _search(
    request: pb.SearchRequest,
    principal: Principal,
    found: Violations,
    in_filter: Violations,
    at: str,
    *,
    for_context: bool = False,
) -> SearchCall:
    _check_query(request.query, found, at)
    _check_knowledge_bases(request.knowledge_base_ids, found, at)
    _check_enums(request, found, at)
    _check_numbers(request, found, at)
    found.length(f"{at}rerank_model", request.rerank_model, 100)
    narrowed = FilterReader(in_filter).read(request.filter, f"{at}filter") if request.HasField("filter") else None
    filters: tuple[Filter, ...] = principal.filters if narrowed is None else (*principal.filters, narrowed)
    return SearchCall(
        tenant_id=principal.tenant_id,
        query=request.query,
        knowledge_base_ids=tuple(KnowledgeBaseId(kb_id) for kb_id in request.knowledge_base_ids),
        filters=filters,
        combination=_COMBINATIONS.get(request.combination, Combination.ROUTED),
        mode=_MODES.get(request.mode),
        top_k=request.top_k if request.HasField("top_k") else None,
        candidates=request.candidates if request.HasField("candidates") else None,
        rerank=_RERANK.get(request.rerank),
        rerank_model=request.rerank_model,
        threshold=request.similarity_threshold if request.HasField("similarity_threshold") else None,
        dense_weight=request.dense_weight if request.HasField("dense_weight") else None,
        bm25_weight=request.bm25_weight if request.HasField("bm25_weight") else None,
        include_dropped=request.include_dropped,
        for_context=for_context,
    )


def _check_query(query: str, found: Violations, at: str) -> None:
    if not query.strip():
        found.add(f"{at}query", "is empty or only white space")
    elif len(query) > MAX_QUERY_CHARS:
        found.add(f"{at}query", f"has {len(query)} characters, at most {MAX_QUERY_CHARS} are allowed")


def _check_knowledge_bases(ids: Sequence[str], found: Violations, at: str) -> None:
    field = f"{at}knowledge_base_ids"
    if not 1 <= len(ids) <= MAX_KNOWLEDGE_BASES:
        found.add(field, f"holds {len(ids)} ids, 1 to {MAX_KNOWLEDGE_BASES} are allowed")
    elif len(set(ids)) < len(ids):
        found.add(field, "holds an id twice")


def _check_enums(request: pb.SearchRequest, found: Violations, at: str) -> None:
    found.check(request.mode in _MODES, f"{at}mode", f"unknown value {request.mode}")
    found.check(request.combination in _COMBINATIONS, f"{at}combination", f"unknown value {request.combination}")
    found.check(request.rerank in _RERANK, f"{at}rerank", f"unknown value {request.rerank}")


def _check_numbers(request: pb.SearchRequest, found: Violations, at: str) -> None:
    top_k_fine = not request.HasField("top_k") or 1 <= request.top_k <= MAX_TOP_K
    found.check(top_k_fine, f"{at}top_k", f"is {request.top_k}, 1 to {MAX_TOP_K} is allowed")
    if request.HasField("candidates"):
        least = request.top_k if request.HasField("top_k") and top_k_fine else 1
        fine = least <= request.candidates <= MAX_CANDIDATES
        allowed = f"{least} (top_k)" if least > 1 else "1"
        problem = f"is {request.candidates}, {allowed} to {MAX_CANDIDATES} is allowed"
        found.check(fine, f"{at}candidates", problem)
    if request.HasField("similarity_threshold"):
        threshold = request.similarity_threshold
        fine = 0 <= threshold <= 1  # false for NaN
        found.check(fine, f"{at}similarity_threshold", f"is {threshold}, 0 to 1 is allowed")
    for name in ("dense_weight", "bm25_weight"):
        if request.HasField(name):
            weight: float = getattr(request, name)
            fine = math.isfinite(weight) and 0 < weight <= MAX_WEIGHT
            problem = f"is {weight}, must be above 0 and at most {MAX_WEIGHT:g}; to leave a list out, set mode"
            found.check(fine, f"{at}{name}", problem)


def _context(request: pb.RetrieveRequest, call: SearchCall, found: Violations) -> ContextCall:
    found.check(request.format in _FORMATS, "format", f"unknown value {request.format}")
    budget, blocks = request.budget_tokens, request.max_blocks
    found.check(budget <= MAX_BUDGET_TOKENS, "budget_tokens", f"is {budget}, at most {MAX_BUDGET_TOKENS} is allowed")
    found.check(blocks <= MAX_BLOCKS, "max_blocks", f"is {blocks}, at most {MAX_BLOCKS} is allowed")
    defaults = ContextCall()
    return ContextCall(
        format=_FORMATS.get(request.format, defaults.format),
        by_knowledge_base=call.combination is Combination.ROUTED and len(call.knowledge_base_ids) > 1,
        budget_tokens=budget or defaults.budget_tokens,
        max_blocks=blocks or defaults.max_blocks,
    )


def _raise(found: Violations, in_filter: Violations) -> None:
    only_filter = not found.found
    found.extend(in_filter.found)
    found.raise_if_any(Reason.INVALID_FILTER if only_filter else None)


def _existing(call: SearchCall) -> SearchCall:
    for kb_id in call.knowledge_base_ids:
        if not looks_like("kb", kb_id):
            raise NotFound.knowledge_base(kb_id)
    return call


def search_out(reply: SearchReply) -> pb.SearchResponse:
    return pb.SearchResponse(
        passages=[_passage_out(passage) for passage in reply.passages],
        stages=[_stage_out(report) for report in reply.stages],
        dropped=[_dropped_out(dropped) for dropped in reply.dropped],
        total_ms=reply.total_ms,
    )


def retrieve_out(reply: SearchReply, context: Context) -> pb.RetrieveResponse:
    return pb.RetrieveResponse(
        passages=[_passage_out(passage) for passage in reply.passages],
        context=pb.Context(
            text=context.text,
            token_count=context.token_count,
            passages=context.passages,
            omitted=context.omitted,
        ),
        stages=[_stage_out(report) for report in reply.stages],
        dropped=[_dropped_out(dropped) for dropped in reply.dropped],
        total_ms=reply.total_ms,
    )


def _passage_out(passage: Passage) -> pb.Passage:
    stored, document = passage.stored, passage.document
    metadata = document.metadata
    return pb.Passage(
        chunk_id=stored.point_id,
        text=stored.text,
        knowledge_base_id=stored.kb_id,
        document_id=stored.document_id,
        document_name=document.name,
        title=metadata.title,
        section=stored.section,
        first_page=stored.first_page or 0,
        last_page=stored.last_page or 0,
        boxes=[_box_out(box) for box in stored.boxes],
        start=stored.start,
        end=stored.end,
        ordinal=stored.ordinal,
        source_url=metadata.source_url,
        author=metadata.author,
        updated_time=_time_out(metadata.updated_time),
        document_version=stored.doc_version,
        scores=_scores_out(passage.scores, passage.fused_rank),
    )


def _box_out(box: BoundingBox) -> pb.BoundingBox:
    return pb.BoundingBox(page=box.page, x0=box.x0, y0=box.y0, x1=box.x1, y1=box.y1)


def _time_out(moment: datetime | None) -> Timestamp | None:
    if moment is None:
        return None
    stamp = Timestamp()
    stamp.FromDatetime(moment)
    return stamp


def _scores_out(scores: PassageScores, fused_rank: int) -> pb.PassageScores:
    return pb.PassageScores(
        dense=_ranked_out(scores.dense),
        bm25=_ranked_out(scores.bm25),
        fused=scores.fused,
        fused_rank=fused_rank,
        rerank=_rerank_out(scores.rerank),
        matched_by=_MATCHED[scores.matched_by],
    )


def _ranked_out(ranked: RankedScore | None) -> pb.RankedScore | None:
    return None if ranked is None else pb.RankedScore(rank=ranked.rank, score=ranked.score)


def _rerank_out(score: RerankScore | None) -> pb.RerankScore | None:
    if score is None:
        return None
    return pb.RerankScore(logit=score.logit, probability=score.probability, label=_LABELS[score.label])


def _stage_out(report: StageReport) -> pb.StageReport:
    return pb.StageReport(
        stage=report.stage,
        state=_STATES[report.state],
        reason=report.reason,
        duration_ms=report.duration_ms,
        candidates_in=report.candidates_in,
        candidates_out=report.candidates_out,
    )


def _dropped_out(dropped: Dropped) -> pb.DroppedPassage:
    candidate = dropped.candidate
    return pb.DroppedPassage(
        chunk_id=candidate.hit.point_id,
        document_id=candidate.hit.document_id,
        scores=_scores_out(candidate.scores, candidate.fused_rank),
        reason=_DROPS[dropped.reason],
    )
