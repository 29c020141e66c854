"""`pergamon kb`, `ingest`, `docs` and `jobs`: knowledge bases and what is in them."""

from pathlib import Path

import click
from pergamon.client import AsyncClient
from pergamon.ingestor.v1 import document_pb2, job_pb2, knowledge_base_pb2

from services.launch.ingest import Ingested, ingest_files
from services.launch.knowledge_base_ref import find_knowledge_base
from services.launch.output import as_dict, console, megabytes, print_json, print_table
from services.launch.session import Options, with_client

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def register(cli: click.Group) -> None:
    for command in (kb, ingest, docs, jobs):
        cli.add_command(command)


@click.group()
def kb() -> None:
    """Create, list, show and delete knowledge bases."""


@kb.command("create")
@click.argument("name")
@click.option("--description", default="")
@click.option("--model", default="", help="Embedding model (default: the server's).")
@click.option("--language", default="", help="Language of the documents, as en or zh, where there is one.")
@click.option("--chunk-size", type=click.IntRange(1, 100_000), default=None, help="In words (default 400).")
@click.option("--chunk-overlap", type=click.IntRange(0, 100_000), default=None, help="In words (default 40).")
@click.option("--tokens", is_flag=True, help="Sizes are in tokens of the model.")
@_json
@click.pass_obj
def kb_create(
    options: Options,
    name: str,
    description: str,
    model: str,
    language: str,
    chunk_size: int | None,
    chunk_overlap: int | None,
    tokens: bool,
    as_json: bool,
) -> None:
    """Create a knowledge base called NAME."""
    chunking = knowledge_base_pb2.Chunking(
        unit=knowledge_base_pb2.CHUNK_UNIT_TOKENS if tokens else knowledge_base_pb2.CHUNK_UNIT_WORDS,
        size=chunk_size or 0,
        overlap=chunk_overlap,
    )

    async def work(client: AsyncClient) -> knowledge_base_pb2.KnowledgeBase:
        return await client.create_knowledge_base(
            name, description=description, embedding_model=model, language=language, chunking=chunking
        )

    made = with_client(options, work)
    print_json(as_dict(made)) if as_json else console.print(made.id)


@kb.command("list")
@_json
@click.pass_obj
def kb_list(options: Options, as_json: bool) -> None:
    """List knowledge bases."""

    async def work(client: AsyncClient) -> list[knowledge_base_pb2.KnowledgeBase]:
        return [entry async for entry in client.list_knowledge_bases()]

    found = with_client(options, work)
    if as_json:
        print_json([as_dict(entry) for entry in found])
        return
    rows = (
        (entry.id, entry.name, entry.statistics.documents, entry.statistics.chunks, megabytes(entry.statistics.bytes))
        for entry in found
    )
    print_table(("id", "name", "documents", "chunks", "size"), rows, "no knowledge bases; see `pergamon kb create`")


@kb.command("get")
@click.argument("reference", metavar="KB")
@_json
@click.pass_obj
def kb_get(options: Options, reference: str, as_json: bool) -> None:
    """Show the knowledge base KB, an id or a name."""
    found = with_client(options, lambda client: find_knowledge_base(client, reference))
    if as_json:
        print_json(as_dict(found))
        return
    stats = found.statistics
    states = ", ".join(f"{count} {state}" for state, count in sorted(stats.documents_by_state.items()))
    unit = "tokens" if found.chunking.unit == knowledge_base_pb2.CHUNK_UNIT_TOKENS else "words"
    print_table(
        ("field", "value"),
        (
            ("id", found.id),
            ("name", found.name),
            ("description", found.description or "-"),
            ("embedding model", found.embedding_model),
            ("chunks of", f"{found.chunking.size} {unit}, overlap {found.chunking.overlap}"),
            ("documents", f"{stats.documents} ({states})" if states else stats.documents),
            ("chunks", stats.chunks),
            ("tokens", stats.tokens),
            ("size", megabytes(stats.bytes)),
        ),
        "",
    )


