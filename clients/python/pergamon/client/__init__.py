"""The typed client of Pergamon: `AsyncClient` for asyncio, `Client` for everything else."""

from pergamon.client._channel import Targets, TlsConfig
from pergamon.client._embedder import embed_request
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
from pergamon.client.vectors import as_numpy, rows, sparse_rows

__all__ = [
    "AlreadyExistsError",
    "AsyncClient",
    "AuthenticationError",
    "DeadlineExceededError",
    "FailedPreconditionError",
    "InternalError",
    "InvalidRequestError",
    "NotFoundError",
    "OverloadedError",
    "PergamonError",
    "PermissionDeniedError",
    "RetryPolicy",
    "SearchOptions",
    "Targets",
    "Timing",
    "TlsConfig",
    "UnavailableError",
    "as_numpy",
    "embed_request",
    "rows",
    "sparse_rows",
]
