"""The product's own inference engine without a server, as a child that obeys the commands of `bench.children`."""

import asyncio
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.children import answer_commands
from services.common.clock import Deadline, SystemClock
from services.inference.engine import InferenceEngine
from services.inference.settings import InferenceSettings
from services.inference.store import ModelStore
from services.inference.types import InputType, Lane, Truncation

_TIMEOUT_S = 600.0


class OwnEngine:
    """One engine on an event loop that runs while a command is obeyed."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._clock = SystemClock()
        self._engine: InferenceEngine | None = None

    def load(self, models_dir: str, model: str, threads: int) -> dict[str, Any]:
        settings = InferenceSettings(models_dir=Path(models_dir), threads=threads, max_backlog_seconds=_TIMEOUT_S)
        engine = self._runner.run(
            InferenceEngine.load(model, store=ModelStore(Path(models_dir)), settings=settings, clock=self._clock)
        )
        self._engine = engine
        return {"device": engine.device, "precision": settings.precision}

    def embed(self, texts: list[str], vectors: str = "") -> dict[str, Any]:
        taken, rows = self._runner.run(self._embed(texts))
        if vectors:
            np.save(vectors, rows)
        return taken

    def rerank(self, query: str, passages: list[str]) -> dict[str, Any]:
        taken, logits = self._runner.run(self._rerank(query, passages))
        return taken | {"logits": logits}

    async def _embed(self, texts: list[str]) -> tuple[dict[str, Any], np.ndarray]:
        assert self._engine is not None
        cpu, started = time.process_time(), time.perf_counter()
        outcome = await self._engine.embed(
            texts, input_type=InputType.PASSAGE, truncation=Truncation.RIGHT, lane=Lane.BULK, deadline=self._deadline()
        )
        taken = _taken(cpu, started)
        assert not any(item.error for item in outcome.items), "a text has no vector"
        assert outcome.dense is not None
        return taken, outcome.dense

    async def _rerank(self, query: str, passages: list[str]) -> tuple[dict[str, Any], list[float]]:
        assert self._engine is not None
        cpu, started = time.process_time(), time.perf_counter()
        outcome = await self._engine.rerank(
            query, passages, truncation=Truncation.RIGHT, lane=Lane.BULK, deadline=self._deadline()
        )
        return _taken(cpu, started), [float(logit) for logit in outcome.logits]

    def _deadline(self) -> Deadline:
        return Deadline.after(_TIMEOUT_S, self._clock)


def _taken(cpu: float, started: float) -> dict[str, Any]:
    return {"seconds": time.perf_counter() - started, "cpu_s": time.process_time() - cpu}


if __name__ == "__main__":
    own = OwnEngine()
    answer_commands({"load": own.load, "embed": own.embed, "rerank": own.rerank})
