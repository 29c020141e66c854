"""The embedder put together, for every way to run it."""

from dataclasses import dataclass
from functools import partial

from pergamon.embedder.v1 import embedder_pb2_grpc as stubs

from services.common.health import Remembered
from services.common.metrics import Metrics
from services.common.rpc import Edge
from services.common.server import App, Binding
from services.common.settings import names_in
from services.embedder.bm25 import Bm25Encoder
from services.embedder.engine import EmbedderEngine
from services.embedder.servicer import SERVICE, EmbedderServicer
from services.embedder.settings import EmbedderSettings
from services.inference.cards import ModelKind
from services.inference.observe import MetricsObserver, device_lost
from services.inference.registry import ModelRegistry, ServedModels
from services.inference.settings import InferenceSettings
from services.tei import app as tei
from services.tei.models import Offer, Offers


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderDeps:
    """What the embedder is given; whoever made these closes them.

    `tei`: the models are offered there, and whoever made it serves the tei.v1 services. None: the app serves them too.
    """

    edge: Edge
    metrics: Metrics
    tei: Offers | None = None


def build(settings: EmbedderSettings, deps: EmbedderDeps) -> App:
    registry = ModelRegistry(
        ServedModels(
            names=settings.model_names,
            kinds=frozenset({ModelKind.DENSE, ModelKind.SPARSE}),
            pull_missing=settings.pull_models,
            at_start=(*settings.model_names[:1], *names_in(settings.preload_models)),
            max_loaded=settings.max_loaded_models,
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
    max_reply_bytes = settings.max_message_mib << 20
    engine = EmbedderEngine(registry, Bm25Encoder(), max_reply_bytes=max_reply_bytes)
    servicer = EmbedderServicer(deps.edge, engine, max_texts=settings.max_texts, max_reply_bytes=max_reply_bytes)
    ready = Remembered(engine.ready, deps.edge.clock)
    binding = Binding(
        name=SERVICE,
        register=lambda server: stubs.add_EmbedderServiceServicer_to_server(servicer, server),
        ready=ready,
    )
    offers = deps.tei or Offers(max_reply_bytes=max_reply_bytes)
    offers.embedding = Offer(models=registry, names=settings.model_names, max_items=settings.max_texts, ready=ready)
    compatible = () if deps.tei else tei.bindings(deps.edge, offers)
    return App(bindings=(binding, *compatible), start=engine.start, aclose=engine.aclose)
