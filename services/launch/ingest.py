"""Uploading files and folders and following their jobs, with a bar for people who wait."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pergamon.client import AsyncClient, PergamonError
from pergamon.ingestor.v1 import document_pb2, job_pb2
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from services.launch.output import errors

_UPLOADS_AT_ONCE = 4
_JOB_TIMEOUT_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingested:
    """What became of one file. `state` is a state of a document, or UNCHANGED, DUPLICATE or REFUSED."""

    name: str
    state: str
    document_id: str = ""
    job_id: str = ""
    chunks: int = 0
    pages: int = 0
    note: str = ""

    @property
    def failed(self) -> bool:
        return self.state in ("FAILED", "REFUSED")

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def files_below(paths: Iterable[Path]) -> list[tuple[Path, str]]:
    """Every file with the name it gets: its own, or below a folder its path from there. Hidden files are left out."""
    found: list[tuple[Path, str]] = []
    for path in paths:
        if path.is_file():
            found.append((path, path.name))
            continue
        for file in sorted(p for p in path.rglob("*") if p.is_file()):
            inside = file.relative_to(path)
            if not any(part.startswith(".") for part in inside.parts):
                found.append((file, inside.as_posix()))
    return found


async def ingest_files(
    client: AsyncClient,
    knowledge_base_id: str,
    paths: Sequence[Path],
    *,
    wait: bool = True,
    allow_duplicates: bool = False,
    password: str = "",
    progress: bool = True,
) -> list[Ingested]:
    """Upload every file below `paths`, four at once, and wait for their jobs. A bad file never stops the others."""
    files = files_below(paths)
    gate = asyncio.Semaphore(_UPLOADS_AT_ONCE)
    policy = document_pb2.DUPLICATE_POLICY_ALLOW if allow_duplicates else document_pb2.DUPLICATE_POLICY_REJECT
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors, disable=not progress, transient=True) as bars:
        uploaded = bars.add_task("uploaded", total=len(files))
        indexed = bars.add_task("indexed", total=len(files))

        async def one(path: Path, name: str) -> Ingested:
            async with gate:
                entry = await _upload(client, knowledge_base_id, path, name, policy, password)
                bars.advance(uploaded)
            if wait and entry.job_id:
                entry = await _wait(client, entry)
            bars.advance(indexed)
            return entry

        return list(await asyncio.gather(*(one(path, name) for path, name in files)))


async def _upload(
    client: AsyncClient,
    knowledge_base_id: str,
    path: Path,
    name: str,
    policy: document_pb2.DuplicatePolicy.ValueType,
    password: str,
) -> Ingested:
    try:
        reply = await client.upload_document(knowledge_base_id, path, name=name, on_duplicate=policy, password=password)
    except PergamonError as error:
        state = "DUPLICATE" if error.reason == "DUPLICATE_DOCUMENT" else "REFUSED"
        return Ingested(name=name, state=state, note=f"{error.reason}: {error.message}")
    unchanged = reply.outcome == document_pb2.UPLOAD_OUTCOME_UNCHANGED
    return Ingested(
        name=name,
        state="UNCHANGED" if unchanged else "PENDING",
        document_id=reply.document.id,
        job_id=reply.job_id,
        chunks=reply.document.chunk_count,
    )


async def _wait(client: AsyncClient, entry: Ingested) -> Ingested:
    job = await client.wait_for_job(entry.job_id, timeout_s=_JOB_TIMEOUT_S)
    if job.state == job_pb2.JOB_STATE_FAILED:
        note = f"{job.failure.reason}: {job.failure.message}"
        return Ingested(name=entry.name, state="FAILED", document_id=entry.document_id, job_id=entry.job_id, note=note)
    document = await client.get_document(entry.document_id)
    return Ingested(
        name=entry.name,
        state=document_pb2.DocumentState.Name(document.state).removeprefix("DOCUMENT_STATE_"),
        document_id=document.id,
        job_id=entry.job_id,
        chunks=document.chunk_count,
        pages=document.page_count,
        note=f"{len(document.warnings)} warnings" if document.warnings else "",
    )
