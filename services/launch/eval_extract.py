"""Measuring extraction: hard files with known facts (files.jsonl) go through the API, and what was read is checked.

The knowledge base made for it is deleted afterwards. A file is one document; its facts are looked for in the blocks
that ListBlocks shows, or in the reason of the error.
"""

import asyncio
import json
import re
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pergamon.client import AsyncClient, PergamonError
from pergamon.ingestor.v1 import document_pb2, job_pb2
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from services.domain.blocks import Block, BlockKind
from services.launch.eval_facts import FactKind, Parsed, holds, parse_fact
from services.launch.output import errors

_AT_ONCE = 4
_JOB_TIMEOUT_S = 900.0
_AFTER_PARSE = frozenset({"chunk", "write"})
_PASSWORD = re.compile(r'password "([^"]+)"')
_KINDS = {
    number: BlockKind(name.removeprefix("BLOCK_KIND_")) for name, number in document_pb2.BlockKind.items() if number
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HardFile:
    """A file and what is known of it; `password` opens it where it is encrypted."""

    path: Path
    name: str
    facts: tuple[str, ...]
    password: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedFact:
    file: str
    fact: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileResult:
    """What came of one file; `outcome` is DONE or the reason of its error.

    `parse_seconds`: from the accepted upload until the job told that the document was read, or nothing was left to
    read; jobs tell at most every 0.3 s. `seconds`: from the start of the upload until it could be searched.
    """

    file: HardFile
    outcome: str
    parse_seconds: float
    seconds: float
    failed: tuple[FailedFact, ...]


def load_files(folder: Path) -> list[HardFile]:
    """Read files.jsonl; paths in it are relative to the folder, or to the one above. Raises OSError or ValueError."""
    files: list[HardFile] = []
    for line in (folder / "files.jsonl").read_text(encoding="utf-8").splitlines():
        entry: dict[str, Any] = json.loads(line)
        path = next((p for p in (folder / entry["path"], folder.parent / entry["path"]) if p.exists()), None)
        if path is None:
            raise ValueError(f"{entry['path']} is in files.jsonl and not in the folder")
        password = _PASSWORD.search(entry.get("hard", ""))
        files.append(
            HardFile(
                path=path,
                name=entry["path"],
                facts=tuple(entry["facts"]),
                password=password[1] if password else "",
            )
        )
    return files


async def evaluate_files(client: AsyncClient, files: Sequence[HardFile], *, progress: bool) -> list[FileResult]:
    """Upload every file and check its facts, in the order of `files`.

    One file at a time is read, so that none waits for another and its time is its own; those before it may still be
    embedded meanwhile.
    """
    kb = await client.create_knowledge_base("eval extraction")
    gate, turn = asyncio.Semaphore(_AT_ONCE), asyncio.Semaphore(1)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        with Progress(*columns, console=errors, disable=not progress, transient=True) as bars:
            task = bars.add_task("files", total=len(files))

            async def one(file: HardFile) -> FileResult:
                async with gate:
                    result = await _check(client, kb.id, file, turn)
                    bars.advance(task)
                    return result

            return list(await asyncio.gather(*(one(file) for file in files)))
    finally:
        await client.delete_knowledge_base(kb.id)


async def _check(client: AsyncClient, kb_id: str, file: HardFile, turn: asyncio.Semaphore) -> FileResult:
    facts = [(line, parse_fact(line)) for line in file.facts]
    locked = _Read()
    if any(fact.kind is FactKind.LOCKED for _, fact in facts):
        locked = await _read(client, kb_id, file, turn, name=f"locked/{file.name}", password="")
    read = await _read(client, kb_id, file, turn, name=file.name, password=file.password)
    parsed = Parsed(blocks=read.blocks, error=read.error, error_without_password=locked.error)
    failed = tuple(
        FailedFact(file=file.name, fact=line, why=_why(fact.kind, parsed))
        for line, fact in facts
        if not holds(fact, parsed)
    )
    return FileResult(
        file=file,
        outcome=read.error or "DONE",
        parse_seconds=read.parse_seconds,
        seconds=read.seconds,
        failed=failed,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """The blocks of a file, or the reason why there are none; the seconds as in FileResult."""

    blocks: tuple[Block, ...] = ()
    error: str = ""
    parse_seconds: float = 0.0
    seconds: float = 0.0


async def _read(
    client: AsyncClient, kb_id: str, file: HardFile, turn: asyncio.Semaphore, *, name: str, password: str
) -> _Read:
    await turn.acquire()
    started = time.perf_counter()
    with ExitStack() as reading:
        reading.callback(turn.release)
        try:
            upload = await client.upload_document(
                kb_id,
                file.path,
                name=name,
                password=password,
                on_duplicate=document_pb2.DUPLICATE_POLICY_ALLOW,
            )
        except PergamonError as error:
            return _Read(error=error.reason or error.code.name, seconds=time.perf_counter() - started)
        job, parse_seconds = await _followed(client, upload.job_id, reading.close)
    seconds = time.perf_counter() - started
    if job.state != job_pb2.JOB_STATE_DONE:
        error = job.failure.reason or job_pb2.JobState.Name(job.state)
        return _Read(error=error, parse_seconds=parse_seconds, seconds=seconds)
    blocks = tuple([_block(block) async for block in client.list_blocks(upload.document.id)])
    return _Read(blocks=blocks, parse_seconds=parse_seconds, seconds=seconds)


async def _followed(client: AsyncClient, job_id: str, on_cut: Callable[[], None]) -> tuple[job_pb2.Job, float]:
    """The job once it has ended, and the seconds until it was parsed; `on_cut` when it needs no worker any more."""
    started = time.perf_counter()
    parse_seconds = 0.0
    job = job_pb2.Job()
    async with aclosing(client.watch_job(job_id, timeout_s=_JOB_TIMEOUT_S)) as jobs:
        async for job in jobs:
            stages = {stage.stage: stage for stage in job.progress}
            cut = not _AFTER_PARSE.isdisjoint(stages)
            parse = stages.get("parse")
            if not parse_seconds and (cut or (parse is not None and parse.done >= parse.total > 0)):
                parse_seconds = time.perf_counter() - started
            if cut:
                on_cut()
    return job, parse_seconds or time.perf_counter() - started


def _block(block: document_pb2.Block) -> Block:
    return Block(
        kind=_KINDS[block.kind],
        text=block.text,
        level=block.level,
        page=block.page or None,
        rows=tuple(tuple(row.cells) for row in block.rows),
        header_rows=block.header_rows,
    )


def _why(kind: FactKind, parsed: Parsed) -> str:
    match kind:
        case FactKind.LOCKED:
            return f"without the password: {parsed.error_without_password or 'it was read'}"
        case FactKind.ERROR:
            return "it was read without an error" if not parsed.error else f"ended with {parsed.error}"
        case _ if parsed.error:
            return f"ended with {parsed.error}"
        case FactKind.ABSENT:
            return "it is there"
        case _:
            return "it was not found in what was read"
