"""Knowledge bases between the wire and the catalogue."""

import math
from dataclasses import replace
from datetime import datetime

from google.protobuf.timestamp_pb2 import Timestamp
from pergamon.ingestor.v1 import knowledge_base_pb2 as pb

from services.catalog.types import KnowledgeBase, KnowledgeBaseChange, RetrievalDefaults
from services.common.errors import FieldViolation, InvalidRequest, Reason, ServiceError
from services.common.validation import Violations
from services.domain.chunks import Chunking, ChunkUnit
from services.domain.scores import SearchMode
from services.ingestor.types import NewKnowledgeBase

_MAX_LABELS = 64
_UNITS = {
    pb.CHUNK_UNIT_UNSPECIFIED: ChunkUnit.WORDS,
    pb.CHUNK_UNIT_WORDS: ChunkUnit.WORDS,
    pb.CHUNK_UNIT_TOKENS: ChunkUnit.TOKENS,
}
_MODES = {
    pb.SEARCH_MODE_UNSPECIFIED: SearchMode.HYBRID,
    pb.SEARCH_MODE_HYBRID: SearchMode.HYBRID,
    pb.SEARCH_MODE_SEMANTIC: SearchMode.SEMANTIC,
    pb.SEARCH_MODE_KEYWORD: SearchMode.KEYWORD,
}
_DEFAULT_SIZES = {ChunkUnit.WORDS: (400, 40), ChunkUnit.TOKENS: (512, 64)}
_RETRIEVAL_FIELDS = tuple(field.name for field in pb.RetrievalDefaults.DESCRIPTOR.fields)
_MUTABLE = ("name", "description", "labels", "retrieval", *(f"retrieval.{name}" for name in _RETRIEVAL_FIELDS))
_IMMUTABLE = ("embedding_model", "sparse_model", "chunking", "language")


def new_knowledge_base(request: pb.CreateKnowledgeBaseRequest) -> NewKnowledgeBase:
    message = request.knowledge_base
    found = Violations()
    _check_texts(found, message)
    found.request_id("request_id", request.request_id)
    found.check(
        message.language == ""
        or (message.language.isalpha() and message.language.islower() and len(message.language) == 2),
        "knowledge_base.language",
        "must be a two-letter code of ISO 639-1, as en or zh",
    )
    chunking = _chunking(found, message.chunking)
    retrieval = _retrieval(found, message.retrieval)
    found.raise_if_any()
    return NewKnowledgeBase(
        name=message.name.strip(),
        description=message.description,
        chunking=chunking,
        retrieval=retrieval,
        embedding_model=message.embedding_model,
        sparse_model=message.sparse_model,
        language=message.language,
        labels=dict(message.labels),
        request_id=request.request_id,
    )


def change(request: pb.UpdateKnowledgeBaseRequest, current: KnowledgeBase) -> KnowledgeBaseChange:
    """The change that the mask describes, on top of `current`."""
    paths = list(request.update_mask.paths)
    if not paths:
        raise InvalidRequest.of(
            FieldViolation(field="update_mask", description=f"is empty; name fields of: {', '.join(_MUTABLE[:4])}")
        )
    for path in paths:
        if path.split(".")[0] in _IMMUTABLE:
            raise ServiceError(
                f"{path} cannot change after creation; create another knowledge base",
                reason=Reason.IMMUTABLE_FIELD,
                metadata={"field": path},
            )
        if path not in _MUTABLE:
            raise InvalidRequest.of(
                FieldViolation(
                    field="update_mask", description=f"unknown path {path!r}; allowed are {', '.join(_MUTABLE[:4])}"
                ),
                reason=Reason.UNKNOWN_FIELD_MASK_PATH,
            )
    message = request.knowledge_base
    found = Violations()
    _check_texts(found, message, only=frozenset(paths))
    asked = _retrieval(found, message.retrieval)
    found.raise_if_any()
    retrieval = asked if "retrieval" in paths else _merged(current.retrieval, asked, paths)
    return KnowledgeBaseChange(
        name=message.name.strip() if "name" in paths else None,
        description=message.description if "description" in paths else None,
        labels=dict(message.labels) if "labels" in paths else None,
        retrieval=retrieval if any(path.startswith("retrieval") for path in paths) else None,
    )


def knowledge_base_out(kb: KnowledgeBase) -> pb.KnowledgeBase:
    stats = kb.statistics
    return pb.KnowledgeBase(
        id=kb.id,
        name=kb.name,
        description=kb.description,
        chunking=pb.Chunking(
            strategy=pb.CHUNKING_STRATEGY_STANDARD,
            unit=pb.CHUNK_UNIT_TOKENS if kb.chunking.unit is ChunkUnit.TOKENS else pb.CHUNK_UNIT_WORDS,
            size=kb.chunking.size,
            overlap=kb.chunking.overlap,
            min_size=kb.chunking.min_size,
            effective_size=kb.effective_chunk_size,
        ),
        retrieval=pb.RetrievalDefaults(
            mode=_mode_out(kb.retrieval.mode),
            result_count=kb.retrieval.result_count,
            candidates=kb.retrieval.candidates,
            dense_weight=kb.retrieval.dense_weight,
            bm25_weight=kb.retrieval.bm25_weight,
            rerank=kb.retrieval.rerank,
            similarity_threshold=kb.retrieval.threshold,
        ),
        embedding_model=kb.embedding_model,
        sparse_model=kb.sparse_model,
        language=kb.language,
        labels=kb.labels,
        created_time=timestamp(kb.created_time),
        updated_time=timestamp(kb.updated_time),
        statistics=pb.KnowledgeBaseStatistics(
            documents=sum(stats.documents.values()),
            documents_by_state={state.value: count for state, count in stats.documents.items()},
            chunks=stats.chunk_count,
            tokens=stats.token_count,
            bytes=stats.size_bytes,
        ),
    )


