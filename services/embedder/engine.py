"""The embedder's one job: a batch of texts to the outputs asked for, with a report for each text."""

import asyncio
import time
from collections.abc import Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from services.common.clock import Deadline
from services.common.errors import Reason, ServiceError
from services.embedder.bm25 import Bm25Encoder
from services.embedder.models import BM25, ModelInfo, bm25_info
from services.embedder.types import EmbedCall, EmbedReply, SparseOutput, SparseRow, TextReport, Timing
from services.inference.cards import ModelCard
from services.inference.engine import EmbedOutcome, ItemReport
from services.inference.errors import EmptyInput, WrongModelKind
from services.inference.registry import ModelRegistry
from services.inference.types import InputType, Output

#: Texts up to this many characters together are analysed on the event loop: less than a thread costs.
_INLINE_CHARS = 2_000
_NO_ROW = SparseRow(indices=np.zeros(0, np.uint32), values=np.zeros(0, np.float32))


class EmbedderEngine:
    """Dense and learned sparse vectors come from models, BM25 from the analysis of terms; both at the same time."""

    def __init__(self, registry: ModelRegistry, bm25: Bm25Encoder) -> None:
        self._registry = registry
        self._bm25 = bm25

    async def start(self) -> None:
        """Fetch the configured models and load the default one, so that the first caller does not wait for it."""
        await self._registry.start()
        await self._registry.engine("")

    async def embed(self, call: EmbedCall, deadline: Deadline) -> EmbedReply:
        """Errors of the whole batch: MODEL_NOT_FOUND, WRONG_MODEL_KIND, OVERLOADED and the like; those of one text are
        in its report."""
        started = time.perf_counter()
        dense, sparse = await _both(self._dense(call, deadline), self._sparse(call, deadline))
        reports = tuple(_report(dense, sparse, row) for row in range(len(call.texts)))
        return EmbedReply(
            reports=reports,
            dense=dense.dense if dense else None,
            sparse=tuple(sparse.rows) if sparse else None,
            dense_model=self._registry.card(call.dense.model).name if call.dense else "",
            sparse_model=sparse.model if sparse else "",
            timing=_timing(dense, sparse, (time.perf_counter() - started) * 1000),
        )

    async def tokenize(self, model: str, texts: tuple[str, ...], input_type: InputType) -> list[list[int]]:
        """Ids of each text in full. Errors: MODEL_NOT_FOUND, WRONG_MODEL_KIND (bm25 has terms, not tokens)."""
        if model == BM25:
            raise WrongModelKind("bm25 has no tokens; name a dense or learned sparse model")
        return await (await self._registry.engine(model)).token_ids(texts, input_type=input_type)

    def tokenizer_file(self, sha256: str) -> Path:
        """tokenizer.json by its hash. Errors: TOKENIZER_NOT_FOUND."""
        for card, _ in self._registry.cards():
            if card.tokenizer_sha256 == sha256.lower():
                return self._registry.tokenizer_file(card)
        raise ServiceError(
            f"no model of this server has a tokenizer with sha256 {sha256[:64]!r}", reason=Reason.TOKENIZER_NOT_FOUND
        )

    def models(self) -> list[ModelInfo]:
        """The default dense model first, bm25 last."""
        cards = [
            ModelInfo(card=card, loaded=loaded, max_tokens=card.max_tokens) for card, loaded in self._registry.cards()
        ]
        return [*cards, bm25_info()]

    async def model(self, name: str) -> ModelInfo:
        """By name or alias; empty: the default dense model. Loads the model, so that its overhead is known."""
        if name == BM25:
            return bm25_info()
        engine = await self._registry.engine(name)
        overhead = len((await engine.token_ids([""], input_type=InputType.PASSAGE))[0])
        return ModelInfo(
            card=engine.card, loaded=True, max_tokens=engine.card.max_tokens, passage_overhead_tokens=overhead
        )

    async def ready(self) -> bool:
        """Whether a forward pass of the default model succeeds now."""
        return await self._registry.proves_healthy()

    async def aclose(self) -> None:
        await self._registry.aclose()

    async def _dense(self, call: EmbedCall, deadline: Deadline) -> EmbedOutcome | None:
        if call.dense is None:
            return None
        engine = await self._registry.engine(call.dense.model)
        return await engine.embed(
            call.texts, input_type=call.input_type, truncation=call.truncation, lane=call.lane, deadline=deadline
        )

    async def _sparse(self, call: EmbedCall, deadline: Deadline) -> "_Sparse | None":
        if call.sparse is None:
            return None
        if call.sparse.model in ("", BM25):
            analyse = partial(_bm25_rows, self._bm25, call.texts, call.input_type, call.sparse)
            inline = sum(map(len, call.texts)) <= _INLINE_CHARS
            return analyse() if inline else await asyncio.to_thread(analyse)
        engine = await self._registry.engine(call.sparse.model)
        outcome = await engine.embed(
            call.texts,
            outputs=frozenset({Output.SPARSE}),
            input_type=call.input_type,
            truncation=call.truncation,
            lane=call.lane,
            deadline=deadline,
        )
        return _Sparse.learned(engine.card, outcome)


