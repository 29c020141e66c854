"""Where the services are, and the connections to them."""

from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path

import grpc
from grpc import aio

MESSAGE_LIMIT_BYTES = 64 * 1024 * 1024

_OPTIONS: tuple[tuple[str, int | str], ...] = (
    ("grpc.max_receive_message_length", MESSAGE_LIMIT_BYTES),
    ("grpc.max_send_message_length", MESSAGE_LIMIT_BYTES),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 0),
    # Retries are decided in one place, by RetryPolicy; a policy published in DNS would multiply them.
    ("grpc.service_config_disable_resolution", 1),
    # A name with several addresses (a headless Service) is several servers: use all of them, not the first.
    ("grpc.lb_policy_name", "round_robin"),
    # The default of up to two minutes would outlast every retry after a restart of the server.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 5_000),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """TLS to the servers: each value a path, or the PEM itself as bytes.

    `ca` verifies the server (None: the roots that come with gRPC). `cert` and `key` present a client certificate; both
    or none.
    """

    ca: str | PathLike[str] | bytes | None = None
    cert: str | PathLike[str] | bytes | None = None
    key: str | PathLike[str] | bytes | None = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise ValueError("a client certificate needs both cert and key")

    def credentials(self) -> grpc.ChannelCredentials:
        """Read the files. Raises OSError when one cannot be read."""
        return grpc.ssl_channel_credentials(
            root_certificates=_pem(self.ca), private_key=_pem(self.key), certificate_chain=_pem(self.cert)
        )


def _pem(source: str | PathLike[str] | bytes | None) -> bytes | None:
    return source if source is None or isinstance(source, bytes) else Path(source).read_bytes()


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """Addresses (`host:port`) of single services that are not behind the common target."""

    embedder: str | None = None
    reranker: str | None = None
    retriever: str | None = None
    ingestor: str | None = None


class Channels:
    """One channel for each distinct target, opened at its first use, in the event loop that uses it."""

    def __init__(self, target: str, targets: Targets | None, tls: TlsConfig | None) -> None:
        overrides: Targets = targets or Targets()
        self._targets = {field.name: getattr(overrides, field.name) or target for field in fields(Targets)}
        self._credentials = tls.credentials() if tls else None
        self._open: dict[str, aio.Channel] = {}
        self._closed = False

    def of(self, service: str) -> aio.Channel:
        """The channel to `service`, a field of Targets."""
        if self._closed:
            raise RuntimeError("the client is closed")
        target = self._targets[service]
        channel = self._open.get(target)
        if channel is None:
            channel = self._open[target] = self._connect(target)
        return channel

    def _connect(self, target: str) -> aio.Channel:
        if self._credentials is None:
            return aio.insecure_channel(target, options=_OPTIONS)
        return aio.secure_channel(target, self._credentials, options=_OPTIONS)

    async def aclose(self) -> None:
        """Close all; calls in progress end with CANCELLED."""
        self._closed = True
        while self._open:
            _, channel = self._open.popitem()
            await channel.close()
