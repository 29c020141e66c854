"""What a call cost, as the metadata that text-embeddings-inference sends before a unary reply."""

import functools
from collections.abc import Callable
from typing import Any, Protocol

from services.tei.models import Offers
from services.tei.v1 import tei_pb2 as pb


class HasOffers(Protocol):
    @property
    def offers(self) -> Offers: ...


def with_headers(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a unary method that is an `rpc` already. A call that failed has no metadata in its reply, and no headers."""

    @functools.wraps(method)
    async def serve(self: HasOffers, request: Any, context: Any) -> Any:
        reply = await method(self, request, context)
        if reply.HasField("metadata"):
            await context.send_initial_metadata(headers_of(reply.metadata, self.offers.compute_type))
        return reply

    return serve


def headers_of(spent: pb.Metadata, compute_type: str) -> tuple[tuple[str, str], ...]:
    """Times in whole milliseconds."""
    total_ms = _ms(spent.total_time_ns)
    return (
        ("x-compute-type", compute_type),
        ("x-compute-time", total_ms),
        ("x-compute-characters", str(spent.compute_chars)),
        ("x-compute-tokens", str(spent.compute_tokens)),
        ("x-total-time", total_ms),
        ("x-tokenization-time", _ms(spent.tokenization_time_ns)),
        ("x-queue-time", _ms(spent.queue_time_ns)),
        ("x-inference-time", _ms(spent.inference_time_ns)),
    )


def _ms(nanoseconds: int) -> str:
    return str(nanoseconds // 1_000_000)
