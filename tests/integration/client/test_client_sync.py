"""The blocking client: threads, iterators, running loops, and its end."""

import asyncio
import inspect
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from pergamon.client import (
    AsyncClient,
    Client,
    EmbedStreamRequest,
    NotFoundError,
    PergamonError,
    embed_request,
)
from pergamon.embedder.v1 import embedder_pb2 as embedder
from pergamon.ingestor.v1 import document_pb2, job_pb2

from tests.integration.client.scripted import EMBEDDED, UNAVAILABLE, UPLOADED, Hang, Refusal, Services, job, serving


class ServerThread:
    """A scripted server in an event loop and thread of its own."""

    def __init__(self) -> None:
        self.services = Services()
        self.target = ""
        self.loop = asyncio.new_event_loop()
        self._up, self._end = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=self.loop.run_until_complete, args=(self._serve(),))

    async def _serve(self) -> None:
        async with serving(self.services) as served:
            self.target = served.target
            self._up.set()
            await self._end.wait()

    def __enter__(self) -> "ServerThread":
        self._thread.start()
        assert self._up.wait(10)
        return self

    def __exit__(self, *_) -> None:
        self.loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)
        self.loop.close()


@pytest.fixture
def server():
    with ServerThread() as running:
        yield running


@pytest.fixture
def blocking_client(server):
    with Client(server.target, timeout_s=20) as opened:
        yield opened


def test_client_has_every_method_of_the_async_client_with_its_signature():
    def public(kind):
        return {name: member for name, member in inspect.getmembers(kind, inspect.isfunction) if name[0] != "_"}

    blocking, asynchronous = public(Client), public(AsyncClient)
    assert blocking.keys() - {"close"} == asynchronous.keys() - {"aclose"}
    for name in blocking.keys() - {"close", "embed_stream", "rerank_stream"}:
        assert inspect.signature(blocking[name]).parameters == inspect.signature(asynchronous[name]).parameters


def test_call_from_many_threads_gives_each_its_own_answer(server, blocking_client):
    server.services.embed.will(lambda request: embedder.EmbedResponse(dense_model=request.texts[0]))

    def call(number: int) -> str:
        return blocking_client.embed([str(number)]).dense_model

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(call, range(64))) == [str(number) for number in range(64)]


def test_call_that_fails_raises_in_its_own_thread(server, blocking_client):

    server.services.get_job.will(Refusal(code=grpc.StatusCode.NOT_FOUND, reason="JOB_NOT_FOUND"))
    with pytest.raises(NotFoundError) as caught:
        blocking_client.get_job("job_1")
    assert caught.value.reason == "JOB_NOT_FOUND"


def test_call_when_unavailable_is_repeated(server, blocking_client):
    server.services.embed.will(UNAVAILABLE, EMBEDDED)
    assert blocking_client.embed(["a"]) == EMBEDDED


async def test_call_inside_a_running_loop_works(server, blocking_client):
    server.services.embed.will(EMBEDDED)
    assert blocking_client.embed(["a"]) == EMBEDDED


def test_list_over_pages_is_a_plain_iterator(server, blocking_client):
    def page(name: str, token: str) -> document_pb2.ListDocumentsResponse:
        return document_pb2.ListDocumentsResponse(documents=[document_pb2.Document(name=name)], next_page_token=token)

    server.services.list_documents.will(page("a", "t"), page("b", ""))
    assert [document.name for document in blocking_client.list_documents("kb_1")] == ["a", "b"]


def test_watch_job_left_early_is_cancelled_at_the_server(server, blocking_client):
    hang = Hang()
    server.services.watch.will([job(job_pb2.JOB_STATE_RUNNING, "parse"), hang])
    for seen in blocking_client.watch_job("job_1"):
        assert seen.stage == "parse"
        break
    waiting = asyncio.run_coroutine_threadsafe(hang.cancelled.wait(), server.loop)
    assert waiting.result(10)


def test_embed_stream_draws_a_plain_iterable(server, blocking_client):
    async def echo(requests, context):
        async for request in requests:
            yield embedder.EmbedStreamResponse(id=request.id)

    server.services.embed_stream = echo
    requests = (EmbedStreamRequest(id=str(n), request=embed_request(["t"])) for n in range(5))
    assert [reply.id for reply in blocking_client.embed_stream(requests)] == list("01234")


def test_embed_stream_whose_iterable_fails_raises_that_failure(server, blocking_client):
    async def echo(requests, context):
        async for request in requests:
            yield embedder.EmbedStreamResponse(id=request.id)

    def broken():
        yield EmbedStreamRequest(id="0")
        raise KeyError("source")

    server.services.embed_stream = echo
    with pytest.raises(KeyError, match="source"):
        list(blocking_client.embed_stream(broken()))


def test_upload_sends_the_content(server, blocking_client, tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"content")
    server.services.upload.will(UPLOADED)
    assert blocking_client.upload_document("kb_1", path).job_id == "job_1"
    assert server.services.upload.requests[0][1].data == b"content"


def test_callback_that_calls_the_client_is_refused_instead_of_waiting_for_ever(server, blocking_client):
    server.services.upload.will(UPLOADED)
    with pytest.raises(RuntimeError, match="callback"):
        blocking_client.upload_document(
            "kb_1", b"x", name="a", progress=lambda sent, total: blocking_client.get_job("job_1")
        )


def test_close_during_a_call_ends_it_with_an_error(server):
    hang = Hang()
    server.services.embed.will(hang)
    client = Client(server.target)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.embed, ["a"])
        asyncio.run_coroutine_threadsafe(hang.began.wait(), server.loop).result(10)
        client.close()
        with pytest.raises((PergamonError, RuntimeError), match="closed"):
            waiting.result(10)


def test_client_after_its_end_refuses_calls_and_has_no_thread():
    before = threading.active_count()
    client = Client("127.0.0.1:1")
    client.close()
    client.close()
    assert threading.active_count() == before
    with pytest.raises(RuntimeError, match="closed"):
        client.embed(["a"])


def test_program_that_forgets_to_close_still_ends(server):
    server.services.embed.will(EMBEDDED)
    program = "import sys; from pergamon.client import Client; print(Client(sys.argv[1]).embed(['a']).dense_model)"
    ended = subprocess.run(
        [sys.executable, "-c", program, server.target], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "m\n", "")
