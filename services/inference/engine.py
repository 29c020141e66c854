"""One model, ready to use: tokenise, batch, run, report. Services are thin over this."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from services.common.clock import Clock, Deadline
from services.common.errors import ServiceError
from services.inference.backend import Backend
from services.inference.batcher import Batcher, BatcherLimits, SubmitOutcome
from services.inference.cards import ModelCard
from services.inference.checkpoint import TOKENIZER_FILE
from services.inference.errors import WrongModelKind
from services.inference.loading import check_card, load_backends, probe, warm_up
from services.inference.observer import BatcherObserver, SilentObserver
from services.inference.settings import InferenceSettings
from services.inference.store import ModelStore
from services.inference.tokenizer import TextTokenizer, in_groups
from services.inference.types import (
    Encoded,
    FloatArray,
    InputType,
    ItemOutput,
    Lane,
    Output,
    Outputs,
    SparseVector,
    Truncation,
)

_T = TypeVar("_T")

#: Texts up to this many characters together are tokenised on the event loop: it takes less than handing it to a thread.
_INLINE_CHARS = 4_000
#: About so many are tokenised at a stretch: a few hundredths of a second.
_STRETCH_CHARS = 128 << 10
#: Up to this many it costs less to tokenise them than to ask twice whether there is room.
_ASK_FIRST_CHARS = 200
_CPU_BATCH_TOKENS, _GPU_BATCH_TOKENS = 2_048, 16_384
#: Ordinary text has half as many characters a token or fewer: a count that tells hopeless work before it is tokenised.
_MOST_CHARS_A_TOKEN = 8
_DENSE, _LOGIT = frozenset({Output.DENSE}), frozenset({Output.LOGIT})
_NOTHING = ItemOutput()
_NO_TERMS = SparseVector(indices=np.zeros(0, np.uint32), values=np.zeros(0, np.float32))


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceTiming:
    """Where the time of one call went, in milliseconds; queue and inference are those of its slowest item."""

    tokenize_ms: float
    queue_ms: float
    inference_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemReport:
    """One item: `error` set means no value. `token_count` is what the model saw, 0 if it never got that far.

    `original_token_count` is what a truncated text had in full, 0 where that was not counted.
    """

    error: ServiceError | None = None
    token_count: int = 0
    truncated: bool = False
    original_token_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EmbedOutcome:
    """The outputs asked for, in the order of the texts; the others are None.

    `dense` float32 [n, dimensions], unit length, zeros where the report has an error. `sparse` n vectors and
    `multi_vector` n matrices float32 [tokens, dimensions], empty there.
    """

    dense: FloatArray | None
    sparse: tuple[SparseVector, ...] | None
    multi_vector: tuple[FloatArray, ...] | None
    items: tuple[ItemReport, ...]
    timing: InferenceTiming


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RerankOutcome:
    """`logits[i]` is the raw score of passage i, NaN where `items[i]` has an error."""

    logits: tuple[float, ...]
    items: tuple[ItemReport, ...]
    timing: InferenceTiming


class InferenceEngine:
    """A loaded model with its queue. Use it on the event loop it was made on.

    All calls raise `Overloaded`, `DeadlineUnreachable`, `ShuttingDown` or `DeviceLost` before any work, and
    `WrongModelKind` when the model does not give what is asked. Whatever concerns one text alone (`EmptyInput`,
    `InputTooLong`, `InferenceFailed`, `DeadlineExceeded`) is in that item's report.
    """

    def __init__(
        self, card: ModelCard, tokenizer: TextTokenizer, backends: Sequence[Backend], batcher: Batcher, *,
        tokenizer_path: Path | None = None, observer: BatcherObserver | None = None,
    ) -> None:  # fmt: skip
        self.card = card
        self.tokenizer = tokenizer
        self.tokenizer_path = tokenizer_path
        self.batcher = batcher
        self._backends = backends
        self._observer: BatcherObserver = observer or SilentObserver()

    @classmethod
    async def load(
        cls, name: str, *, store: ModelStore, settings: InferenceSettings, clock: Clock,
        observer: BatcherObserver | None = None,
    ) -> "InferenceEngine":  # fmt: skip
        """Load a model of the store and prove it on a probe text. Raises `ModelNotAvailable`, `ModelInvalid`."""
        card, folder = await asyncio.to_thread(store.verified, name)
        streams = settings.cpu_streams
        backends = await asyncio.to_thread(partial(load_backends, settings, card, folder, cpu_streams=streams))
        try:
            tokenizer = await asyncio.to_thread(
                partial(TextTokenizer.load, folder / TOKENIZER_FILE, max_tokens=card.max_tokens)
            )
            await asyncio.to_thread(check_card, card, folder, tokenizer)
            limits = limits_for(settings, device=backends[0].device)
            seen: list[tuple[int, float]] = []
            for backend in backends:
                await asyncio.to_thread(probe, backend, tokenizer)
                seen += await asyncio.to_thread(warm_up, backend, tokenizer, limits.budget_tokens)
        except BaseException:
            for backend in backends:
                backend.close()
            raise
        batcher = Batcher(backends, limits=limits, clock=clock, observer=observer, known_passes=seen)
        return cls(card, tokenizer, backends, batcher, tokenizer_path=folder / TOKENIZER_FILE, observer=observer)

    @property
    def device(self) -> str:
        """Where it runs; several by comma."""
        return ",".join(backend.device for backend in self._backends)

    @property
    def precision(self) -> str:
        """What the backend computes in, as `bf16` or `f32`; empty where it does not say."""
        return str(getattr(self._backends[0], "precision", ""))

    @property
    def limits(self) -> BatcherLimits:
        return self.batcher.limits

    @property
    def healthy(self) -> bool:
        return self.batcher.healthy

    async def embed(
        self, texts: Sequence[str], *, input_type: InputType, truncation: Truncation, lane: Lane, deadline: Deadline,
        outputs: Outputs = _DENSE, prefix: str | None = None, client: str = "",
    ) -> EmbedOutcome:  # fmt: skip
        """`outputs` of `texts` in one pass, each text behind `prefix`, or behind the card's for `input_type` if None.

        Indices of sparse vectors are token ids of the model's vocabulary. Calls of different `client`s take turns.
        """
        self._require(outputs)
        before = self._prefix(input_type) if prefix is None else prefix
        encode = partial(self.tokenizer.encode, prefix=before, truncation=truncation)
        ended = await self._run(texts, encode, sum(map(len, texts)), outputs, lane, deadline, client)
        wants_multi = Output.MULTI_VECTOR in outputs
        return EmbedOutcome(
            dense=_matrix(ended.values, self.card.dimensions) if Output.DENSE in outputs else None,
            sparse=tuple(value.sparse or _NO_TERMS for value in ended.values) if Output.SPARSE in outputs else None,
            multi_vector=_matrices(ended.values, self.card.multi_vector_dimensions) if wants_multi else None,
            items=ended.items,
            timing=ended.timing,
        )

    async def rerank(
        self, query: str, passages: Sequence[str], *, truncation: Truncation, lane: Lane, deadline: Deadline,
        client: str = "",
    ) -> RerankOutcome:  # fmt: skip
        """Raw logits of (query, passage); truncation cuts the passage side only."""
        self._require(_LOGIT)
        encode = partial(self.tokenizer.encode_pairs, query, truncation=truncation)
        chars = sum(map(len, passages)) + len(query)
        ended = await self._run(passages, encode, chars, _LOGIT, lane, deadline, client)
        logits = tuple(float("nan") if value.logit is None else value.logit for value in ended.values)
        return RerankOutcome(logits=logits, items=ended.items, timing=ended.timing)

    async def token_ids(self, texts: Sequence[str], *, input_type: InputType) -> list[list[int]]:
        """What `Tokenize` answers: ids with prefix and special tokens, nothing cut, empty texts allowed."""
        encode = partial(self.tokenizer.token_ids, prefix=self._prefix(input_type))
        return encode(texts) if sum(map(len, texts)) <= _INLINE_CHARS else await _in_stretches(encode, texts)

    async def aclose(self) -> None:
        """End all work (waiting items with `ShuttingDown`) and release the device."""
        await self.batcher.aclose()
        for backend in self._backends:
            backend.close()

    async def _run(
        self, texts: Sequence[str], encode: Callable[[Sequence[str]], list[Encoded | ServiceError]], chars: int,
        outputs: Outputs, lane: Lane, deadline: Deadline, client: str,
    ) -> "_Ended":  # fmt: skip
        if chars > _ASK_FIRST_CHARS:  # refusals must cost little: when they are many, the event loop serves all others
            least = sum(min(len(text) // _MOST_CHARS_A_TOKEN, self.card.max_tokens) for text in texts)
            self.batcher.admit(lane, deadline, items=len(texts), tokens=least, client=client)
        started = time.perf_counter()
        encodings = encode(texts) if chars <= _INLINE_CHARS else await _in_stretches(encode, texts)
        tokenize_s = time.perf_counter() - started
        good = [encoding for encoding in encodings if isinstance(encoding, Encoded)]
        self._observer.tokenized(tokenize_s, sum(encoding.truncated for encoding in good))
        outcome = await self.batcher.submit(good, outputs=outputs, lane=lane, deadline=deadline, client=client)
        return _joined(encodings, outcome, tokenize_s * 1000)

    def _prefix(self, input_type: InputType) -> str:
        return self.card.prefix(query=input_type is InputType.QUERY)

    def _require(self, outputs: Outputs) -> None:
        if lacking := outputs - self.card.outputs:
            raise WrongModelKind(
                f"model {self.card.name!r} gives {_listed(self.card.outputs)}, asked for was {_listed(lacking)}: "
                "name a model that gives it",
                metadata={"model": self.card.name, "kind": str(self.card.kind)},
            )


async def _in_stretches(encode: Callable[[Sequence[str]], list[_T]], texts: Sequence[str]) -> list[_T]:
    """On a thread, a stretch at a time: texts of other calls come between, and a call that ends leaves the rest."""
    encodings: list[_T] = []
    for stretch in in_groups(texts, chars=_STRETCH_CHARS):
        encodings += await asyncio.to_thread(encode, stretch)
    return encodings


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Ended:
    values: tuple[ItemOutput, ...]
    items: tuple[ItemReport, ...]
    timing: InferenceTiming


def _joined(encodings: list[Encoded | ServiceError], outcome: SubmitOutcome, tokenize_ms: float) -> _Ended:
    """Put the outcomes of what reached the queue back among what did not."""
    computed = iter(outcome.outcomes)
    values: list[ItemOutput] = []
    items: list[ItemReport] = []
    for encoding in encodings:
        result = next(computed) if isinstance(encoding, Encoded) else encoding
        error = result if isinstance(result, ServiceError) else None
        values.append(_NOTHING if isinstance(result, ServiceError) else result)
        if isinstance(encoding, Encoded):
            items.append(
                ItemReport(
                    error=error,
                    token_count=encoding.token_count,
                    truncated=encoding.truncated,
                    original_token_count=encoding.original_token_count,
                )
            )
        else:
            items.append(ItemReport(error=error))
    timing = InferenceTiming(
        tokenize_ms=tokenize_ms, queue_ms=outcome.queue_s * 1000, inference_ms=outcome.inference_s * 1000
    )
    return _Ended(values=tuple(values), items=tuple(items), timing=timing)


def _matrix(values: Sequence[ItemOutput], dimensions: int) -> FloatArray:
    matrix = np.zeros((len(values), dimensions), np.float32)
    for row, value in enumerate(values):
        if value.dense is not None:
            matrix[row] = value.dense
    return matrix


def _matrices(values: Sequence[ItemOutput], dimensions: int) -> tuple[FloatArray, ...]:
    nothing = np.zeros((0, dimensions), np.float32)
    return tuple(nothing if value.multi_vector is None else value.multi_vector for value in values)


def _listed(outputs: Outputs) -> str:
    return ", ".join(sorted(outputs))


def limits_for(settings: InferenceSettings, *, device: str) -> BatcherLimits:
    default = _GPU_BATCH_TOKENS if device.startswith("cuda") else _CPU_BATCH_TOKENS
    return BatcherLimits(
        budget_tokens=settings.max_batch_tokens or default,
        max_batch_items=settings.max_batch_items,
        bulk_every_passes=settings.bulk_every_passes,
        bulk_pass_seconds=settings.bulk_pass_seconds,
        max_backlog_seconds=settings.max_backlog_seconds,
        max_queued_items=settings.max_queued_items,
        close_timeout_seconds=settings.close_timeout_seconds,
    )
