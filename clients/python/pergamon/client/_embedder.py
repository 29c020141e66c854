"""The methods of the embedder."""

import hashlib
from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from contextlib import aclosing
from functools import cached_property

from pergamon.client._calls import STREAM_TIMEOUT_S
from pergamon.client._core import ServiceMethods
from pergamon.client._streams import exchange
from pergamon.embedder.v1 import embedder_pb2 as pb
from pergamon.embedder.v1.embedder_pb2_grpc import EmbedderServiceStub
from pergamon.type.v1.model_pb2 import Model
from pergamon.type.v1.vectors_pb2 import DataType


def embed_request(
    texts: Sequence[str],
    *,
    input_type: pb.InputType.ValueType = pb.INPUT_TYPE_PASSAGE,
    dense: bool = True,
    dense_model: str = "",
    sparse: bool = False,
    sparse_model: str = "",
    bm25_average_length: float = 0.0,
    language: str = "",
    truncation: pb.Truncation.ValueType = pb.TRUNCATION_FAIL,
    priority: pb.Priority.ValueType = pb.PRIORITY_INTERACTIVE,
    data_type: DataType.ValueType = DataType.DATA_TYPE_FLOAT32,
    dimensions: int = 0,
    multi_vector: bool = False,
    multi_vector_model: str = "",
    multi_vector_data_type: DataType.ValueType = DataType.DATA_TYPE_FLOAT32,
    instruction: str | None = None,
) -> pb.EmbedRequest:
    """A batch of texts to embed, for `embed_stream`; the arguments are those of `embed`."""
    if isinstance(texts, str):
        raise TypeError("texts is one string; pass a list of strings")
    return pb.EmbedRequest(
        texts=texts,
        input_type=input_type,
        truncation=truncation,
        priority=priority,
        dense=pb.DenseOutput(model=dense_model, data_type=data_type, dimensions=dimensions) if dense else None,
        sparse=pb.SparseOutput(model=sparse_model, bm25_average_length=bm25_average_length, language=language)
        if sparse
        else None,
        multi_vector=pb.MultiVectorOutput(model=multi_vector_model, data_type=multi_vector_data_type)
        if multi_vector
        else None,
        instruction=instruction,
    )


#: Loading may fetch the model, and unloading waits for calls in work.
_CHANGE_TIMEOUT_S = 600.0


