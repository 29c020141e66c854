"""What happens to documents and knowledge bases over their lives: duplicates, repeats, replacement, deletion."""

import asyncio
import itertools
import os

import pytest
from pergamon.client import AlreadyExistsError, AsyncClient, NotFoundError
from pergamon.client.metadata import document_metadata
from pergamon.ingestor.v1 import document_pb2, job_pb2
from pergamon.retriever.v1 import retriever_pb2 as pb

from services.catalog.catalog import open_catalog
from services.catalog.settings import CatalogSettings
from services.domain.ids import KnowledgeBaseId, TenantId
from services.launch.all_in_one import sqlite_url
from tests.helpers.files import docx_file
from tests.helpers.product import (
    Product,
    blobs_below,
    chunked,
    jobs_ended,
    make_kb,
    names,
    point_count,
    put,
    schema_of_kb,
    stored,
    until,
)


async def test_upload_when_the_bytes_are_there_under_another_name_then_it_is_refused_unless_allowed(
    client: AsyncClient,
) -> None:
    kb = await make_kb(client)
    first = await put(client, kb, "a.txt", "Rail travel is paid.")
    with pytest.raises(AlreadyExistsError) as refused:
        await client.upload_document(kb, b"Rail travel is paid.", name="b.txt")
    assert (refused.value.reason, refused.value.metadata["duplicate_of"]) == ("DUPLICATE_DOCUMENT", first.id)
    assert refused.value.resource == ("document", first.id)
    second = await put(client, kb, "b.txt", "Rail travel is paid.", on_duplicate=document_pb2.DUPLICATE_POLICY_ALLOW)
    assert second.id != first.id
    assert sorted(names(await client.search("rail travel", kb))) in (["a.txt"], ["a.txt", "b.txt"])


async def test_upload_when_nothing_changed_then_nothing_happens_but_new_metadata_is_taken_over(
    product: Product, client: AsyncClient
) -> None:
    kb = await make_kb(client)
    first = await put(client, kb, "a.txt", "Rail travel is paid.", metadata=document_metadata(author="Ada"))
    again = await client.upload_document(kb, b"Rail travel is paid.", name="a.txt")
    assert (again.outcome, again.job_id) == (document_pb2.UPLOAD_OUTCOME_UNCHANGED, "")
    assert again.document.id == first.id
    told = await client.upload_document(
        kb, b"Rail travel is paid.", name="a.txt", metadata=document_metadata(author="Bob")
    )
    assert told.outcome == document_pb2.UPLOAD_OUTCOME_UNCHANGED
    await client.wait_for_job(told.job_id, timeout_s=30)
    assert (await client.get_document(first.id)).metadata.author == "Bob"
    assert len(blobs_below(product.data_dir, "acme", kb)) == 2  # the original and its parse


async def test_upload_when_a_request_id_is_repeated_then_the_first_answer_comes_again(client: AsyncClient) -> None:
    kb = await make_kb(client)
    first = await client.upload_document(kb, b"Rail travel is paid.", name="a.txt", request_id="r-1")
    again = await client.upload_document(kb, b"Rail travel is paid.", name="a.txt", request_id="r-1")
    assert (again.document.id, again.outcome, again.job_id) == (first.document.id, first.outcome, first.job_id)
    with pytest.raises(AlreadyExistsError) as reused:
        await client.upload_document(kb, b"Something else.", name="a.txt", request_id="r-1")
    assert reused.value.reason == "REQUEST_ID_REUSED"
    assert [document.name async for document in client.list_documents(kb)] == ["a.txt"]


async def test_create_knowledge_base_when_a_request_id_is_repeated_then_there_is_one(client: AsyncClient) -> None:
    first = await client.create_knowledge_base("once", request_id="kb-once")
    again = await client.create_knowledge_base("once", request_id="kb-once")
    assert first.id == again.id
    with pytest.raises(AlreadyExistsError) as reused:
        await client.create_knowledge_base("another", request_id="kb-once")
    assert reused.value.reason == "REQUEST_ID_REUSED"


