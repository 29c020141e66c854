"""The main road: documents of every format in, explained passages out."""

import itertools
from datetime import UTC, datetime

import pytest
from pergamon.client import AsyncClient, filters
from pergamon.client.metadata import document_metadata
from pergamon.ingestor.v1 import document_pb2, job_pb2
from pergamon.retriever.v1 import retriever_pb2 as pb

from tests.helpers.files import docx_file, html_file, pdf_file
from tests.helpers.product import Product, chunked, jobs_ended, make_kb, names, put, stored, until

_MODES = (pb.SEARCH_MODE_HYBRID, pb.SEARCH_MODE_SEMANTIC, pb.SEARCH_MODE_KEYWORD)
_FILES = {
    "handbook.md": (
        b"# Travel\n\nThe company pays for rail travel in second class.\n\n# Leave\n\nStaff get 28 days of leave."
    ),
    "notes.txt": b"The quarterly meeting decided to buy a new coffee machine for the Berlin office.",
    "faq.html": html_file("Warranty", "The warranty of the TK200 pump covers three years from delivery."),
    "policy.docx": docx_file("Hotel rooms may cost up to 140 euros a night.", heading="Expenses"),
    "manual.pdf": pdf_file("To reset the pump, hold the green button for ten seconds.", "Replace the filter yearly."),
}
_QUESTIONS = {
    "which class may I use on the train?": "handbook.md",
    "coffee machine in Berlin": "notes.txt",
    "how long is the warranty of the TK200": "faq.html",
    "maximum price of a hotel night": "policy.docx",
    "how do I reset the pump": "manual.pdf",
}


async def test_upload_when_watched_then_the_job_is_seen_from_its_start_to_done(client: AsyncClient) -> None:
    kb = await make_kb(client)
    reply = await client.upload_document(kb, b"The lift is serviced each May.", name="lift.txt")
    seen = [job async for job in client.watch_job(reply.job_id)]
    assert reply.outcome == document_pb2.UPLOAD_OUTCOME_NEW
    assert seen[-1].state == job_pb2.JOB_STATE_DONE
    assert {entry.stage for entry in seen[-1].progress} >= {"parse", "chunk", "write"}
    assert all(entry.done == entry.total for entry in seen[-1].progress)
    document = await client.get_document(reply.document.id)
    assert (document.state, document.retrievable, document.chunk_count) == (document_pb2.DOCUMENT_STATE_DONE, True, 1)


async def test_search_when_five_formats_are_in_then_each_question_finds_its_file_in_every_mode(
    client: AsyncClient,
) -> None:
    kb = await make_kb(client)
    for name, content in _FILES.items():
        await put(client, kb, name, content)
    kinds = {document.name: document.kind async for document in client.list_documents(kb)}
    assert kinds == {
        "handbook.md": document_pb2.DOCUMENT_KIND_MARKDOWN,
        "notes.txt": document_pb2.DOCUMENT_KIND_TEXT,
        "faq.html": document_pb2.DOCUMENT_KIND_HTML,
        "policy.docx": document_pb2.DOCUMENT_KIND_DOCX,
        "manual.pdf": document_pb2.DOCUMENT_KIND_PDF,
    }
    for mode in (pb.SEARCH_MODE_HYBRID, pb.SEARCH_MODE_SEMANTIC):
        for question, name in _QUESTIONS.items():
            assert names(await client.search(question, kb, mode=mode))[0] == name, (question, mode)
    reply = await client.search("reset pump", kb, mode=pb.SEARCH_MODE_KEYWORD)
    assert names(reply)[0] == "manual.pdf"
    assert (reply.passages[0].first_page, reply.passages[0].last_page) >= (1, 1)


