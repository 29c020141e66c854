"""The examples, run as a reader would run them, against everything in one process."""

import asyncio
import os
import sys
from pathlib import Path

import pytest
import pytest_asyncio

from services.launch.all_in_one import AllInOne
from services.launch.settings import UpSettings

ROOT = Path(__file__).resolve().parents[3]
_TIME_LIMIT_S = 120

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("examples")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def target(data_dir: Path):
    server = AllInOne(UpSettings(port=0, metrics_port=0, data_dir=data_dir, threads=2))
    await server.start()
    try:
        yield server.target
    finally:
        await server.stop()


async def run(example: str, *arguments: str) -> str:
    """What the example printed; it must end well."""
    client = str(ROOT / "clients" / "python")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        f"examples/{example}.py",
        *arguments,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": client},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await asyncio.wait_for(process.communicate(), _TIME_LIMIT_S)
    assert process.returncode == 0, printed.decode()
    return printed.decode()


async def test_quickstart_when_run_then_it_finds_the_answer(target: str):
    printed = await run("quickstart", target)
    best, *_ = printed.splitlines()
    assert "handbook.md Leave" in best
    assert "28 days" in printed


async def test_filters_when_run_then_only_what_they_let_through_is_found(target: str):
    printed = await run("filters", target)
    assert "travel-2026.txt" in printed
    assert "travel-2025.txt" not in printed


async def test_retrieve_context_when_run_then_the_context_has_source_and_answer(target: str):
    printed = await run("retrieve_context", target)
    assert "=== SOURCE: faq.md > Warranty" in printed
    assert "three years" in printed


async def test_watch_job_when_run_then_it_ends_with_the_end_of_the_job(target: str):
    *_, last = (await run("watch_job", target)).strip().splitlines()
    assert last.startswith("JOB_STATE_DONE")
    assert "write 499/499" in last


async def test_watch_job_when_given_a_file_then_that_is_uploaded(target: str, data_dir: Path):
    page = data_dir / "page.md"
    page.write_text("# Pump\n\nThe pump has a flow of 40 litres a minute.\n", encoding="utf-8")
    *_, last = (await run("watch_job", target, str(page))).strip().splitlines()
    assert last.startswith("JOB_STATE_DONE")
