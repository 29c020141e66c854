"""The four services as Ray Serve applications: `services.launch.ray_apps:embedder` and so on in a Serve configuration.

Each is a function that Serve calls with the `args` of the configuration. The replicas read their settings from their
own environment, as the servers do. Batching is the services' own; `@serve.batch` is not used.
"""

# pyright: reportUnknownMemberType=false

from typing import Any

import grpc
from pergamon.embedder.v1 import embedder_pb2
from pergamon.ingestor.v1 import document_pb2, job_pb2, knowledge_base_pb2
from pergamon.reranker.v1 import reranker_pb2
from pergamon.retriever.v1 import retriever_pb2
from ray import serve
from ray.serve._private.constants import RAY_SERVE_ENABLE_DIRECT_INGRESS
from ray.serve._private.proxy_request_response import ResponseStatus
from ray.serve.grpc_util import RayServegRPCContext

from services.embedder import standalone as embedder_alone
from services.embedder.settings import EmbedderSettings
from services.ingestor import standalone as ingestor_alone
from services.ingestor.settings import IngestorSettings
from services.launch.ray_replica import Replica, calls_of
from services.launch.ray_scaling import InferenceScaling, IngestorScaling, RetrieverScaling, Scaling
from services.reranker import standalone as reranker_alone
from services.reranker.settings import RerankerSettings
from services.retriever import standalone as retriever_alone
from services.retriever.settings import RetrieverSettings

#: Calls beyond those that a replica holds wait in Serve's proxies; the replica itself refuses earlier, and says more.
_ROOM_ABOVE_MAX_CALLS = 2
_SECONDS_TO_CLOSE = 10.0


class StreamEnd:
    """Carries the status and the trailing metadata of a stream to the client, after its last reply.

    Serve copies both from the call's context to the connection only when a reply passes its proxy, so that what a
    stream ends with would be lost, and a stream that fails before its first reply would look like an empty one. This
    passes as a reply whose content is the proxy's own mark for the end, which it does not send on. docs/adr tells more.
    """

    def __init__(self, context: RayServegRPCContext) -> None:
        self._context = context

    def SerializeToString(self) -> ResponseStatus:
        code = self._context.code() or grpc.StatusCode.OK
        return ResponseStatus(code=code, is_error=code is not grpc.StatusCode.OK, message=self._context.details())


#: With direct ingress there is no proxy, and what the context holds at the end is sent.
END_OF_STREAM = None if RAY_SERVE_ENABLE_DIRECT_INGRESS else StreamEnd


def local_rank() -> int:
    """Which of the replicas of its deployment on its node this one is, from 0."""
    return serve.get_replica_context().rank.local_rank


@calls_of(embedder_pb2.DESCRIPTOR.services_by_name["EmbedderService"], end_of_stream=END_OF_STREAM)
class EmbedderReplica(Replica[EmbedderSettings]):
    read_settings, open_app = EmbedderSettings, embedder_alone.opened


@calls_of(reranker_pb2.DESCRIPTOR.services_by_name["RerankerService"], end_of_stream=END_OF_STREAM)
class RerankerReplica(Replica[RerankerSettings]):
    read_settings, open_app = RerankerSettings, reranker_alone.opened


@calls_of(retriever_pb2.DESCRIPTOR.services_by_name["RetrieverService"], end_of_stream=END_OF_STREAM)
class RetrieverReplica(Replica[RetrieverSettings]):
    read_settings, open_app = RetrieverSettings, retriever_alone.opened


@calls_of(
    knowledge_base_pb2.DESCRIPTOR.services_by_name["KnowledgeBaseService"],
    document_pb2.DESCRIPTOR.services_by_name["DocumentService"],
    job_pb2.DESCRIPTOR.services_by_name["JobService"],
    end_of_stream=END_OF_STREAM,
)
class IngestorReplica(Replica[IngestorSettings]):
    read_settings, open_app = IngestorSettings, ingestor_alone.opened


def embedder(scaling: InferenceScaling) -> serve.Application:
    return application("embedder", EmbedderReplica, scaling)


def reranker(scaling: InferenceScaling) -> serve.Application:
    return application("reranker", RerankerReplica, scaling)


def retriever(scaling: RetrieverScaling) -> serve.Application:
    return application("retriever", RetrieverReplica, scaling)


def ingestor(scaling: IngestorScaling) -> serve.Application:
    return application("ingestor", IngestorReplica, scaling)


def application(name: str, replica: type[Replica[Any]], scaling: Scaling) -> serve.Application:
    """The replicas of one service, with one deployment called `name`."""
    limits = replica.read_settings(host="127.0.0.1")
    deployment = serve.deployment(
        name=name,
        max_ongoing_requests=limits.max_calls * _ROOM_ABOVE_MAX_CALLS,
        max_queued_requests=limits.max_calls,
        health_check_period_s=limits.health_interval_s * 2,
        health_check_timeout_s=limits.health_interval_s * 4,
        graceful_shutdown_timeout_s=limits.drain_seconds + _SECONDS_TO_CLOSE,
        graceful_shutdown_wait_loop_s=1.0,
        logging_config={"enable_access_log": False},  # calls are counted and timed at the services' own edge
        **scaling.of_deployment(),
    )(replica)
    return deployment.bind(local_rank)
