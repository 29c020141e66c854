"""The embedder's one job: a batch of texts to the outputs asked for, with a report for each text."""

import asyncio
import time
from collections.abc import Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from services.common.clock import Deadline
from services.common.errors import FieldViolation, InvalidRequest, Reason, ServiceError
from services.embedder.bm25 import Bm25Encoder
from services.embedder.dense import row_bytes
from services.embedder.models import BM25, ModelInfo, bm25_info
from services.embedder.parts import Part, bm25_part, merged, model_part
from services.embedder.types import EmbedCall, EmbedReply, Timing, Warned
from services.inference.cards import ModelCard
from services.inference.engine import InferenceEngine
from services.inference.errors import InputTooLong, ModelRequired, WrongModelKind
from services.inference.registry import ModelRegistry
from services.inference.tokenizer import CHARS_PER_TOKEN_MAX, TextTokenizer
from services.inference.types import InputType, Output

#: Texts up to this many characters together are analysed on the event loop: less than a thread costs.
_INLINE_CHARS = 2_000
#: A character is at most four pieces of a vocabulary of bytes.
_MOST_TOKENS_A_CHAR = 4
_LEAST_BYTES_AN_ELEMENT = 0.5


class EmbedderEngine:
    """Dense, learned sparse and multi-vectors come from models, those of one model in one pass; BM25 comes from the
    analysis of terms. All at the same time."""

    def __init__(self, registry: ModelRegistry, bm25: Bm25Encoder, *, max_reply_bytes: int = 64 << 20) -> None:
        self._registry = registry
        self._bm25 = bm25
        self._max_reply_bytes = max_reply_bytes
        self._overheads: dict[tuple[str, str], int] = {}

    async def start(self) -> None:
        """Fetch the configured models and load those that are to be ready before the first caller comes."""
        await self._registry.start()

    async def embed(self, call: EmbedCall, deadline: Deadline, *, client: str = "") -> EmbedReply:
        """Errors of the whole batch: those of the registry, WRONG_MODEL_KIND, INVALID_REQUEST (dimensions), OVERLOADED
        and the like; those of one text are in its report. Calls of different `client`s take turns."""
        started = time.perf_counter()
        plan = self._plan(call)
        work = [self._part(name, frozenset(outputs), call, deadline, client) for name, outputs in plan.items()]
        if call.sparse is not None and call.sparse.model in ("", BM25):
            work.append(self._terms(call))
        part = merged(await _together(work))
        names = {output: name for name, outputs in plan.items() for output in outputs}
        timing = part.timing
        return EmbedReply(
            reports=part.reports,
            dense=part.dense,
            sparse=part.sparse,
            multi_vector=part.multi_vector,
            dense_model=names.get(Output.DENSE, ""),
            sparse_model=names.get(Output.SPARSE, BM25 if call.sparse is not None else ""),
            multi_vector_model=names.get(Output.MULTI_VECTOR, ""),
            warnings=self._warnings(call),
            timing=Timing(
                tokenize_ms=timing.tokenize_ms,
                queue_ms=timing.queue_ms,
                inference_ms=timing.inference_ms,
                total_ms=(time.perf_counter() - started) * 1000,
            ),
        )

    async def tokenize(self, model: str, texts: tuple[str, ...], input_type: InputType) -> list[list[int]]:
        """Ids of each text in full. Errors: MODEL_NOT_FOUND, WRONG_MODEL_KIND (bm25 has terms, not tokens)."""
        if model == BM25:
            raise WrongModelKind("bm25 has no tokens; name a dense or learned sparse model")
        async with self._registry.using(model) as engine:
            return await engine.token_ids(texts, input_type=input_type)

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
        """By name or alias; empty: the default dense model. Its weights need not be loaded for that."""
        return bm25_info() if name == BM25 else await self._info(self._registry.card(name))

    async def load(self, name: str) -> ModelInfo:
        """Errors: those of `ModelRegistry.load`."""
        return bm25_info() if name == BM25 else await self._info(await self._registry.load(name))

    async def unload(self, name: str) -> ModelInfo:
        """Errors: those of `ModelRegistry.unload`."""
        if name == BM25:
            raise ModelRequired("bm25 is built in and cannot be unloaded", metadata={"model": BM25})
        return await self._info(await self._registry.unload(name))

    async def ready(self) -> bool:
        """Whether a forward pass of every loaded model succeeds now."""
        return await self._registry.proves_healthy()

    async def aclose(self) -> None:
        await self._registry.aclose()

    def _plan(self, call: EmbedCall) -> dict[str, set[Output]]:
        """Which model is to give what, by the names of the cards. Refuses dimensions that a model has not."""
        plan: dict[str, set[Output]] = {}
        if call.dense is not None:
            card = self._registry.card(call.dense.model)
            if call.dense.dimensions > card.dimensions:
                said = f"is {call.dense.dimensions}; vectors of model {card.name!r} have {card.dimensions}"
                raise InvalidRequest.of(FieldViolation(field="dense.dimensions", description=said))
            plan.setdefault(card.name, set()).add(Output.DENSE)
        if call.sparse is not None and call.sparse.model not in ("", BM25):
            plan.setdefault(self._registry.card(call.sparse.model).name, set()).add(Output.SPARSE)
        if call.multi_vector is not None:
            plan.setdefault(self._registry.card(call.multi_vector.model).name, set()).add(Output.MULTI_VECTOR)
        return plan

    async def _part(
        self, name: str, outputs: frozenset[Output], call: EmbedCall, deadline: Deadline, client: str
    ) -> Part:
        async with self._registry.using(name) as engine:
            if call.instruction is not None:
                _check_instruction(engine, call.instruction)
            if Output.MULTI_VECTOR in outputs and Output.MULTI_VECTOR in engine.card.outputs:
                await self._check_size(engine, call)
            outcome = await engine.embed(
                call.texts,
                outputs=outputs,
                input_type=call.input_type,
                truncation=call.truncation,
                lane=call.lane,
                deadline=deadline,
                prefix=call.instruction,
                client=client,
            )
        dimensions = call.dense.dimensions if call.dense is not None else 0
        return model_part(outcome, dimensions=dimensions if dimensions < engine.card.dimensions else 0)

    async def _terms(self, call: EmbedCall) -> Part:
        assert call.sparse is not None
        analyse = partial(bm25_part, self._bm25, call, call.sparse)
        inline = sum(map(len, call.texts)) <= _INLINE_CHARS
        return analyse() if inline else await asyncio.to_thread(analyse)

    def _warnings(self, call: EmbedCall) -> tuple[Warned, ...]:
        if call.dense is None or not call.dense.dimensions:
            return ()
        card = self._registry.card(call.dense.model)
        claimed = (card.dimensions, *card.matryoshka_dimensions)
        return () if call.dense.dimensions in claimed else (Warned.DIMENSIONS_NOT_CLAIMED,)

    async def _check_size(self, engine: InferenceEngine, call: EmbedCall) -> None:
        """Refuse vectors of tokens that no reply could carry, before they are computed.

        Elements of less than half a byte count as half a byte: in work they are larger.
        """
        assert call.multi_vector is not None
        card, wide = engine.card, engine.card.multi_vector_dimensions
        a_token = max(row_bytes(wide, call.multi_vector.data_type), int(wide * _LEAST_BYTES_AN_ELEMENT))
        overhead = 64 + len(call.instruction or card.prefix(query=call.input_type is InputType.QUERY))
        most = sum(min(len(text) * _MOST_TOKENS_A_CHAR + overhead, card.max_tokens) for text in call.texts)
        if most * a_token <= self._max_reply_bytes:
            return
        capped = [text[: card.max_tokens * CHARS_PER_TOKEN_MAX] for text in call.texts]
        prefix = call.instruction or ""
        ids = await asyncio.to_thread(engine.tokenizer.token_ids, capped, prefix=prefix)
        tokens = sum(min(len(row), card.max_tokens) for row in ids)
        if tokens * a_token > self._max_reply_bytes:
            raise ServiceError(
                f"the vectors of {tokens} tokens would take {tokens * a_token >> 20} MiB, a reply carries at most "
                f"{self._max_reply_bytes >> 20} MiB: send fewer texts a call, or ask for a smaller data type",
                reason=Reason.MESSAGE_TOO_LARGE,
            )

    async def _info(self, card: ModelCard) -> ModelInfo:
        key = (card.name, card.tokenizer_sha256)
        if key not in self._overheads:
            count = partial(_overhead_tokens, self._registry.tokenizer_file(card), card)
            self._overheads[key] = await asyncio.to_thread(count)
        return ModelInfo(
            card=card,
            loaded=self._registry.is_loaded(card),
            max_tokens=card.max_tokens,
            passage_overhead_tokens=self._overheads[key],
        )


def _overhead_tokens(tokenizer_file: Path, card: ModelCard) -> int:
    """Tokens of a passage without text: prefix and special tokens."""
    tokenizer = TextTokenizer.load(tokenizer_file, max_tokens=card.max_tokens)
    return len(tokenizer.token_ids([""], prefix=card.passage_prefix)[0])


def _check_instruction(engine: InferenceEngine, instruction: str) -> None:
    tokens = len(engine.tokenizer.token_ids([""], prefix=instruction)[0])
    most = engine.card.max_tokens // 2
    if tokens > most:
        raise InputTooLong(
            f"the instruction has {tokens} tokens; it may have {most}, half of the input of {engine.card.name!r}",
            metadata={"max_tokens": str(most), "token_count": str(tokens)},
        )


async def _together(work: Sequence[Coroutine[Any, Any, Part]]) -> list[Part]:
    """Run all at once. When one fails the others are cancelled, and its failure is raised as it is."""
    if len(work) == 1:
        return [await work[0]]
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return [await task for task in tasks]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
