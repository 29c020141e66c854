"""The upload of a document: any size, bounded memory, safe to repeat."""

import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import cached_property

from grpc import StatusCode, aio

from pergamon.client._calls import STREAM_TIMEOUT_S
from pergamon.client._documents import DocumentMethods
from pergamon.client._streams import exchange
from pergamon.client._upload_source import Content, UploadSource, open_source
from pergamon.client.errors import InternalError
from pergamon.ingestor.v1 import document_pb2 as pb

#: Called with the bytes sent so far and the bytes in all, 0 where that is unknown.
Progress = Callable[[int, int], None]

_METHOD = f"/{pb.DESCRIPTOR.services_by_name['DocumentService'].full_name}/UploadDocument"


class UploadMethods(DocumentMethods):
    """Puts documents in."""

    @cached_property
    def _upload(self) -> aio.StreamStreamMultiCallable[pb.UploadDocumentRequest, pb.UploadDocumentResponse]:
        # Called as a stream in both directions, which is the same on the wire: the stub's call loses the server's
        # answer when it comes before the last piece is sent, as to a repeated request_id.
        return self._channels.of("ingestor").stream_stream(
            _METHOD,
            request_serializer=pb.UploadDocumentRequest.SerializeToString,
            response_deserializer=pb.UploadDocumentResponse.FromString,
        )

    async def upload_document(
        self,
        knowledge_base_id: str,
        content: Content,
        *,
        name: str | None = None,
        metadata: pb.DocumentMetadata | None = None,
        on_duplicate: pb.DuplicatePolicy.ValueType = pb.DUPLICATE_POLICY_REJECT,
        password: str = "",
        request_id: str | None = None,
        progress: Progress | None = None,
        timeout_s: float | None = None,
    ) -> pb.UploadDocumentResponse:
        """Upload a document: a path (str or PathLike), bytes, or a file open for reading bytes.

        `name` is the file's own unless given; it decides what is replaced. The content goes in pieces of 256 KiB, with
        its sha256. A repeat with the same `request_id` returns the first answer; unset, one is made, so that a broken
        upload is repeated from its start (`progress` starts again too) - but for a stream that cannot be read twice.
        `progress` is called in the event loop with (bytes sent, bytes in all or 0). `timeout_s` unset: an hour.

        Follow the work with `watch_job(response.job_id)`, which is empty when there is nothing to do.

        >>> uploaded = await client.upload_document("kb_1", b"# Travel", name="travel.md")
        >>> job = await client.wait_for_job(uploaded.job_id)
        """
        call = self._calls.begin("ingestor", timeout_s, STREAM_TIMEOUT_S)
        async with open_source(content, name) as source:
            header = pb.UploadHeader(
                knowledge_base_id=knowledge_base_id,
                name=source.name,
                metadata=metadata,
                on_duplicate=on_duplicate,
                request_id=request_id or uuid.uuid4().hex,
                sha256=source.sha256 or "",
                password=password,
            )

            async def attempt() -> pb.UploadDocumentResponse:
                stream = self._upload(timeout=call.left_s(), metadata=call.metadata)
                requests = _requests(header, source, progress)
                replies = exchange(stream, requests, reply_type=pb.UploadDocumentResponse, request_id=call.request_id)
                answer: pb.UploadDocumentResponse | None = None
                async with aclosing(replies):
                    # To the end, where the status is: a server may send an empty message beside an error.
                    async for reply in replies:
                        answer = reply
                if answer is not None:
                    return answer
                message = "the server ended the upload without an answer"
                raise InternalError(StatusCode.INTERNAL, "", message, request_id=call.request_id)

            return await self._calls.attempts(call, attempt, repeatable=source.repeatable)


async def _requests(
    header: pb.UploadHeader, source: UploadSource, progress: Progress | None
) -> AsyncGenerator[pb.UploadDocumentRequest, None]:
    yield pb.UploadDocumentRequest(header=header)
    sent = 0
    async for piece in source.pieces():
        yield pb.UploadDocumentRequest(data=piece)
        sent += len(piece)  # asked for the next one: this one is sent
        if progress:
            progress(sent, source.size_bytes or 0)
