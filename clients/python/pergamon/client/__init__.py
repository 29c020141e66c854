"""The typed client of Pergamon: `AsyncClient` for asyncio, `Client` for everything else."""

from pergamon.client import filters
from pergamon.client._channel import Targets, TlsConfig
from pergamon.client._embedder import embed_request
from pergamon.client._reranker import rerank_request
from pergamon.client._retriever import SearchOptions
from pergamon.client._retry import RetryPolicy, Timing
from pergamon.client.async_client import AsyncClient
from pergamon.client.errors import (
    AlreadyExistsError,
    AuthenticationError,
    DeadlineExceededError,
    FailedPreconditionError,
    InternalError,
    InvalidRequestError,
    NotFoundError,
    OverloadedError,
    PergamonError,
    PermissionDeniedError,
    UnavailableError,
)
from pergamon.client.metadata import document_metadata
from pergamon.client.sync_client import Client
from pergamon.client.vectors import as_numpy, packed_rows, rows, sparse_rows, token_matrices, token_rows
from pergamon.embedder.v1.embedder_pb2 import EmbedStreamRequest, EmbedWarning, InputType, Priority, Truncation
from pergamon.ingestor.v1.document_pb2 import DocumentState, DuplicatePolicy
from pergamon.ingestor.v1.job_pb2 import JobState
from pergamon.reranker.v1.reranker_pb2 import LongTextPolicy, RerankStreamRequest
from pergamon.retriever.v1.retriever_pb2 import Combination, ContextFormat, SearchMode
from pergamon.type.v1.vectors_pb2 import DataType

__all__ = [
    "AlreadyExistsError",
    "AsyncClient",
    "AuthenticationError",
    "Client",
    "Combination",
    "ContextFormat",
    "DataType",
    "DeadlineExceededError",
    "DocumentState",
    "DuplicatePolicy",
    "EmbedStreamRequest",
    "EmbedWarning",
    "FailedPreconditionError",
    "InputType",
    "InternalError",
    "InvalidRequestError",
    "JobState",
    "LongTextPolicy",
    "NotFoundError",
    "OverloadedError",
    "PergamonError",
    "PermissionDeniedError",
    "Priority",
    "RerankStreamRequest",
    "RetryPolicy",
    "SearchMode",
    "SearchOptions",
    "Targets",
    "Timing",
    "TlsConfig",
    "Truncation",
    "UnavailableError",
    "as_numpy",
    "document_metadata",
    "embed_request",
    "filters",
    "packed_rows",
    "rerank_request",
    "rows",
    "sparse_rows",
    "token_matrices",
    "token_rows",
]