@pytest.mark.parametrize("mode", _MODES)
async def test_search_when_asked_in_a_mode_then_scores_and_stages_are_those_of_the_mode(
    client: AsyncClient, mode: pb.SearchMode.ValueType
) -> None:
    kb = await make_kb(client)
    await put(client, kb, "travel.md", "# Rail\n\nThe company pays for rail travel in second class.")
    await put(client, kb, "coffee.txt", "The coffee machine is cleaned each Friday.")
    reply = await client.search("who pays for rail travel?", kb, mode=mode)
    best = reply.passages[0]
    assert best.document_name == "travel.md"
    assert list(best.section)[-1] == "Rail"
    assert "second class" in best.text
    dense, keyword = mode != pb.SEARCH_MODE_KEYWORD, mode != pb.SEARCH_MODE_SEMANTIC
    assert (best.scores.HasField("dense"), best.scores.HasField("bm25")) == (dense, keyword)
    assert best.scores.fused_rank == 1
    assert best.scores.matched_by == (
        pb.MATCHED_BY_BOTH if dense and keyword else pb.MATCHED_BY_SEMANTIC if dense else pb.MATCHED_BY_KEYWORD
    )
    stages = {stage.stage: stage for stage in reply.stages}
    assert {"plan", "embed", "query", "fuse", "fetch"} <= set(stages)
    assert all(stage.state != pb.STAGE_STATE_DEGRADED for stage in reply.stages)
    assert 0 < reply.total_ms < 30_000


async def test_search_when_top_k_differs_then_the_shorter_list_begins_the_longer(client: AsyncClient) -> None:
    kb = await make_kb(client, chunking=chunked(12))
    text = "\n\n".join(
        f"Rule {n}: travel by rail needs approval number {n} from the manager of team {n}." for n in range(30)
    )
    await put(client, kb, "rules.txt", text)
    for mode in _MODES:
        eight = await client.search("approval for rail travel", kb, top_k=8, mode=mode)
        three = await client.search("approval for rail travel", kb, top_k=3, mode=mode)
        assert len(eight.passages) == 8
        assert [p.chunk_id for p in three.passages] == [p.chunk_id for p in eight.passages][:3]


async def test_retrieve_when_asked_for_blocks_then_the_context_names_its_sources(client: AsyncClient) -> None:
    kb = await make_kb(client)
    await put(client, kb, "travel.md", "# Rail\n\nThe company pays for rail travel in second class.")
    reply = await client.retrieve("who pays for rail travel?", kb, format=pb.CONTEXT_FORMAT_BLOCKS)
    assert reply.context.text.startswith("=== SOURCE: travel.md > Rail")
    assert reply.context.text.rstrip().endswith("=== END ===")
    assert "second class" in reply.context.text
    assert list(reply.context.passages) == [0]
    assert reply.context.token_count > 0


async def test_list_blocks_when_pages_are_small_then_they_join_to_the_whole_document(client: AsyncClient) -> None:
    kb = await make_kb(client)
    document = await put(client, kb, "a.md", "# One\n\nFirst paragraph.\n\n- a\n- b\n\n# Two\n\nLast paragraph.")
    whole = [block async for block in client.list_blocks(document.id)]
    paged = [block async for block in client.list_blocks(document.id, page_size=1)]
    assert paged == whole
    assert [block.kind for block in whole[:2]] == [document_pb2.BLOCK_KIND_HEADING, document_pb2.BLOCK_KIND_PARAGRAPH]
    assert [block.text for block in whole if block.kind == document_pb2.BLOCK_KIND_HEADING] == ["One", "Two"]
    assert all(second.start > first.end for first, second in itertools.pairwise(whole))


async def test_get_page_routes_when_a_pdf_was_read_then_there_is_one_for_each_page(client: AsyncClient) -> None:
    kb = await make_kb(client)
    document = await put(client, kb, "two.pdf", pdf_file("The first page of text.", "The second page of text."))
    assert document.page_count == 2
    assert await client.get_page_routes(document.id) == ["TEXT", "TEXT"]


