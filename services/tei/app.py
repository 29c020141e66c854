"""The tei.v1 services put together, once for a port, whichever apps offer models there."""

from collections.abc import Awaitable, Callable

from services.common.clock import Clock
from services.common.rpc import Edge
from services.common.server import Binding
from services.tei.embed import TeiEmbedServicer
from services.tei.info import TeiInfoServicer
from services.tei.models import Offers
from services.tei.predict import TeiPredictServicer
from services.tei.rerank import TeiRerankServicer
from services.tei.tokenize import TeiTokenizeServicer
from services.tei.v1 import tei_pb2 as pb
from services.tei.v1 import tei_pb2_grpc as stubs

_GOOD_FOR_S = 1.0


def bindings(edge: Edge, offers: Offers) -> tuple[Binding, ...]:
    """All five services. One for which no model is offered refuses its calls, and is as ready as the others."""
    info, predict = TeiInfoServicer(edge, offers), TeiPredictServicer(edge)
    embed, rerank = TeiEmbedServicer(edge, offers), TeiRerankServicer(edge, offers)
    tokenize = TeiTokenizeServicer(edge, offers)
    main = Remembered(lambda: offers.main.ready(), edge.clock)
    judging = Remembered(lambda: (offers.reranking or offers.main).ready(), edge.clock)
    return (
        Binding(name=_name("Info"), register=lambda at: stubs.add_InfoServicer_to_server(info, at), ready=main),
        Binding(name=_name("Embed"), register=lambda at: stubs.add_EmbedServicer_to_server(embed, at), ready=main),
        Binding(
            name=_name("Predict"), register=lambda at: stubs.add_PredictServicer_to_server(predict, at), ready=main
        ),
        Binding(
            name=_name("Rerank"), register=lambda at: stubs.add_RerankServicer_to_server(rerank, at), ready=judging
        ),
        Binding(
            name=_name("Tokenize"), register=lambda at: stubs.add_TokenizeServicer_to_server(tokenize, at), ready=main
        ),
    )


class Remembered:
    """The last answer of a check, for a moment: several services ask about the same models, one after the other."""

    def __init__(self, check: Callable[[], Awaitable[bool]], clock: Clock) -> None:
        self._check = check
        self._clock = clock
        self._until = float("-inf")
        self._answer = False

    async def __call__(self) -> bool:
        if self._clock.monotonic() >= self._until:
            self._answer = await self._check()
            self._until = self._clock.monotonic() + _GOOD_FOR_S
        return self._answer


def _name(service: str) -> str:
    return pb.DESCRIPTOR.services_by_name[service].full_name
