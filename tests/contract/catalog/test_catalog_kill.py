"""A process that is killed while it writes loses nothing that it had acknowledged, and half of nothing stays."""

import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

from catalog_builders import TENANT, hidden

from services.catalog.catalog import open_catalog
from services.catalog.settings import CatalogSettings
from services.catalog.types import DocumentState

REPOSITORY = Path(__file__).parents[3]
KILLS = 3
ACKNOWLEDGED = 8

PROGRAM = """
import asyncio, sys, uuid
from catalog_builders import make_kb, put, stats
from services.catalog.catalog import open_catalog
from services.catalog.settings import CatalogSettings

async def main():
    async with open_catalog(CatalogSettings(url=sys.argv[1])) as catalog:
        kb = await make_kb(catalog)
        while True:
            content = uuid.uuid4().hex
            outcome = await put(catalog, kb, content, content)
            assert await catalog.versions.activate(outcome.version, stats())
            print(kb.id, outcome.document_id, flush=True)

asyncio.run(main())
"""


async def test_kill_when_a_write_is_under_way_then_all_that_was_acknowledged_is_there(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    for _ in range(KILLS):
        acknowledged = _write_until_killed(f"sqlite:///{path}")
        async with open_catalog(CatalogSettings(url=f"sqlite:///{path}")) as catalog:
            for _, document_id in acknowledged:
                assert (await catalog.documents.get(TENANT, document_id)).state is DocumentState.DONE
            kb = await catalog.knowledge_bases.get(TENANT, acknowledged[0][0])
            documents = (await catalog.documents.list(TENANT, kb.id, page_size=500)).entries
            live = [document for document in documents if document.live_version]
            assert kb.index.chunk_count == 4 * len(live)
            assert len(await hidden(catalog, kb.id)) == len(documents) - len(live) <= 1
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def _write_until_killed(url: str) -> list[tuple[str, str]]:
    search = f"{REPOSITORY}:{Path(__file__).parent}"
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, url], stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": search}
    )
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(ACKNOWLEDGED)]
    process.send_signal(signal.SIGKILL)
    lines += process.stdout.readlines()
    process.wait()
    whole = [line.split() for line in lines if line.endswith("\n")]
    return [(kb_id, document_id) for kb_id, document_id in whole]