def timestamp(moment: datetime) -> Timestamp:
    stamp = Timestamp()
    stamp.FromDatetime(moment)
    return stamp


def _check_texts(found: Violations, message: pb.KnowledgeBase, only: frozenset[str] | None = None) -> None:
    def wanted(field: str) -> bool:
        return only is None or field in only

    if wanted("name"):
        found.length("knowledge_base.name", message.name.strip(), 200, least=1)
    if wanted("description"):
        found.length("knowledge_base.description", message.description, 2000)
    if wanted("labels"):
        found.check(len(message.labels) <= _MAX_LABELS, "knowledge_base.labels", f"more than {_MAX_LABELS} labels")
        for key, value in message.labels.items():
            found.length(f"knowledge_base.labels[{key[:40]!r}]", key, 63, least=1)
            found.length(f"knowledge_base.labels[{key[:40]!r}]", value, 1000)


def _chunking(found: Violations, message: pb.Chunking) -> Chunking:
    unit = _UNITS.get(message.unit)
    if unit is None:
        found.add("knowledge_base.chunking.unit", f"unknown value {message.unit}")
        unit = ChunkUnit.WORDS
    if message.strategy not in (pb.CHUNKING_STRATEGY_UNSPECIFIED, pb.CHUNKING_STRATEGY_STANDARD):
        found.add("knowledge_base.chunking.strategy", f"unknown value {message.strategy}")
    default_size, default_overlap = _DEFAULT_SIZES[unit]
    size = message.size or default_size
    overlap = message.overlap if message.HasField("overlap") else min(default_overlap, size // 10)
    min_size = message.min_size if message.HasField("min_size") else min(50, size)
    found.check(size <= 100_000, "knowledge_base.chunking.size", f"is {size}, at most 100000 is allowed")
    found.check(overlap < size, "knowledge_base.chunking.overlap", f"is {overlap}, must be less than size ({size})")
    found.check(min_size <= size, "knowledge_base.chunking.min_size", f"is {min_size}, must be at most size ({size})")
    return Chunking(unit=unit, size=size, overlap=overlap, min_size=min_size)


def _retrieval(found: Violations, message: pb.RetrievalDefaults) -> RetrievalDefaults:
    where = "knowledge_base.retrieval"
    mode = _MODES.get(message.mode)
    if mode is None:
        found.add(f"{where}.mode", f"unknown value {message.mode}")
        mode = SearchMode.HYBRID
    found.check(message.result_count <= 100, f"{where}.result_count", "must be at most 100")
    found.check(message.candidates <= 200, f"{where}.candidates", "must be at most 200")
    threshold = message.similarity_threshold
    found.check(0 <= threshold <= 1, f"{where}.similarity_threshold", f"is {threshold}, must be 0 to 1")
    dense = message.dense_weight if message.HasField("dense_weight") else 1.0
    bm25 = message.bm25_weight if message.HasField("bm25_weight") else 1.0
    for field, weight in (("dense_weight", dense), ("bm25_weight", bm25)):
        fine = math.isfinite(weight) and 0 <= weight <= 1000
        found.check(fine, f"{where}.{field}", f"is {weight}, must be 0 to 1000")
    found.check(dense > 0 or bm25 > 0, f"{where}.dense_weight", "both weights are 0; one must be greater")
    return RetrievalDefaults(
        mode=mode,
        result_count=message.result_count or 12,
        candidates=message.candidates or 50,
        dense_weight=dense,
        bm25_weight=bm25,
        rerank=message.rerank,
        threshold=threshold,
    )


def _merged(current: RetrievalDefaults, asked: RetrievalDefaults, paths: list[str]) -> RetrievalDefaults:
    names = {"similarity_threshold": "threshold"}
    fields = [names.get(field, field) for field in (path.removeprefix("retrieval.") for path in paths)]
    new = {field: getattr(asked, field) for field in fields if hasattr(asked, field)}
    return replace(current, **new)


def _mode_out(mode: SearchMode) -> pb.SearchMode.ValueType:
    return {
        SearchMode.HYBRID: pb.SEARCH_MODE_HYBRID,
        SearchMode.SEMANTIC: pb.SEARCH_MODE_SEMANTIC,
        SearchMode.KEYWORD: pb.SEARCH_MODE_KEYWORD,
    }[mode]
