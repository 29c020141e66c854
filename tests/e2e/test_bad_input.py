"""Every bad input has the documented status, a machine-readable reason and, where a field is wrong, its path."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import grpc
import pytest
from pergamon.client import AsyncClient, PergamonError, filters
from pergamon.client.metadata import document_metadata
from pergamon.ingestor.v1 import document_pb2, document_pb2_grpc, job_pb2, knowledge_base_pb2
from pergamon.retriever.v1 import retriever_pb2
from pergamon.type.v1 import filter_pb2

from tests.helpers.files import docx_file, pdf_file, zip_file
from tests.helpers.product import Product, fail_to_put, key_of, make_kb, names, put

INVALID, MISSING, UNMET = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
)
UNKNOWN_KB = "kb_00000000000000000000000000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A call that must fail; `fields` are the paths of its violations."""

    call: Callable[[AsyncClient, str], Awaitable[object]]
    code: grpc.StatusCode = INVALID
    reason: str = "INVALID_REQUEST"
    fields: tuple[str, ...] = ()


def _search(**options: object) -> Callable[[AsyncClient, str], Awaitable[object]]:
    return lambda client, kb: client.search("rail", kb, **options)  # type: ignore[arg-type]


def _upload(content: bytes, **options: object) -> Callable[[AsyncClient, str], Awaitable[object]]:
    return lambda client, kb: client.upload_document(kb, content, **{"name": "x", **options})  # type: ignore[arg-type]


def _create(**options: object) -> Callable[[AsyncClient, str], Awaitable[object]]:
    return lambda client, _: client.create_knowledge_base(**{"name": "bad", **options})  # type: ignore[arg-type]


def _chunking(**sizes: int) -> Callable[[AsyncClient, str], Awaitable[object]]:
    return _create(chunking=knowledge_base_pb2.Chunking(**sizes))


def _filter(condition: filter_pb2.Filter) -> Case:
    return Case(call=_search(filter=condition), reason="INVALID_FILTER", fields=("filter",))


def _nested(depth: int) -> filter_pb2.Filter:
    condition = filters.equals("author", "Ada")
    for _ in range(depth):
        condition = filters.negate(condition)
    return condition


