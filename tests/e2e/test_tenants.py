"""What is another tenant's behaves like what does not exist, on every method; roles bound what a key may do."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from pergamon.client import AsyncClient, AuthenticationError, PergamonError, PermissionDeniedError
from pergamon.client.metadata import document_metadata
from pergamon.ingestor.v1 import document_pb2, document_pb2_grpc, job_pb2, job_pb2_grpc
from pergamon.ingestor.v1 import knowledge_base_pb2 as kb_pb2
from pergamon.ingestor.v1 import knowledge_base_pb2_grpc as kb_grpc
from pergamon.retriever.v1 import retriever_pb2, retriever_pb2_grpc

from services.domain.ids import new_id
from tests.helpers.product import Product, key_of, make_kb, names, put


@dataclass(frozen=True, slots=True, kw_only=True)
class Ids:
    kb: str
    document: str
    job: str


def unknown() -> Ids:
    return Ids(kb=new_id("kb"), document=new_id("doc"), job=new_id("job"))


Stub = Callable[[grpc.aio.Channel], object]
_KB, _DOCUMENTS, _JOBS = (
    kb_grpc.KnowledgeBaseServiceStub,
    document_pb2_grpc.DocumentServiceStub,
    job_pb2_grpc.JobServiceStub,
)
_RETRIEVER = retriever_pb2_grpc.RetrieverServiceStub


def _search(ids: Ids) -> retriever_pb2.SearchRequest:
    return retriever_pb2.SearchRequest(query="rail", knowledge_base_ids=[ids.kb])


def _header(ids: Ids) -> document_pb2.UploadHeader:
    return document_pb2.UploadHeader(knowledge_base_id=ids.kb, name="a.txt")


#: Every method that takes an id, with a request that is in order but for the id.
METHODS: dict[str, tuple[Stub, Callable[[Ids], Message]]] = {
    "GetKnowledgeBase": (_KB, lambda ids: kb_pb2.GetKnowledgeBaseRequest(knowledge_base_id=ids.kb)),
    "UpdateKnowledgeBase": (
        _KB,
        lambda ids: kb_pb2.UpdateKnowledgeBaseRequest(
            knowledge_base=kb_pb2.KnowledgeBase(id=ids.kb, name="mine"), update_mask=FieldMask(paths=["name"])
        ),
    ),
    "DeleteKnowledgeBase": (_KB, lambda ids: kb_pb2.DeleteKnowledgeBaseRequest(knowledge_base_id=ids.kb)),
    "UploadDocument": (_DOCUMENTS, lambda ids: document_pb2.UploadDocumentRequest(header=_header(ids))),
    "CreateDocument": (
        _DOCUMENTS,
        lambda ids: document_pb2.CreateDocumentRequest(header=_header(ids), data=b"Mine."),
    ),
    "GetDocument": (_DOCUMENTS, lambda ids: document_pb2.GetDocumentRequest(document_id=ids.document)),
    "ListDocuments": (_DOCUMENTS, lambda ids: document_pb2.ListDocumentsRequest(knowledge_base_id=ids.kb)),
    "UpdateDocument": (
        _DOCUMENTS,
        lambda ids: document_pb2.UpdateDocumentRequest(
            document_id=ids.document, metadata=document_metadata(author="Eve"), update_mask=FieldMask(paths=["author"])
        ),
    ),
    "DeleteDocument": (_DOCUMENTS, lambda ids: document_pb2.DeleteDocumentRequest(document_id=ids.document)),
    "ListBlocks": (_DOCUMENTS, lambda ids: document_pb2.ListBlocksRequest(document_id=ids.document)),
    "GetJob": (_JOBS, lambda ids: job_pb2.GetJobRequest(job_id=ids.job)),
    "ListJobs": (_JOBS, lambda ids: job_pb2.ListJobsRequest(knowledge_base_id=ids.kb)),
    "WatchJob": (_JOBS, lambda ids: job_pb2.WatchJobRequest(job_id=ids.job)),
    "CancelJob": (_JOBS, lambda ids: job_pb2.CancelJobRequest(job_id=ids.job)),
    "Search": (_RETRIEVER, _search),
    "Retrieve": (_RETRIEVER, lambda ids: retriever_pb2.RetrieveRequest(search=_search(ids))),
}
#: Methods that take no id of a tenant's thing.
FREE = {"CreateKnowledgeBase", "ListKnowledgeBases"}


async def _call(product: Product, key: str, method: str, ids: Ids) -> grpc.aio.AioRpcError | None:
    stub_type, request_of = METHODS[method]
    request, metadata = request_of(ids), (("authorization", f"Bearer {key_of(key)}"),)
    async with grpc.aio.insecure_channel(product.target) as channel:
        call = getattr(stub_type(channel), method)
        try:
            if method == "UploadDocument":
                await call(iter([request, document_pb2.UploadDocumentRequest(data=b"Mine.")]), metadata=metadata)
            elif method == "WatchJob":
                async for _ in call(request, metadata=metadata):
                    break
            else:
                await call(request, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            return error
    return None


@pytest.fixture
async def theirs(client: AsyncClient) -> AsyncIterator[Ids]:
    """A knowledge base, document and job of the tenant acme."""
    kb = await make_kb(client, "theirs")
    reply = await client.upload_document(kb, b"Rail travel is paid by the company.", name="a.txt")
    await client.wait_for_job(reply.job_id, timeout_s=30)
    yield Ids(kb=kb, document=reply.document.id, job=reply.job_id)
    await client.delete_knowledge_base(kb)


async def test_methods_when_listed_by_reflection_then_every_one_of_the_tenant_services_is_covered(
    product: Product,
) -> None:
    with grpc.insecure_channel(product.target) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        services = [name for name in database.get_services() if name.startswith("pergamon.")]
        found = {
            method.name
            for name in services
            if ".ingestor." in name or ".retriever." in name
            for file in [database.FindFileContainingSymbol(name)]
            for service in file.service
            for method in service.method
        }
    assert found == METHODS.keys() | FREE


async def test_every_method_when_given_ids_of_another_tenant_then_it_answers_as_for_unknown_ones(
    product: Product, client: AsyncClient, theirs: Ids
) -> None:
    nowhere = unknown()
    for method in METHODS:
        foreign = await _call(product, "globex", method, theirs)
        missing = await _call(product, "globex", method, nowhere)
        assert foreign is not None, f"{method} answered another tenant"
        assert missing is not None, f"{method} found what does not exist"
        said = [
            str(error.details()).replace(ids.kb, "*").replace(ids.document, "*").replace(ids.job, "*")
            for error, ids in ((foreign, theirs), (missing, nowhere))
        ]
        assert (foreign.code(), said[0]) == (missing.code(), said[1]), method
        assert foreign.code() is grpc.StatusCode.NOT_FOUND, method
    document = await client.get_document(theirs.document)
    assert (document.metadata.author, document.retrievable) == ("", True)
    assert (await client.get_knowledge_base(theirs.kb)).name == "theirs"
    assert [found.name async for found in client.list_documents(theirs.kb)] == ["a.txt"]


async def test_search_when_one_of_several_knowledge_bases_is_foreign_then_nothing_is_answered(
    client: AsyncClient, stranger: AsyncClient, theirs: Ids
) -> None:
    own = await make_kb(stranger, "own")
    await put(stranger, own, "b.txt", "Rail travel is paid by the customer.")
    with pytest.raises(PergamonError) as refused:
        await stranger.search("rail travel", [own, theirs.kb])
    assert refused.value.reason == "KNOWLEDGE_BASE_NOT_FOUND"
    assert names(await stranger.search("who pays for rail travel", own)) == ["b.txt"]
    assert theirs.kb not in [kb.id async for kb in stranger.list_knowledge_bases()]


_WRITES: dict[str, Callable[[AsyncClient, Ids], Awaitable[object]]] = {
    "create": lambda c, _: c.create_knowledge_base("no"),
    "update": lambda c, ids: c.update_knowledge_base(ids.kb, name="no"),
    "delete": lambda c, ids: c.delete_knowledge_base(ids.kb),
    "upload": lambda c, ids: c.upload_document(ids.kb, b"No.", name="no.txt"),
    "update document": lambda c, ids: c.update_document(ids.document, document_metadata(author="no")),
    "delete document": lambda c, ids: c.delete_document(ids.document),
    "cancel": lambda c, ids: c.cancel_job(ids.job),
}


async def test_writes_when_the_key_is_a_readers_then_each_is_refused_and_reads_work(
    product: Product, theirs: Ids
) -> None:
    async with product.client("acme-reader") as reader:
        for name, write in _WRITES.items():
            with pytest.raises(PermissionDeniedError) as refused:
                await write(reader, theirs)
            assert refused.value.reason == "PERMISSION_DENIED", name
            assert refused.value.metadata["required"] == "writer"
        assert names(await reader.search("rail travel", theirs.kb)) == ["a.txt"]
        assert (await reader.get_document(theirs.document)).name == "a.txt"
        assert [job.id async for job in reader.list_jobs(theirs.kb)] == [theirs.job]


async def test_writes_when_the_key_is_a_writers_then_they_work(product: Product) -> None:
    async with product.client("acme-writer") as writer:
        kb = await make_kb(writer, "written")
        await put(writer, kb, "a.txt", "Rail travel is paid.")
        await writer.delete_knowledge_base(kb)


@pytest.mark.parametrize("key", ["", "nobody-knows-this-key"])
async def test_calls_when_the_key_is_missing_or_unknown_then_they_are_refused(product: Product, key: str) -> None:
    async with product.client(key) as nobody:
        for call in (
            anext(nobody.list_knowledge_bases()),
            nobody.search("rail", new_id("kb")),
            nobody.embed(["rail"]),
            nobody.rerank("rail", ["rail"]),
            nobody.upload_document(new_id("kb"), b"x", name="x"),
        ):
            with pytest.raises(AuthenticationError) as refused:
                await call
            assert refused.value.reason == "UNAUTHENTICATED"
