"""Killing the product while it ingests, and the proof that nothing is lost, double, half visible or left over."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pergamon.client import AsyncClient, PergamonError
from pergamon.ingestor.v1 import document_pb2, knowledge_base_pb2
from pergamon.retriever.v1 import retriever_pb2

from tests.helpers.processes import Server, find_engine, serves
from tests.helpers.product import jobs_ended, stored, until

TENANT = "default"
_CHUNKING = knowledge_base_pb2.Chunking(size=16, overlap=0, min_size=1)
_WITHIN_S = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A document of `chunks` paragraphs, one a chunk, with a word that no other document has."""

    name: str
    word: str
    chunks: int

    @property
    def content(self) -> bytes:
        lines = (
            f"Paragraph {n} of {self.word} tells what was stored in hall {n} last year." for n in range(self.chunks)
        )
        return "\n\n".join(lines).encode()


def texts(round_number: int, sizes: Sequence[int]) -> list[Text]:
    return [
        Text(name=f"r{round_number}-{n}.txt", word=f"halibut{round_number}x{n}", chunks=size)
        for n, size in enumerate(sizes)
    ]


@dataclass(kw_only=True)
class Verdict:
    """What was found wrong, in words; empty when nothing was."""

    problems: list[str] = field(default_factory=list[str])
    documents: int = 0
    recovered_s: float = 0.0

    def check(self, fine: bool, problem: str) -> None:
        if not fine:
            self.problems.append(problem)


async def make_base(target: str) -> str:
    async with AsyncClient(target) as client:
        return (await client.create_knowledge_base("kills", chunking=_CHUNKING)).id


async def upload(target: str, kb_id: str, wanted: Sequence[Text]) -> list[Text]:
    """Upload until done or the server is gone; returns those that the server has confirmed, which must survive."""
    accepted: list[Text] = []
    async with AsyncClient(target, timeout_s=10) as client:
        for text in wanted:
            try:
                await client.upload_document(kb_id, text.content, name=text.name, timeout_s=10)
            except PergamonError:
                break
            accepted.append(text)
    return accepted


async def kill_during_ingestion(server: Server, kb_id: str, wanted: Sequence[Text], *, after_s: float) -> list[Text]:
    """Upload, and kill the server `after_s` seconds after the first byte; returns what had been confirmed."""
    uploading = asyncio.create_task(upload(server.target, kb_id, wanted))
    await asyncio.sleep(after_s)
    await asyncio.to_thread(server.kill)
    return await uploading


async def judge(server: Server, kb_id: str, confirmed: Sequence[Text], possible: Sequence[Text]) -> Verdict:
    """Wait until all jobs have ended, then look everywhere. `possible` may be there too: sent, and not confirmed."""
    verdict = Verdict(documents=len(confirmed))
    started = asyncio.get_running_loop().time()
    async with AsyncClient(server.target, timeout_s=30) as client:
        await until(lambda: jobs_ended(client, kb_id), within_s=_WITHIN_S, what="the end of all jobs")
        verdict.recovered_s = asyncio.get_running_loop().time() - started
        await _check_documents(client, kb_id, confirmed, possible, verdict)
        for text in confirmed:
            await _check_search(client, kb_id, text, verdict)
    await _check_storage(server.data_dir, kb_id, verdict)
    return verdict


async def _check_documents(
    client: AsyncClient, kb_id: str, confirmed: Sequence[Text], possible: Sequence[Text], verdict: Verdict
) -> None:
    found = [document async for document in client.list_documents(kb_id)]
    counted = Counter(document.name for document in found)
    sizes = {text.name: text.chunks for text in possible}
    for name in (text.name for text in confirmed):
        verdict.check(counted[name] == 1, f"{name} is there {counted[name]} times")
    for document in found:
        state = document_pb2.DocumentState.Name(document.state)
        done = document.state == document_pb2.DOCUMENT_STATE_DONE
        verdict.check(done, f"{document.name} is {state}: {document.failure.reason} {document.failure.message}")
        wanted = sizes.get(document.name)
        verdict.check(
            wanted is None or document.chunk_count == wanted,
            f"{document.name} has {document.chunk_count} chunks of {wanted}",
        )


async def _check_search(client: AsyncClient, kb_id: str, text: Text, verdict: Verdict) -> None:
    reply = await client.search(text.word, kb_id, mode=retriever_pb2.SEARCH_MODE_KEYWORD, top_k=100, candidates=200)
    ordinals = Counter(p.ordinal for p in reply.passages if p.document_name == text.name)
    versions = {p.document_version for p in reply.passages if p.document_name == text.name}
    verdict.check(
        len(ordinals) == min(100, text.chunks), f"search finds {len(ordinals)} of {text.chunks} of {text.name}"
    )
    verdict.check(max(ordinals.values(), default=1) == 1, f"search finds a chunk of {text.name} twice")
    verdict.check(len(versions) <= 1, f"search finds versions {versions} of {text.name}")


async def _check_storage(data_dir: Path, kb_id: str, verdict: Verdict) -> None:
    found = await stored(data_dir, TENANT, kb_id)
    verdict.check(found.points == found.live, f"points {_differing(found.points, found.live)} (index, catalogue)")
    versions = {path.name for path in (data_dir / "blobs" / TENANT / kb_id / "versions").glob("*")}
    live = {str(version) for version in found.live}
    verdict.check(versions == live, f"parses of versions {sorted(versions ^ live)} differ")
    uploads = len(list((data_dir / "blobs" / TENANT / kb_id / "uploads").glob("*")))
    # The bytes of an upload that was cut off before it was recorded wait for housekeeping.
    verdict.check(uploads >= len(found.live), f"{uploads} originals of {len(found.live)} documents")
    verdict.check(uploads <= len(found.live) + 4, f"{uploads} originals of {len(found.live)} documents")


def _differing(points: dict[int, int], live: dict[int, int]) -> dict[int, tuple[int, int]]:  # type: ignore[type-arg]
    return {
        version: (points.get(version, 0), live.get(version, 0))
        for version in points.keys() | live.keys()
        if points.get(version, 0) != live.get(version, 0)
    }


async def engine_gone(data_dir: Path, *, within_s: float = 30.0) -> None:
    await until(lambda: find_engine(data_dir) is None, within_s=within_s, what="the end of the engine")


async def engine_back(server: Server, *, within_s: float = 30.0) -> None:
    await until(
        lambda: find_engine(server.data_dir) is not None and serves(server.target), within_s=within_s, what="the engine"
    )
