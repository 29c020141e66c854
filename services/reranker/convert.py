"""The reranker's messages between the wire and the inside."""

import re

from pergamon.reranker.v1 import reranker_pb2 as pb
from pergamon.type.v1 import model_pb2

from services.common.errors import FieldViolation, InvalidRequest, Reason
from services.common.status import item_error
from services.common.validation import Violations, require_room
from services.domain.scores import RelevanceLabel
from services.inference.cards import ModelCard
from services.inference.types import Lane
from services.reranker.types import RerankCall, RerankReply, ScoredPassage

_MAX_QUERY_CHARS = 32_768
#: What a message of a stream adds to a response.
_FRAME_BYTES = 4_096
#: An ISO 639 code, alone or at the head of a tag as browsers send it.
_LANGUAGE_TAG = re.compile(r"([A-Za-z]{2,3})(?:[-_][A-Za-z0-9]{1,8}){0,6}")
_LANES = {
    pb.PRIORITY_UNSPECIFIED: Lane.INTERACTIVE,
    pb.PRIORITY_INTERACTIVE: Lane.INTERACTIVE,
    pb.PRIORITY_BULK: Lane.BULK,
}
_CUTS = {
    pb.LONG_TEXT_POLICY_UNSPECIFIED: True,
    pb.LONG_TEXT_POLICY_CUT: True,
    pb.LONG_TEXT_POLICY_FAIL: False,
}
_LABELS = {
    RelevanceLabel.HIGH: pb.RELEVANCE_LABEL_HIGH,
    RelevanceLabel.MEDIUM: pb.RELEVANCE_LABEL_MEDIUM,
    RelevanceLabel.LOW: pb.RELEVANCE_LABEL_LOW,
}


def rerank_in(request: pb.RerankRequest, *, max_passages: int) -> RerankCall:
    """Raises InvalidRequest: EMPTY_INPUT for a query without text, BATCH_TOO_LARGE, or with every violation."""
    if not request.query.strip():
        raise InvalidRequest.of(
            FieldViolation(field="query", description="is empty or only white space"), reason=Reason.EMPTY_INPUT
        )
    if len(request.passages) > max_passages:
        raise InvalidRequest.of(
            FieldViolation(
                field="passages", description=f"holds {len(request.passages)}, at most {max_passages} are allowed"
            ),
            reason=Reason.BATCH_TOO_LARGE,
        )
    found = Violations()
    found.check(len(request.passages) > 0, "passages", "is empty; send at least one passage")
    found.length("query", request.query, _MAX_QUERY_CHARS)
    lane = _LANES.get(request.priority)
    cut_passages, cut_query = _CUTS.get(request.long_passages), _CUTS.get(request.long_query)
    found.check(lane is not None, "priority", f"unknown value {request.priority}")
    found.check(cut_passages is not None, "long_passages", f"unknown value {request.long_passages}")
    found.check(cut_query is not None, "long_query", f"unknown value {request.long_query}")
    language = _LANGUAGE_TAG.fullmatch(request.language)
    if request.language:
        found.check(language is not None, "language", f"is {request.language[:40]!r}, not an ISO 639-1 code such as en")
    else:
        found.check(not request.require_language, "language", "is required with require_language")
    found.raise_if_any()
    return RerankCall(
        model=request.model,
        query=request.query,
        passages=tuple(request.passages),
        top_n=request.top_n,
        return_text=request.return_text,
        lane=lane or Lane.INTERACTIVE,
        cut_passages=cut_passages is not False,
        cut_query=cut_query is not False,
        language=language[1].lower() if language else "",
        require_language=request.require_language,
    )


def rerank_out(call: RerankCall, reply: RerankReply, *, max_bytes: int) -> pb.RerankResponse:
    """Raises MESSAGE_TOO_LARGE for a reply that could not be sent."""
    response = pb.RerankResponse(
        scores=[_score_out(scored, call) for scored in reply.scores],
        failures=[pb.RerankFailure(index=failed.index, error=item_error(failed.error)) for failed in reply.failures],
        model=reply.model,
        token_count=reply.token_count,
        timing=model_pb2.InferenceTiming(
            tokenize_ms=reply.tokenize_ms,
            queue_ms=reply.queue_ms,
            inference_ms=reply.inference_ms,
            total_ms=reply.total_ms,
        ),
        query_truncated=reply.query_truncated,
        language_unsupported=reply.language_unsupported,
    )
    require_room(response.ByteSize() + _FRAME_BYTES, max_bytes)
    return response


def model_out(card: ModelCard, *, loaded: bool) -> model_pb2.Model:
    return model_pb2.Model(
        name=card.name,
        aliases=card.aliases,
        kind=model_pb2.MODEL_KIND_RERANKER,
        max_tokens=card.max_tokens,
        languages=card.languages,
        high_logit=card.high_logit,
        medium_logit=card.medium_logit,
        licence=card.licence,
        source=card.source,
        weights_sha256=card.sha256,
        tokenizer_sha256=card.tokenizer_sha256,
        loaded=loaded,
    )


def _score_out(scored: ScoredPassage, call: RerankCall) -> pb.RerankScore:
    return pb.RerankScore(
        index=scored.index,
        logit=scored.score.logit,
        probability=scored.score.probability,
        label=_LABELS[scored.score.label],
        truncated=scored.truncated,
        text=call.passages[scored.index] if call.return_text else "",
    )