class _Sparse:
    """Sparse rows with the reports and lengths that go with them."""

    def __init__(
        self, model: str, rows: list[SparseRow], items: Sequence[ItemReport], lengths: list[int], timing: Timing
    ) -> None:
        self.model = model
        self.rows = rows
        self.items = items
        self.lengths = lengths
        self.timing = timing

    @classmethod
    def learned(cls, card: ModelCard, outcome: EmbedOutcome) -> "_Sparse":
        rows = [SparseRow(indices=vector.indices, values=vector.values) for vector in outcome.sparse or ()]
        spent = outcome.timing
        timing = Timing(tokenize_ms=spent.tokenize_ms, queue_ms=spent.queue_ms, inference_ms=spent.inference_ms)
        return cls(card.name, rows, outcome.items, [0] * len(rows), timing)


def _bm25_rows(bm25: Bm25Encoder, texts: tuple[str, ...], input_type: InputType, asked: SparseOutput) -> _Sparse:
    started = time.perf_counter()
    rows: list[SparseRow] = []
    items: list[ItemReport] = []
    lengths: list[int] = []
    for text in texts:
        if not text.strip():
            rows.append(_NO_ROW)
            items.append(ItemReport(error=EmptyInput("the text is empty or only white space")))
            lengths.append(0)
            continue
        if input_type is InputType.QUERY:
            vector = bm25.query_vector(text, language=asked.language)
        else:
            vector = bm25.passage_vector(text, average_length=asked.bm25_average_length, language=asked.language)
        rows.append(SparseRow(indices=vector.indices, values=vector.values))
        items.append(ItemReport())
        lengths.append(vector.length)
    return _Sparse(BM25, rows, items, lengths, Timing(tokenize_ms=(time.perf_counter() - started) * 1000))


async def _both(
    dense: Coroutine[Any, Any, EmbedOutcome | None], sparse: Coroutine[Any, Any, _Sparse | None]
) -> tuple[EmbedOutcome | None, _Sparse | None]:
    """Run both at once. When one fails the other is cancelled, and its failure is raised as it is."""
    first, second = asyncio.ensure_future(dense), asyncio.ensure_future(sparse)
    try:
        return await first, await second
    finally:
        for task in (first, second):
            task.cancel()
        await asyncio.gather(first, second, return_exceptions=True)


def _report(dense: EmbedOutcome | None, sparse: _Sparse | None, row: int) -> TextReport:
    """One text failed if any of its outputs did."""
    items = [outcome.items[row] for outcome in (dense, sparse) if outcome is not None]
    return TextReport(
        error=next((item.error for item in items if item.error is not None), None),
        token_count=max(item.token_count for item in items),
        truncated=any(item.truncated for item in items),
        bm25_length=sparse.lengths[row] if sparse else 0,
    )


def _timing(dense: EmbedOutcome | None, sparse: _Sparse | None, total_ms: float) -> Timing:
    parts = [outcome.timing for outcome in (dense, sparse) if outcome is not None]
    return Timing(
        tokenize_ms=sum(part.tokenize_ms for part in parts),
        queue_ms=max(part.queue_ms for part in parts),
        inference_ms=max(part.inference_ms for part in parts),
        total_ms=total_ms,
    )