_LONG = "x" * 1001
CASES = {
    "empty query": Case(call=lambda c, kb: c.search("", kb), fields=("query",)),
    "blank query": Case(call=lambda c, kb: c.search(" \t\n", kb), fields=("query",)),
    "long query": Case(call=lambda c, kb: c.search("x" * 9000, kb), fields=("query",)),
    "no knowledge base": Case(call=lambda c, _: c.search("rail", []), fields=("knowledge_base_ids",)),
    "the same knowledge base twice": Case(
        call=lambda c, kb: c.search("rail", [kb, kb]), fields=("knowledge_base_ids",)
    ),
    "unknown knowledge base": Case(
        call=lambda c, _: c.search("rail", UNKNOWN_KB), code=MISSING, reason="KNOWLEDGE_BASE_NOT_FOUND"
    ),
    "malformed knowledge base id": Case(
        call=lambda c, _: c.search("rail", "../etc"), code=MISSING, reason="KNOWLEDGE_BASE_NOT_FOUND"
    ),
    "top_k 0": Case(call=_search(top_k=0), fields=("top_k",)),
    "top_k 1000": Case(call=_search(top_k=1000), fields=("top_k",)),
    "candidates below top_k": Case(call=_search(top_k=20, candidates=10), fields=("candidates",)),
    "candidates 1000": Case(call=_search(candidates=1000), fields=("candidates",)),
    "threshold 2": Case(call=_search(similarity_threshold=2.0), fields=("similarity_threshold",)),
    "weight NaN": Case(call=_search(dense_weight=float("nan")), fields=("dense_weight",)),
    "weight below 0": Case(call=_search(bm25_weight=-1.0), fields=("bm25_weight",)),
    "unknown mode": Case(call=_search(mode=99), fields=("mode",)),
    "three things wrong at once": Case(
        call=lambda c, kb: c.search("", kb, top_k=0, candidates=999), fields=("query", "top_k", "candidates")
    ),
    "filter on an unknown field": _filter(filters.equals("colour", "red")),
    "filter without an operator": _filter(filter_pb2.Filter()),
    "filter too deep": _filter(_nested(40)),
    "filter with an empty list": _filter(filter_pb2.Filter(**{"and": filter_pb2.FilterList()})),
    "filter range over text": _filter(filters.between("author", gte=3)),
    "retrieve too many blocks": Case(call=lambda c, kb: c.retrieve("rail", kb, max_blocks=51), fields=("max_blocks",)),
    "retrieve too many tokens": Case(
        call=lambda c, kb: c.retrieve("rail", kb, budget_tokens=10**6), fields=("budget_tokens",)
    ),
    "retrieve with an empty query": Case(call=lambda c, kb: c.retrieve(" ", kb), fields=("search.query",)),
    "0-byte file": Case(call=_upload(b""), reason="EMPTY_FILE", fields=("data",)),
    "zip archive": Case(call=_upload(zip_file()), reason="UNSUPPORTED_FORMAT"),
    "program": Case(call=_upload(b"\x7fELF" + bytes(range(256)) * 8, name="a.pdf"), reason="UNSUPPORTED_FORMAT"),
    "encrypted PDF": Case(call=_upload(pdf_file("secret", password="pw")), reason="PASSWORD_REQUIRED"),
    "encrypted PDF, wrong password": Case(
        call=_upload(pdf_file("secret", password="pw"), password="no"), reason="PASSWORD_REQUIRED"
    ),
    "file above the limit": Case(call=_upload(b"a" * (8 * 2**20 + 1)), reason="FILE_TOO_LARGE"),
    "upload to an unknown knowledge base": Case(
        call=lambda c, _: c.upload_document(UNKNOWN_KB, b"x", name="x"), code=MISSING, reason="KNOWLEDGE_BASE_NOT_FOUND"
    ),
    "upload with a blank name": Case(call=_upload(b"text", name="  "), fields=("header.name",)),
    "upload with a long title": Case(
        call=_upload(b"text", metadata=document_metadata(title=_LONG)), fields=("header.metadata.title",)
    ),
    "upload with a bad label": Case(
        call=_upload(b"text", metadata=document_metadata(labels={"Bad Key": 1})),
        fields=("header.metadata.labels['Bad Key']",),
    ),
    "upload with an unknown policy": Case(call=_upload(b"text", on_duplicate=9), fields=("header.on_duplicate",)),
    "knowledge base without a name": Case(call=_create(name=" "), fields=("knowledge_base.name",)),
    "knowledge base of an unknown model": Case(
        call=_create(embedding_model="nonesuch"), code=MISSING, reason="MODEL_NOT_FOUND"
    ),
    "knowledge base of a reranker": Case(
        call=_create(embedding_model="ms-marco-minilm-l12"), code=UNMET, reason="WRONG_MODEL_KIND"
    ),
    "overlap above size": Case(call=_chunking(size=10, overlap=10), fields=("knowledge_base.chunking.overlap",)),
    "minimum above size": Case(call=_chunking(size=10, min_size=11), fields=("knowledge_base.chunking.min_size",)),
    "result count 101": Case(
        call=_create(retrieval=knowledge_base_pb2.RetrievalDefaults(result_count=101)),
        fields=("knowledge_base.retrieval.result_count",),
    ),
    "change of the embedding model": Case(
        call=lambda c, kb: c.update_knowledge_base(kb, update_mask=["embedding_model"]),
        code=UNMET,
        reason="IMMUTABLE_FIELD",
    ),
    "unknown path in a mask": Case(
        call=lambda c, kb: c.update_knowledge_base(kb, update_mask=["colour"]),
        reason="UNKNOWN_FIELD_MASK_PATH",
        fields=("update_mask",),
    ),
    "bad page token": Case(call=lambda c, kb: _page(c, kb, "%%%"), reason="INVALID_PAGE_TOKEN", fields=("page_token",)),
    "page of 5000": Case(call=lambda c, kb: anext(c.list_documents(kb, page_size=5000)), fields=("page_size",)),
    "model not installed": Case(
        call=_create(embedding_model="hf:nobody/nothing"), code=MISSING, reason="MODEL_NOT_FOUND"
    ),
    "embedding with an unknown model": Case(
        call=lambda c, _: c.embed(["rail"], dense_model="nonesuch"), code=MISSING, reason="MODEL_NOT_FOUND"
    ),
    "dense vectors of a reranker": Case(
        call=lambda c, _: c.embed(["rail"], dense_model="ms-marco-minilm-l12"), code=UNMET, reason="WRONG_MODEL_KIND"
    ),
    "no texts": Case(call=lambda c, _: c.embed([]), fields=("texts",)),
}


async def _page(client: AsyncClient, kb: str, token: str) -> object:
    request = document_pb2.ListDocumentsRequest(knowledge_base_id=kb, page_token=token)
    method = client._documents.ListDocuments  # the public methods turn pages by themselves
    return await client._calls.unary(method, request, timeout_s=None)


@pytest.fixture(scope="module")
def some_kb() -> dict[str, str]:
    return {}