async def test_search_when_filtered_then_only_documents_that_match_are_found(client: AsyncClient) -> None:
    kb = await make_kb(client)
    early, late = datetime(2025, 3, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)
    facts = {
        "a.txt": document_metadata(author="Ada", tags=["rail", "old"], updated_time=early, labels={"year": 2025}),
        "b.txt": document_metadata(
            author="Bob", tags=["rail"], updated_time=late, labels={"year": 2026, "draft": True}
        ),
        "c.txt": document_metadata(document_type="policy", title="Rail rules", labels={"team": "ops"}),
    }
    for name, metadata in facts.items():
        await put(client, kb, name, f"Rail travel is paid by the company, says {name}.", metadata=metadata)
    expected = [
        (filters.equals("author", "Ada"), {"a.txt"}),
        (filters.is_in("author", ["Ada", "Bob"]), {"a.txt", "b.txt"}),
        (filters.equals("tags", "old"), {"a.txt"}),
        (filters.equals("labels.year", 2026), {"b.txt"}),
        (filters.between("labels.year", gte=2025, lt=2026), {"a.txt"}),
        (filters.equals("labels.draft", True), {"b.txt"}),
        (filters.exists("labels.team"), {"c.txt"}),
        (filters.between("updated_time", gt=early), {"b.txt"}),
        (filters.text("title", "rules"), {"c.txt"}),
        (filters.equals("document_type", "policy"), {"c.txt"}),
        (filters.equals("name", "b.txt"), {"b.txt"}),
        (filters.negate(filters.equals("labels.draft", True)), {"a.txt", "c.txt"}),
        (filters.negate(filters.equals("author", "Ada")), {"b.txt", "c.txt"}),
        (filters.all_of(filters.equals("tags", "rail"), filters.negate(filters.exists("labels.draft"))), {"a.txt"}),
        (filters.any_of(filters.equals("author", "Ada"), filters.equals("labels.team", "ops")), {"a.txt", "c.txt"}),
        (filters.is_in("author", []), set[str]()),
        (filters.equals("author", "Eve"), set[str]()),
    ]
    for condition, wanted in expected:
        for mode in _MODES:
            reply = await client.search("who pays for rail travel", kb, filter=condition, mode=mode)
            assert set(names(reply)) == wanted, (condition, mode)


async def test_update_document_when_metadata_changes_then_filters_see_it_and_vectors_stay(
    product: Product, client: AsyncClient
) -> None:
    kb = await make_kb(client)
    document = await put(
        client, kb, "a.txt", "Rail travel is paid.", metadata=document_metadata(author="Ada", labels={"team": "ops"})
    )
    before = await client.search("rail travel", kb, mode=pb.SEARCH_MODE_SEMANTIC)
    await client.update_document(document.id, document_metadata(author="Bob"), update_mask=["author"])
    await until(lambda: jobs_ended(client, kb), what="the end of the update")
    bob, ada = filters.equals("author", "Bob"), filters.equals("author", "Ada")
    after = await client.search("rail travel", kb, filter=bob, mode=pb.SEARCH_MODE_SEMANTIC)
    assert [(p.chunk_id, p.document_version, p.scores.dense.score, p.author) for p in after.passages] == [
        (p.chunk_id, p.document_version, p.scores.dense.score, "Bob") for p in before.passages
    ]
    assert names(await client.search("rail travel", kb, filter=ada)) == []
    assert names(await client.search("rail travel", kb, filter=filters.equals("labels.team", "ops"))) == ["a.txt"]
    kinds = {job.kind async for job in client.list_jobs(kb)}
    assert kinds == {job_pb2.JOB_KIND_INGEST, job_pb2.JOB_KIND_UPDATE_METADATA}
    assert len((await stored(product.data_dir, "acme", kb)).points) == 1


async def test_search_when_two_knowledge_bases_are_merged_then_one_list_ranks_both(client: AsyncClient) -> None:
    first, second = await make_kb(client, "one"), await make_kb(client, "two")
    await put(client, first, "rail.txt", "Rail travel is paid by the company.")
    await put(client, second, "air.txt", "Air travel is paid by the customer.")
    reply = await client.search("who pays for air travel", [first, second], combination=pb.COMBINATION_MERGED)
    assert names(reply) == ["air.txt", "rail.txt"]
    assert [p.scores.fused_rank for p in reply.passages] == [1, 2]
