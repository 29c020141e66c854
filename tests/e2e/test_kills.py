"""kill -9 during ingestion: of the server, and of the engine. Every document ends DONE exactly once.

`bench/reliability.py` does the same at hundreds of random moments.
"""

import asyncio
from collections.abc import Iterator

import pytest

from tests.helpers.processes import Server
from tests.helpers.product import QUICK
from tests.helpers.reliability import judge, kill_during_ingestion, make_base, texts, upload

_SIZES = (3, 90, 1, 150, 2, 70)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(data_dir=tmp_path_factory.mktemp("killed"), environment={**QUICK, "PERGAMON_THREADS": "2"})
    running.start()
    yield running
    assert running.stop() == 0


@pytest.mark.parametrize("after_s", [0.4, 1.4])
async def test_kill_when_the_server_dies_during_ingestion_then_every_document_ends_done_exactly_once(
    server: Server, after_s: float
) -> None:
    kb = await make_base(server.target)
    wanted = texts(int(after_s * 100), _SIZES)
    confirmed = await kill_during_ingestion(server, kb, wanted, after_s=after_s)
    await asyncio.to_thread(server.start)
    verdict = await judge(server, kb, confirmed, wanted)
    assert verdict.problems == []


@pytest.mark.parametrize("after_s", [0.4, 1.2])
async def test_kill_when_the_engine_dies_during_ingestion_then_every_document_ends_done_exactly_once(
    server: Server, after_s: float
) -> None:
    kb = await make_base(server.target)
    wanted = texts(int(after_s * 1000), _SIZES)
    uploading = asyncio.create_task(upload(server.target, kb, wanted))
    await asyncio.sleep(after_s)
    await asyncio.to_thread(server.kill_engine)
    confirmed = await uploading
    assert confirmed == wanted, "uploads do not need the engine"
    verdict = await judge(server, kb, confirmed, wanted)
    assert verdict.problems == []