@kb.command("delete")
@click.argument("reference", metavar="KB")
@_json
@click.pass_obj
def kb_delete(options: Options, reference: str, as_json: bool) -> None:
    """Delete the knowledge base KB and everything in it."""

    async def work(client: AsyncClient) -> dict[str, str]:
        found = await find_knowledge_base(client, reference)
        await client.delete_knowledge_base(found.id)
        return {"knowledge_base_id": found.id}

    deleted = with_client(options, work)
    print_json(deleted) if as_json else console.print(f"deleted {deleted['knowledge_base_id']}")


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--kb", "reference", required=True, help="Knowledge base, an id or a name.")
@click.option("--create", is_flag=True, help="Create the knowledge base when none has this name.")
@click.option("--no-wait", is_flag=True, help="Return once everything is uploaded (needs a running server).")
@click.option("--allow-duplicates", is_flag=True, help="Store the same bytes again under another name.")
@click.option("--password", default="", help="For encrypted documents; used once and never stored.")
@_json
@click.pass_obj
def ingest(
    options: Options,
    paths: tuple[Path, ...],
    reference: str,
    create: bool,
    no_wait: bool,
    allow_duplicates: bool,
    password: str,
    as_json: bool,
) -> None:
    """Ingest the files and folders PATHS. Ends with status 1 when a document failed."""

    async def work(client: AsyncClient) -> list[Ingested]:
        try:
            target = await find_knowledge_base(client, reference)
        except click.ClickException:
            if not create or reference.startswith("kb_"):
                raise
            target = await client.create_knowledge_base(reference)
        return await ingest_files(
            client,
            target.id,
            paths,
            wait=not no_wait,
            allow_duplicates=allow_duplicates,
            password=password,
            progress=not as_json,
        )

    ended = with_client(options, work)
    if as_json:
        print_json([entry.as_dict() for entry in ended])
    else:
        rows = ((entry.name, entry.state, entry.chunks or "", entry.note) for entry in ended)
        print_table(("document", "state", "chunks", "note"), rows, "no files found")
    if any(entry.failed for entry in ended):
        raise click.exceptions.Exit(1)


@click.group()
def docs() -> None:
    """List and delete documents."""


@docs.command("list")
@click.option("--kb", "reference", required=True, help="Knowledge base, an id or a name.")
@_json
@click.pass_obj
def docs_list(options: Options, reference: str, as_json: bool) -> None:
    """List the documents of a knowledge base."""

    async def work(client: AsyncClient) -> list[document_pb2.Document]:
        found = await find_knowledge_base(client, reference)
        return [entry async for entry in client.list_documents(found.id)]

    found = with_client(options, work)
    if as_json:
        print_json([as_dict(entry) for entry in found])
        return
    rows = (
        (
            entry.id,
            entry.name,
            document_pb2.DocumentState.Name(entry.state).removeprefix("DOCUMENT_STATE_"),
            entry.page_count or "",
            entry.chunk_count,
            f"{entry.failure.reason}: {entry.failure.message}"
            if entry.failure.reason
            else f"{len(entry.warnings)} warnings"
            if entry.warnings
            else "",
        )
        for entry in found
    )
    print_table(("id", "name", "state", "pages", "chunks", "note"), rows, "no documents")


@docs.command("delete")
@click.argument("document_id")
@_json
@click.pass_obj
def docs_delete(options: Options, document_id: str, as_json: bool) -> None:
    """Delete the document DOCUMENT_ID."""

    async def work(client: AsyncClient) -> dict[str, str]:
        await client.delete_document(document_id)
        return {"document_id": document_id}

    deleted = with_client(options, work)
    print_json(deleted) if as_json else console.print(f"deleted {document_id}")


@click.group()
def jobs() -> None:
    """List and follow jobs."""


@jobs.command("list")
@click.option("--kb", "reference", required=True, help="Knowledge base, an id or a name.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="Newest so many.")
@_json
@click.pass_obj
def jobs_list(options: Options, reference: str, limit: int, as_json: bool) -> None:
    """List the jobs of a knowledge base, newest first."""

    async def work(client: AsyncClient) -> list[job_pb2.Job]:
        found = await find_knowledge_base(client, reference)
        newest: list[job_pb2.Job] = []
        async for entry in client.list_jobs(found.id):
            newest.append(entry)
            if len(newest) == limit:
                break
        return newest

    found = with_client(options, work)
    if as_json:
        print_json([as_dict(entry) for entry in found])
        return
    rows = (
        (
            entry.id,
            job_pb2.JobKind.Name(entry.kind).removeprefix("JOB_KIND_"),
            job_pb2.JobState.Name(entry.state).removeprefix("JOB_STATE_"),
            entry.document_id,
            entry.failure.message,
        )
        for entry in found
    )
    print_table(("id", "kind", "state", "document", "note"), rows, "no jobs")


@jobs.command("watch")
@click.argument("job_id")
@_json
@click.pass_obj
def jobs_watch(options: Options, job_id: str, as_json: bool) -> None:
    """Follow the job JOB_ID until it ends. Ends with status 1 when the job failed."""

    async def work(client: AsyncClient) -> job_pb2.Job:
        last = job_pb2.Job()
        async for entry in client.watch_job(job_id):
            last = entry
            if not as_json:
                stages = ", ".join(f"{p.stage} {p.done}/{p.total or '?'}" for p in entry.progress)
                console.print(f"{job_pb2.JobState.Name(entry.state).removeprefix('JOB_STATE_')} {stages}")
        return last

    ended = with_client(options, work)
    if as_json:
        print_json(as_dict(ended))
    if ended.state == job_pb2.JOB_STATE_FAILED:
        raise click.exceptions.Exit(1)
