"""The reranker put together, for every way to run it."""

from dataclasses import dataclass
from functools import partial

from pergamon.reranker.v1 import reranker_pb2_grpc as stubs

from services.common.health import Remembered
from services.common.metrics import Metrics
from services.common.rpc import Edge
from services.common.server import App, Binding
from services.common.settings import names_in
from services.inference.cards import ModelKind
from services.inference.observe import MetricsObserver, device_lost
from services.inference.registry import ModelRegistry, ServedModels
from services.inference.settings import InferenceSettings
from services.reranker.engine import RerankerEngine
from services.reranker.servicer import SERVICE, RerankerServicer
from services.reranker.settings import RerankerSettings
from services.tei import app as tei
from services.tei.models import Offer, Offers


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankerDeps:
    """What the reranker is given; whoever made these closes them.

    `tei`: the models are offered there, and whoever made it serves the tei.v1 services. None: the app serves them too.
    """

    edge: Edge
    metrics: Metrics
    tei: Offers | None = None


def build(settings: RerankerSettings, deps: RerankerDeps) -> App:
    registry = ModelRegistry(
        ServedModels(
            names=settings.model_names,
            kinds=frozenset({ModelKind.RERANKER}),
            pull_missing=settings.pull_models,
            at_start=names_in(settings.preload_rerankers),
            max_loaded=settings.max_loaded_rerankers,
            on_demand=settings.load_on_demand,
        ),
        settings=InferenceSettings(
            models_dir=settings.models_dir,
            backend=settings.backend,
            device=settings.device,
            precision=settings.precision,
            threads=settings.threads,
            cpu_streams=settings.cpu_streams,
            max_batch_tokens=settings.max_batch_tokens,
            max_backlog_seconds=settings.max_backlog_s,
            bulk_pass_seconds=settings.bulk_pass_ms / 1000,
        ),
        clock=deps.edge.clock,
        observer_of=partial(MetricsObserver, deps.metrics, on_device_lost=device_lost(deps.edge)),
    )
    engine = RerankerEngine(registry)
    max_reply_bytes = settings.max_message_mib << 20
    servicer = RerankerServicer(deps.edge, engine, max_passages=settings.max_passages, max_reply_bytes=max_reply_bytes)
    ready = Remembered(engine.ready, deps.edge.clock)
    binding = Binding(
        name=SERVICE,
        register=lambda server: stubs.add_RerankerServiceServicer_to_server(servicer, server),
        ready=ready,
    )
    offers = deps.tei or Offers(max_reply_bytes=max_reply_bytes)
    offers.reranking = Offer(models=registry, names=settings.model_names, max_items=settings.max_passages, ready=ready)
    compatible = () if deps.tei else tei.bindings(deps.edge, offers)
    return App(bindings=(binding, *compatible), start=engine.start, aclose=engine.aclose)