class EmbedderMethods(ServiceMethods):
    """Turns texts into vectors."""

    @cached_property
    def _embedder(self):
        return EmbedderServiceStub(self._channels.of("embedder"))

    async def embed(
        self,
        texts: Sequence[str],
        *,
        input_type: pb.InputType.ValueType = pb.INPUT_TYPE_PASSAGE,
        dense: bool = True,
        dense_model: str = "",
        sparse: bool = False,
        sparse_model: str = "",
        bm25_average_length: float = 0.0,
        language: str = "",
        truncation: pb.Truncation.ValueType = pb.TRUNCATION_FAIL,
        priority: pb.Priority.ValueType = pb.PRIORITY_INTERACTIVE,
        data_type: DataType.ValueType = DataType.DATA_TYPE_FLOAT32,
        dimensions: int = 0,
        multi_vector: bool = False,
        multi_vector_model: str = "",
        multi_vector_data_type: DataType.ValueType = DataType.DATA_TYPE_FLOAT32,
        instruction: str | None = None,
        timeout_s: float | None = None,
    ) -> pb.EmbedResponse:
        """Embed 1 to 1,024 texts; `reports[i].error` says which of them have no vector.

        An empty model name means the server's default. `bm25_average_length` (terms) and `language` (ISO 639-1) concern
        BM25 only. `dimensions` cuts dense vectors (0: whole); they have unit length all the same. `multi_vector` asks
        for a vector a token, see `token_rows`. `instruction` replaces the prefix of the model's card, as it stands.

        >>> response = await client.embed(["a passage"], input_type=InputType.INPUT_TYPE_PASSAGE)
        >>> vectors = rows(response.dense)
        >>> len(vectors) == 1 and len(vectors[0]) == response.dense.dimensions
        True
        """
        request = embed_request(
            texts,
            input_type=input_type,
            dense=dense,
            dense_model=dense_model,
            sparse=sparse,
            sparse_model=sparse_model,
            bm25_average_length=bm25_average_length,
            language=language,
            truncation=truncation,
            priority=priority,
            data_type=data_type,
            dimensions=dimensions,
            multi_vector=multi_vector,
            multi_vector_model=multi_vector_model,
            multi_vector_data_type=multi_vector_data_type,
            instruction=instruction,
        )
        return await self._calls.unary(self._embedder.Embed, request, timeout_s=timeout_s)

    async def embed_stream(
        self, requests: AsyncIterable[pb.EmbedStreamRequest], *, timeout_s: float | None = None
    ) -> AsyncGenerator[pb.EmbedStreamResponse, None]:
        """Embed batch after batch; replies come in the order of the requests, each with a response or an error.

        Requests are taken from `requests` only as fast as replies are read. `timeout_s` is for the whole stream; unset:
        an hour. A stream that breaks is not repeated: go on after the last id that was answered. An exception of
        `requests` is raised here.
        """
        call = self._calls.begin("embedder", timeout_s, STREAM_TIMEOUT_S)
        stream = self._embedder.EmbedStream(timeout=call.left_s(), metadata=call.metadata)
        replies = exchange(stream, requests, reply_type=pb.EmbedStreamResponse, request_id=call.request_id)
        async with aclosing(replies):
            async for reply in replies:
                yield reply

    async def tokenize(
        self,
        texts: Sequence[str],
        *,
        model: str = "",
        input_type: pb.InputType.ValueType = pb.INPUT_TYPE_PASSAGE,
        include_ids: bool = False,
        timeout_s: float | None = None,
    ) -> pb.TokenizeResponse:
        """Count the tokens of texts as the model would see them, prefix and special tokens included."""
        if isinstance(texts, str):
            raise TypeError("texts is one string; pass a list of strings")
        request = pb.TokenizeRequest(model=model, texts=texts, input_type=input_type, include_ids=include_ids)
        return await self._calls.unary(self._embedder.Tokenize, request, timeout_s=timeout_s)

    async def get_tokenizer(self, sha256: str, *, timeout_s: float | None = None) -> bytes:
        """tokenizer.json with this sha256 (hex), to count tokens locally. Raises ValueError when other bytes arrive."""
        call = self._calls.begin("embedder", timeout_s)

        async def attempt() -> bytes:
            request = pb.GetTokenizerRequest(sha256=sha256)
            stream = self._embedder.GetTokenizer(request, timeout=call.left_s(), metadata=call.metadata)
            return b"".join([piece.data async for piece in stream])

        content = await self._calls.attempts(call, attempt, repeatable=True)
        received = hashlib.sha256(content).hexdigest()
        if received != sha256.lower():
            raise ValueError(f"the tokenizer received has sha256 {received}, not {sha256}")
        return content

    async def list_embedding_models(self, *, timeout_s: float | None = None) -> list[Model]:
        """The models the embedder serves, the default dense model first."""
        response = await self._calls.unary(self._embedder.ListModels, pb.ListModelsRequest(), timeout_s=timeout_s)
        return list(response.models)

    async def get_embedding_model(self, model: str, *, timeout_s: float | None = None) -> Model:
        """Describe one model of the embedder, by name or alias."""
        request = pb.GetModelRequest(model=model)
        return (await self._calls.unary(self._embedder.GetModel, request, timeout_s=timeout_s)).model

    async def load_embedding_model(self, model: str, *, timeout_s: float = _CHANGE_TIMEOUT_S) -> Model:
        """Have the embedder load a model and keep it; returns when it is ready. Needs the role admin.

        The server goes on when this call is given up: call again to wait for the same load.
        """
        request = pb.LoadModelRequest(model=model)
        return (await self._calls.unary(self._embedder.LoadModel, request, timeout_s=timeout_s)).model

    async def unload_embedding_model(self, model: str, *, timeout_s: float = _CHANGE_TIMEOUT_S) -> Model:
        """Have the embedder finish the calls that use a model and give its memory back. Needs the role admin."""
        request = pb.UnloadModelRequest(model=model)
        return (await self._calls.unary(self._embedder.UnloadModel, request, timeout_s=timeout_s)).model