async def test_replacement_when_it_fails_then_the_old_version_stays(product: Product, client: AsyncClient) -> None:
    kb = await make_kb(client)
    old = await put(client, kb, "a.docx", docx_file("The limit for hotels is 140 euros."))
    reply = await client.upload_document(kb, docx_file("", heading=""), name="a.docx")
    assert reply.outcome == document_pb2.UPLOAD_OUTCOME_REPLACEMENT
    job = await client.wait_for_job(reply.job_id, timeout_s=60)
    assert (job.state, job.failure.reason) == (job_pb2.JOB_STATE_FAILED, "NO_TEXT")
    document = await client.get_document(old.id)
    assert document.retrievable
    assert document.failure.reason == "NO_TEXT"
    assert "140 euros" in (await client.search("hotel limit", kb)).passages[0].text
    await until(lambda: jobs_ended(client, kb), what="the clean-up of the failed version")
    found = await stored(product.data_dir, "acme", kb)
    assert found.points == found.live


async def test_replacement_when_chunks_stay_the_same_then_the_new_version_holds_all_of_them(
    product: Product, client: AsyncClient
) -> None:
    kb = await make_kb(client, chunking=chunked(16))
    paragraphs = [f"Rule {n} of the handbook says that team {n} needs approval number {n}." for n in range(12)]
    await put(client, kb, "rules.txt", "\n\n".join(paragraphs))
    old = await client.search("approval number 3", kb, mode=pb.SEARCH_MODE_SEMANTIC, top_k=12)
    paragraphs[5] = "Rule 5 was replaced: zeppelin flights are forbidden."
    document = await put(client, kb, "rules.txt", "\n\n".join(paragraphs))
    new = await client.search("approval number 3", kb, mode=pb.SEARCH_MODE_SEMANTIC, top_k=12)
    assert document.chunk_count == len(new.passages) == 12
    scores = {p.text: p.scores.dense.score for p in old.passages}
    kept = [p for p in new.passages if p.text in scores]
    assert len(kept) == 11
    assert all(p.scores.dense.score == pytest.approx(scores[p.text], abs=1e-6) for p in kept)
    await until(lambda: jobs_ended(client, kb), what="the clean-up of the old version")
    found = await stored(product.data_dir, "acme", kb)
    assert found.points == found.live


async def test_delete_document_when_it_is_being_ingested_then_it_does_not_come_back(
    product: Product, client: AsyncClient
) -> None:
    kb = await make_kb(client, chunking=chunked(20))
    text = "\n\n".join(f"Paragraph {n} tells of zeppelins over town {n} in the year {1900 + n}." for n in range(600))
    reply = await client.upload_document(kb, text.encode(), name="long.txt")
    async for job in client.watch_job(reply.job_id):
        if any(entry.stage == "write" and entry.done > 0 for entry in job.progress):
            break
    await client.delete_document(reply.document.id)
    with pytest.raises(NotFoundError):
        await client.get_document(reply.document.id)
    assert (await client.get_job(reply.job_id)).state == job_pb2.JOB_STATE_CANCELLED
    assert names(await client.search("zeppelins over town", kb)) == []
    await until(lambda: jobs_ended(client, kb), what="the clean-up")
    assert (await stored(product.data_dir, "acme", kb)).points == {}
    assert blobs_below(product.data_dir, "acme", kb) == []
    assert names(await client.search("zeppelins over town", kb)) == []


async def test_cancel_job_when_a_document_is_being_ingested_then_the_document_is_cancelled(client: AsyncClient) -> None:
    kb = await make_kb(client, chunking=chunked(20))
    text = "\n\n".join(f"Paragraph {n} tells of airships over town {n} in the year {1900 + n}." for n in range(600))
    reply = await client.upload_document(kb, text.encode(), name="long.txt")
    assert (await client.cancel_job(reply.job_id)).state == job_pb2.JOB_STATE_CANCELLED
    document = await client.get_document(reply.document.id)
    assert (document.state, document.retrievable) == (document_pb2.DOCUMENT_STATE_CANCELLED, False)
    assert names(await client.search("airships", kb)) == []