@pytest.mark.parametrize("name", CASES)
async def test_call_when_its_input_is_bad_then_the_status_reason_and_fields_say_what_is_wrong(
    client: AsyncClient, some_kb: dict[str, str], name: str
) -> None:
    case = CASES[name]
    kb = some_kb.get("id") or some_kb.setdefault("id", await make_kb(client, "bad input"))
    with pytest.raises(PergamonError) as refused:
        await case.call(client, kb)
    error = refused.value
    assert (error.code, error.reason) == (case.code, case.reason), error.message
    found = [field for field, _ in error.violations]
    assert len(found) == len(case.fields) or not case.fields, error.violations
    assert all(seen.startswith(wanted) for seen, wanted in zip(found, case.fields, strict=True)), error.violations
    assert error.message
    assert "Traceback" not in error.message
    assert "/tmp" not in error.message


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("damaged.docx", docx_file("Some text.")[:1500], "UNREADABLE_DOCUMENT"),
        ("damaged.pdf", b"%PDF-1.7\n" + b"garbage " * 400, "UNREADABLE_DOCUMENT"),
        ("empty.docx", docx_file("", heading=""), "NO_TEXT"),
        ("blank.txt", b" \n\n \t \n", "NO_TEXT"),
        ("blank.pdf", pdf_file(""), "NO_TEXT"),
    ],
)
async def test_upload_when_the_file_cannot_be_read_then_it_is_refused_or_fails_with_the_reason(
    client: AsyncClient, name: str, content: bytes, reason: str
) -> None:
    kb = await make_kb(client)
    try:
        failure = await fail_to_put(client, kb, name, content)
    except PergamonError as refused:
        assert (refused.code, refused.reason) == (INVALID, reason), refused.message
        assert [document async for document in client.list_documents(kb)] == []
        return
    assert failure.reason == reason, failure.message
    document = await anext(client.list_documents(kb))
    assert (document.state, document.retrievable) == (document_pb2.DOCUMENT_STATE_FAILED, False)
    assert document.failure.reason == reason


async def test_upload_when_the_password_is_right_then_the_document_is_read_and_the_password_is_nowhere(
    product: Product, client: AsyncClient
) -> None:
    kb = await make_kb(client)
    await put(client, kb, "secret.pdf", pdf_file("The vault code is tulip.", password="sesame-7"), password="sesame-7")
    assert names(await client.search("vault code", kb)) == ["secret.pdf"]
    for path in (product.data_dir / "catalog.db", product.data_dir / "catalog.db-wal"):
        assert b"sesame-7" not in path.read_bytes()
    for blob in (product.data_dir / "blobs" / "acme" / kb).rglob("*"):
        assert not blob.is_file() or b"sesame-7" not in blob.read_bytes()


async def test_upload_when_the_checksum_is_wrong_then_it_is_refused(product: Product, client: AsyncClient) -> None:
    kb = await make_kb(client)
    header = document_pb2.UploadHeader(knowledge_base_id=kb, name="a.txt", sha256="0" * 64)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await _raw(product, document_pb2.CreateDocumentRequest(header=header, data=b"Rail."))
    assert refused.value.code() is INVALID
    assert "received" in (refused.value.details() or "")


async def test_create_document_when_small_then_it_does_what_an_upload_does(
    product: Product, client: AsyncClient
) -> None:
    kb = await make_kb(client)
    header = document_pb2.UploadHeader(knowledge_base_id=kb, name="a.txt")
    reply = await _raw(product, document_pb2.CreateDocumentRequest(header=header, data=b"Rail travel is paid."))
    job = await client.wait_for_job(reply.job_id, timeout_s=30)
    assert job.state == job_pb2.JOB_STATE_DONE
    assert names(await client.search("rail travel", kb)) == ["a.txt"]


async def test_upload_stream_when_it_begins_without_a_header_then_it_is_refused(product: Product) -> None:
    async with grpc.aio.insecure_channel(product.target) as channel:
        stub = document_pb2_grpc.DocumentServiceStub(channel)
        call = stub.UploadDocument(iter([document_pb2.UploadDocumentRequest(data=b"x")]), metadata=_metadata("acme"))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call
    assert refused.value.code() is INVALID
    assert "header" in (refused.value.details() or "")


async def test_search_when_the_reranker_is_unknown_then_the_fused_order_comes_and_the_answer_says_so(
    client: AsyncClient,
) -> None:
    kb = await make_kb(client)
    await put(client, kb, "a.txt", "Rail travel is paid.")
    reply = await client.search("who pays for rail travel", kb, rerank=True, rerank_model="nonesuch")
    assert names(reply) == ["a.txt"]
    (stage,) = (stage for stage in reply.stages if stage.stage == "rerank")
    assert stage.state in (retriever_pb2.STAGE_STATE_DEGRADED, retriever_pb2.STAGE_STATE_SKIPPED)
    assert stage.reason
    assert not reply.passages[0].scores.HasField("rerank")


async def test_search_when_the_message_is_garbage_then_the_server_lives(product: Product, client: AsyncClient) -> None:
    async with grpc.aio.insecure_channel(product.target) as channel:
        method = channel.unary_unary("/pergamon.retriever.v1.RetrieverService/Search")
        with pytest.raises(grpc.aio.AioRpcError):
            await method(b"\xff\xff\xff\xff garbage", metadata=_metadata("acme"))
    assert [model.name for model in await client.list_embedding_models()]


async def _raw(product: Product, request: document_pb2.CreateDocumentRequest) -> document_pb2.CreateDocumentResponse:
    async with grpc.aio.insecure_channel(product.target) as channel:
        stub = document_pb2_grpc.DocumentServiceStub(channel)
        return await stub.CreateDocument(request, metadata=_metadata("acme"))


def _metadata(name: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {key_of(name)}"),)
