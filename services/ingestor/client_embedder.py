"""The embedder as the ingestor sees it, over the client that everyone else uses too."""

import asyncio
import hashlib
import itertools
import secrets
from collections.abc import Sequence
from pathlib import Path

import grpc
import numpy as np
from pergamon.client import AsyncClient, PergamonError
from pergamon.embedder.v1 import embedder_pb2 as embedder_pb
from pergamon.type.v1 import model_pb2
from pergamon.type.v1.item_error_pb2 import ItemError

from services.common.errors import DocumentError, NotFound, Overloaded, Reason, ServiceError, Unavailable
from services.ingestor.ports import EmbeddedPassages, EmbeddingModel, SparseVector


class ClientEmbedder:
    """The embedder, through the client that everyone else uses too."""

    def __init__(self, client: AsyncClient, tokenizers: Path) -> None:
        self._client = client
        self._tokenizers = tokenizers
        self._models: dict[str, model_pb2.Model] = {}

    async def dense_model(self, name: str) -> EmbeddingModel:
        model = await self._model(name)
        if model.kind != model_pb2.MODEL_KIND_DENSE:
            raise ServiceError(
                f"model {model.name!r} makes no dense vectors; choose one that does", reason=Reason.WRONG_MODEL_KIND
            )
        return EmbeddingModel(
            name=model.name,
            dimensions=model.dimensions,
            max_tokens=model.max_tokens,
            passage_overhead_tokens=model.passage_overhead_tokens,
            tokenizer_sha256=model.tokenizer_sha256,
        )

    async def sparse_tokenizer_version(self, name: str) -> str:
        model = await self._model(name or "bm25")
        if model.kind != model_pb2.MODEL_KIND_SPARSE or not model.tokenizer_version:
            raise ServiceError(
                f"model {model.name!r} is not a statistical sparse model; use bm25", reason=Reason.WRONG_MODEL_KIND
            )
        return model.tokenizer_version

    async def tokenizer_file(self, sha256: str) -> Path:
        path = self._tokenizers / f"{sha256}.json"
        if not await asyncio.to_thread(_is_tokenizer, path, sha256):
            try:
                content = await self._client.get_tokenizer(sha256)
            except PergamonError as error:
                raise _translated(error) from error
            await asyncio.to_thread(_write, path, content)
        return path

    async def embed(
        self,
        texts: Sequence[str],
        *,
        dense_model: str | None,
        sparse_model: str,
        average_length: float,
        language: str,
        timeout_s: float,
    ) -> EmbeddedPassages:
        try:
            reply = await self._client.embed(
                texts,
                input_type=embedder_pb.INPUT_TYPE_PASSAGE,
                dense=dense_model is not None,
                dense_model=dense_model or "",
                sparse=True,
                sparse_model=sparse_model,
                bm25_average_length=average_length,
                language=language,
                priority=embedder_pb.PRIORITY_BULK,
                timeout_s=timeout_s,
            )
        except PergamonError as error:
            raise _translated(error) from error
        for report in reply.reports:
            if report.HasField("error"):
                raise _item_failure(report.error)
        return EmbeddedPassages(
            dense=_matrix(reply) if dense_model is not None else None,
            sparse=_sparse_rows(reply),
            lengths=tuple(report.bm25_length for report in reply.reports),
        )

    async def _model(self, name: str) -> model_pb2.Model:
        known = self._models.get(name)
        if known is None:
            try:
                known = await self._client.get_embedding_model(name)
            except PergamonError as error:
                raise _translated(error, name) from error
            self._models[name] = known
        return known


def _matrix(reply: embedder_pb.EmbedResponse) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    shape = (reply.dense.rows, reply.dense.dimensions)
    return np.frombuffer(reply.dense.data, dtype="<f4").reshape(shape)


def _sparse_rows(reply: embedder_pb.EmbedResponse) -> tuple[SparseVector, ...]:
    indices = np.frombuffer(reply.sparse.indices, dtype="<u4")
    values = np.frombuffer(reply.sparse.values, dtype="<f4")
    offsets = reply.sparse.offsets
    return tuple(
        SparseVector(indices=indices[start:end], values=values[start:end]) for start, end in itertools.pairwise(offsets)
    )


def _item_failure(error: ItemError) -> ServiceError:
    return DocumentError(f"a chunk could not be embedded: {error.message}", reason=Reason.INFERENCE_FAILED)


def _translated(error: PergamonError, model: str = "") -> ServiceError:
    """The embedder's answer as an error of this service; what is not the request's fault is an outage."""
    if error.reason == Reason.MODEL_NOT_FOUND.name:
        return NotFound.model(model, tuple(filter(None, error.metadata.get("allowed", "").split(", "))))
    if error.reason in (Reason.MODEL_NOT_AVAILABLE.name, Reason.WRONG_MODEL_KIND.name, Reason.MODEL_INVALID.name):
        return ServiceError(error.message, reason=Reason[error.reason])
    if error.code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return Overloaded(error.message, retry_after_s=error.retry_after_s or 1.0)
    if error.code is grpc.StatusCode.INVALID_ARGUMENT:
        return DocumentError(f"the embedder refused the chunks: {error.message}", reason=Reason.INFERENCE_FAILED)
    return Unavailable(f"the embedder cannot be used now: {error.message}", reason=Reason.EMBEDDER_UNAVAILABLE)


def _is_tokenizer(path: Path, sha256: str) -> bool:
    return path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{secrets.token_hex(4)}")
    temporary.write_bytes(content)
    temporary.replace(path)
