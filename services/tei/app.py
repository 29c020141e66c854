"""The tei.v1 services put together, once for a port, whichever apps offer models there."""

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


def bindings(edge: Edge, offers: Offers) -> tuple[Binding, ...]:
    """All five services, of models that are offered already.

    A service for which there is no model refuses its calls, and is as ready as the others.
    """
    info, predict = TeiInfoServicer(edge, offers), TeiPredictServicer(edge)
    embed, rerank = TeiEmbedServicer(edge, offers), TeiRerankServicer(edge, offers)
    tokenize = TeiTokenizeServicer(edge, offers)
    main, judging = offers.main.ready, (offers.reranking or offers.main).ready
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


def _name(service: str) -> str:
    return pb.DESCRIPTOR.services_by_name[service].full_name
