import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.common.errors import DocumentError, Reason
from services.ingestor.parsing import ParseOptions
from services.ingestor.workers import WorkerPool
from tests.fixtures.documents import pdf
from tests.integration.parsing import tasks


@pytest.fixture
async def pool() -> AsyncIterator[WorkerPool]:
    workers = WorkerPool(workers=1, memory_mib=400)
    yield workers
    await workers.aclose()


async def reason_of(pool: WorkerPool, *call: object, timeout_s: float = 60) -> Reason:
    with pytest.raises(DocumentError) as caught:
        await pool.run(*call, timeout_s=timeout_s)  # type: ignore[arg-type]
    return caught.value.error_reason


async def test_task_when_it_dies_or_takes_too_much_then_fails_alone(pool: WorkerPool) -> None:
    first = await pool.run(tasks.pid, timeout_s=60)
    assert await reason_of(pool, tasks.die, tasks.SEGFAULT) is Reason.UNREADABLE_DOCUMENT
    assert await reason_of(pool, tasks.die, tasks.KILL) is Reason.DOCUMENT_LIMIT
    assert await reason_of(pool, tasks.eat_memory, 2000) is Reason.DOCUMENT_LIMIT
    assert await reason_of(pool, tasks.hang, timeout_s=0.3) is Reason.DOCUMENT_LIMIT
    assert await pool.run(tasks.double, 21, timeout_s=60) == 42
    assert await pool.run(tasks.pid, timeout_s=60) != first


async def test_worker_when_it_keeps_memory_of_earlier_tasks_then_is_replaced(pool: WorkerPool) -> None:
    seen = [await pool.run(tasks.keep_memory, 150, timeout_s=60) for _ in range(6)]
    assert len(set(seen)) > 1
    assert len(set(seen)) < len(seen)  # one that has room is used again


async def test_task_when_a_used_worker_has_too_little_memory_then_is_done_in_a_new_one(pool: WorkerPool) -> None:
    first = await pool.run(tasks.keep_memory, 200, timeout_s=60)
    second = await pool.run(tasks.keep_memory, 300, timeout_s=60)
    assert second != first
    assert await reason_of(pool, tasks.keep_memory, 500) is Reason.DOCUMENT_LIMIT


async def test_error_when_a_used_worker_is_nearly_full_then_the_task_is_done_in_a_new_one(pool: WorkerPool) -> None:
    first = await pool.run(tasks.keep_memory, 220, timeout_s=60)
    assert await pool.run(tasks.fill_and_fail_if_used, 150, timeout_s=60) != first


async def test_ocr_when_lines_of_many_widths_were_read_then_keeps_little_of_it() -> None:
    workers = WorkerPool(workers=1, memory_mib=4096)
    try:
        assert await workers.run(tasks.growth_of_ocr, 24, timeout_s=300) < 150 << 20
    finally:
        await workers.aclose()


async def test_caller_when_cancelled_then_the_worker_is_free_for_the_next(pool: WorkerPool) -> None:
    await pool.run(tasks.double, 1, timeout_s=60)
    call = asyncio.create_task(pool.run(tasks.hang, timeout_s=120))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(call, 0.3)
    assert await asyncio.wait_for(pool.run(tasks.double, 2, timeout_s=60), 60) == 4


async def test_document_when_parsed_in_a_worker_then_parts_follow_each_other(pool: WorkerPool, tmp_path: Path) -> None:
    path = pdf(tmp_path / "a.pdf", [[(60, 100, f"page {n}")] for n in range(1, 61)])
    seen: list[int] = []
    page: int | None = 1
    while page is not None:
        stretch = await pool.parse_part(path, ParseOptions(), page)
        assert stretch.source.page_count == 60
        seen += [block.page or 0 for block in stretch.part.blocks]
        page = stretch.next_page
    assert seen == list(range(1, 61))
    assert await pool.run(tasks.heavy_modules, timeout_s=60) == []


async def test_document_error_when_raised_in_a_worker_then_keeps_its_reason(pool: WorkerPool, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"\x7fELF" + bytes(200))
    with pytest.raises(DocumentError) as caught:
        await pool.parse_part(tmp_path / "a.bin", ParseOptions())
    assert caught.value.error_reason is Reason.UNSUPPORTED_FORMAT
    assert "PDF" in caught.value.metadata["allowed"]


async def test_pool_when_never_used_then_starts_nothing() -> None:
    workers = WorkerPool(workers=2, memory_mib=400)
    await workers.aclose()
    with pytest.raises(RuntimeError):
        await workers.run(tasks.double, 1, timeout_s=1)
