"""Measuring extraction: hard files with known facts (files.jsonl) go through the API, and what was read is checked.

The knowledge base made for it is deleted afterwards. A file is one document; its facts are looked for in the blocks
that ListBlocks shows, or in the reason of the error.
"""

import asyncio
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pergamon.client import AsyncClient, PergamonError
from pergamon.ingestor.v1 import document_pb2, job_pb2
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from services.domain.blocks import Block, BlockKind
from services.launch.eval_facts import FactKind, Parsed, holds, parse_fact
from services.launch.output import errors

_AT_ONCE = 2
_JOB_TIMEOUT_S = 900.0
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
    """What came of one file; `outcome` is DONE or the reason of its error."""

    file: HardFile
    outcome: str
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
    """Upload every file and check its facts, in the order of `files`."""
    kb = await client.create_knowledge_base("eval extraction")
    gate = asyncio.Semaphore(_AT_ONCE)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        with Progress(*columns, console=errors, disable=not progress, transient=True) as bars:
            task = bars.add_task("files", total=len(files))

            async def one(file: HardFile) -> FileResult:
                async with gate:
                    result = await _check(client, kb.id, file)
                    bars.advance(task)
                    return result

            return list(await asyncio.gather(*(one(file) for file in files)))
    finally:
        await client.delete_knowledge_base(kb.id)


async def _check(client: AsyncClient, kb_id: str, file: HardFile) -> FileResult:
    started = time.perf_counter()
    facts = [(line, parse_fact(line)) for line in file.facts]
    locked = ""
    if any(fact.kind is FactKind.LOCKED for _, fact in facts):
        _, locked = await _read(client, kb_id, file, name=f"locked/{file.name}", password="")
    blocks, error = await _read(client, kb_id, file, name=file.name, password=file.password)
    parsed = Parsed(blocks=blocks, error=error, error_without_password=locked)
    failed = tuple(
        FailedFact(file=file.name, fact=line, why=_why(fact.kind, parsed))
        for line, fact in facts
        if not holds(fact, parsed)
    )
    return FileResult(file=file, outcome=error or "DONE", seconds=time.perf_counter() - started, failed=failed)


async def _read(
    client: AsyncClient, kb_id: str, file: HardFile, *, name: str, password: str
) -> tuple[list[Block], str]:
    """The blocks of the file, or the reason why there are none."""
    try:
        upload = await client.upload_document(
            kb_id,
            file.path,
            name=name,
            password=password,
            on_duplicate=document_pb2.DUPLICATE_POLICY_ALLOW,
        )
    except PergamonError as error:
        return [], error.reason or error.code.name
    job = await client.wait_for_job(upload.job_id, timeout_s=_JOB_TIMEOUT_S)
    if job.state != job_pb2.JOB_STATE_DONE:
        return [], job.failure.reason or job_pb2.JobState.Name(job.state)
    return [_block(block) async for block in client.list_blocks(upload.document.id)], ""


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
