"""`make demo`: the main job on real files, from nothing to answers, told as it happens.

Ingests the documents of an example company and the project's own, asks the questions that come with them, and checks
that each answer is where the questions file says it is. Ends with status 1 when a document could not be ingested, or
fewer than two thirds of the questions found the passage that answers them.
"""

import asyncio
import importlib.metadata
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pergamon.client import AsyncClient
from pergamon.retriever.v1 import retriever_pb2 as pb

from services.common import logs
from services.launch.commands_search import print_passage, print_stages
from services.launch.ingest import ingest_files
from services.launch.models import DEFAULT_MODELS, pull_models, store_of
from services.launch.output import console, print_table
from services.launch.session import Options, connect

_ROOT = Path(__file__).resolve().parents[2]
_DATA = _ROOT / ".demo"
_COMPANY = _ROOT / "examples" / "company"
_KNOWLEDGE_BASE = "Demo"
_TOP_K = 5
_SHOWN_IN_FULL = 6
_WANTED_SHARE = 2 / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question and the places that answer it: (file, phrase of the passage). No places: nothing answers it."""

    text: str
    answers: tuple[tuple[str, str], ...]


def main() -> int:
    logs.configure("WARNING", "text")
    started = time.perf_counter()
    _report_installation()
    pull_models(store_of(None), DEFAULT_MODELS)
    found, asked = asyncio.run(_demo())
    console.print(
        f"\nDone in {time.perf_counter() - started:.0f} s. Next: `make up`, then `pergamon search ...`; see README.md."
    )
    return 0 if found >= _WANTED_SHARE * asked else 1


async def _demo() -> tuple[int, int]:
    async with connect(Options(data_dir=_DATA)) as client:
        knowledge_base_id = await _ingest(client)
        return await _ask(client, knowledge_base_id)


async def _ingest(client: AsyncClient) -> str:
    console.rule("Documents in")
    found = [kb async for kb in client.list_knowledge_bases() if kb.name == _KNOWLEDGE_BASE]
    kb = found[0] if found else await client.create_knowledge_base(_KNOWLEDGE_BASE)
    started = time.perf_counter()
    paths = [_COMPANY / "documents", *sorted((_ROOT / "docs").glob("*.md")), _ROOT / "README.md"]
    ended = await ingest_files(client, kb.id, paths, progress=sys.stderr.isatty())
    rows = ((entry.name, entry.state, entry.pages or "", entry.chunks, entry.note) for entry in ended)
    print_table(("document", "state", "pages", "chunks", "note"), rows, "")
    console.print(f"{len(ended)} documents in {time.perf_counter() - started:.1f} s with {kb.embedding_model}\n")
    if any(entry.failed for entry in ended):
        raise SystemExit("a document could not be ingested")
    return kb.id


async def _ask(client: AsyncClient, knowledge_base_id: str) -> tuple[int, int]:
    """Ask every question; how many found the passage that answers them, of how many that have an answer."""
    console.rule("Questions answered")
    found = asked = 0
    rows: list[tuple[str, str, str]] = []
    for number, question in enumerate(_questions()):
        response = await client.search(question.text, knowledge_base_id, top_k=_TOP_K)
        if number < _SHOWN_IN_FULL:
            console.print(f"[bold cyan]{question.text}[/bold cyan]")
            for position, passage in enumerate(response.passages[:2], 1):
                print_passage(position, passage)
        if number == 0:
            print_stages(response)
            console.print()
        place = _place(question, response)
        asked += bool(question.answers)
        found += place.isdigit()
        first = response.passages[0].document_name if response.passages else "-"
        rows.append((question.text, place, first))
    console.rule("Where the right passage came out")
    print_table(("question", "rank", "first result"), rows, "")
    console.print(f"\n{found} of {asked} questions found the passage that answers them among the first {_TOP_K}.")
    console.print("\nThe same, judged by the cross-encoder (English only):")
    response = await client.search(_questions()[0].text, knowledge_base_id, top_k=2, rerank=True)
    for position, passage in enumerate(response.passages, 1):
        print_passage(position, passage)
    return found, asked


def _questions() -> list[Question]:
    content: dict[str, Any] = json.loads((_COMPANY / "questions.json").read_text(encoding="utf-8"))
    return [
        Question(text=q["question"], answers=tuple((a["file"], a["phrase"]) for a in q["answers"]))
        for q in content["questions"]
    ]


def _place(question: Question, response: pb.SearchResponse) -> str:
    """Rank of the first passage that answers, or `missing`; `no answer` where the documents hold none."""
    if not question.answers:
        return "no answer"
    for rank, passage in enumerate(response.passages, 1):
        text = "".join(passage.text.split())
        for file, phrase in question.answers:
            if passage.document_name == file and "".join(phrase.split()) in text:
                return str(rank)
    return "missing"


def _report_installation() -> None:
    """How much the default installation is: what `pip` put into this environment."""
    sizes = {dist.name: _size(dist) for dist in importlib.metadata.distributions()}
    total = sum(sizes.values()) / 1e6
    largest = ", ".join(
        f"{name} {size / 1e6:.0f}" for name, size in sorted(sizes.items(), key=lambda entry: -entry[1])[:5]
    )
    console.print(f"Installed: {len(sizes)} packages, {total:.0f} MB (largest: {largest} MB)")


def _size(dist: importlib.metadata.Distribution) -> int:
    size = 0
    for file in dist.files or ():
        try:
            size += Path(str(file.locate())).stat().st_size
        except OSError:
            continue
    return size


if __name__ == "__main__":
    sys.exit(main())