async def test_delete_knowledge_base_when_it_returns_then_nothing_is_found_and_soon_nothing_is_stored(
    product: Product, client: AsyncClient
) -> None:
    kb = await make_kb(client)
    document = await put(client, kb, "a.txt", "Rail travel is paid.")
    async with open_catalog(CatalogSettings(url=sqlite_url(product.data_dir))) as catalog:
        schema = schema_of_kb(await catalog.knowledge_bases.get(TenantId("acme"), KnowledgeBaseId(kb)))
        assert await point_count(product.data_dir, schema, kb) == 1
        assert len(blobs_below(product.data_dir, "acme", kb)) == 2
        await client.delete_knowledge_base(kb)
        calls = {
            "get": client.get_knowledge_base(kb),
            "document": client.get_document(document.id),
            "search": client.search("rail travel", kb),
            "upload": client.upload_document(kb, b"More.", name="b.txt"),
            "list": anext(client.list_documents(kb)),
            "delete": client.delete_knowledge_base(kb),
        }
        answers = await asyncio.gather(*calls.values(), return_exceptions=True)
        kinds = {name: type(answer) for name, answer in zip(calls, answers, strict=True)}
        assert kinds == dict.fromkeys(calls, NotFoundError)
        assert kb not in [entry.id async for entry in client.list_knowledge_bases()]

        async def purged() -> bool:
            return await catalog.knowledge_bases.get_deleted(KnowledgeBaseId(kb)) is None

        await until(purged, what="the purge")
    assert await point_count(product.data_dir, schema, kb) == 0
    assert blobs_below(product.data_dir, "acme", kb) == []
    assert not (product.data_dir / "blobs" / "acme" / kb).exists()


async def test_scratch_when_uploads_have_ended_then_it_is_empty(product: Product, client: AsyncClient) -> None:
    kb = await make_kb(client)
    await put(client, kb, "a.txt", "Rail travel is paid.")
    scratch = product.data_dir / "scratch"
    assert os.listdir(scratch) == []


async def test_replacement_when_searched_all_the_time_then_every_answer_is_of_one_version(
    product: Product, client: AsyncClient
) -> None:
    kb = await make_kb(client, chunking=chunked(15))

    def version(number: int) -> str:
        word = f"edition{number:03}"
        return "\n\n".join(f"Clause {n} of {word}: rail travel in zone {n} is paid by unit {n}." for n in range(20))

    await put(client, kb, "terms.txt", version(0))
    stop = asyncio.Event()
    seen: list[set[str]] = []
    versions: list[set[int]] = []

    async def ask(mode: pb.SearchMode.ValueType) -> None:
        while not stop.is_set():
            reply = await client.search("rail travel paid by unit", kb, mode=mode, top_k=10)
            seen.append({word.strip(":") for p in reply.passages for word in p.text.split() if "edition" in word})
            versions.append({p.document_version for p in reply.passages})

    asking = [asyncio.create_task(ask(mode)) for mode in (pb.SEARCH_MODE_HYBRID, pb.SEARCH_MODE_KEYWORD)]
    try:
        for number in range(1, 16):
            await put(client, kb, "terms.txt", version(number))
    finally:
        stop.set()
        await asyncio.gather(*asking)
    assert len(seen) > 30
    assert {len(words) for words in seen} == {1}, [words for words in seen if len(words) != 1][:5]
    assert {len(found) for found in versions} == {1}
    for earlier, later in itertools.pairwise(
        sorted((min(v), next(iter(w))) for v, w in zip(versions, seen, strict=True))
    ):
        assert earlier[1] <= later[1]
    assert len({next(iter(words)) for words in seen}) > 5
    await until(lambda: jobs_ended(client, kb), what="the clean-up of fifteen versions")
    found = await stored(product.data_dir, "acme", kb)
    assert found.points == found.live
    assert len(blobs_below(product.data_dir, "acme", kb)) == 2
