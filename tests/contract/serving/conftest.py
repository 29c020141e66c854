"""Embedder and reranker behind their own gRPC servers and behind Ray Serve, told the same; started once a session."""

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass

import grpc
import pytest

from tests.contract.index.engine import running_engine
from tests.contract.serving.clusters import running_cluster
from tests.contract.serving.manifest import ray_environment
from tests.contract.serving.room import MAX_CALLS
from tests.helpers.keys import write_keys
from tests.helpers.models import install_tiny_models
from tests.helpers.servers import Server, free_port, settings_in

APPLICATIONS = ("embedder", "reranker", "ingestor", "retriever")
#: One more that scales, at once; the others are of one replica, so that tests know who answers.
SLOW = "slow-embedder"
SCALED = {
    SLOW: {
        "min_replicas": 1,
        "max_replicas": 2,
        "num_cpus": 0.5,
        "drain_seconds": 0.5,
        "report_interval_s": 0.25,
        "look_back_s": 1.0,
        "upscale_delay_s": 0.0,
        "downscale_delay_s": 1.0,
    }
}
#: Replicas that are removed wait for load balancers to notice; there is but one here, which is told.
QUICK = {"RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "1"}
_MESSAGE_BYTES = 64 << 20
SIZES = [("grpc.max_receive_message_length", _MESSAGE_BYTES), ("grpc.max_send_message_length", _MESSAGE_BYTES)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Servers to hold to the contract: `target` of the embedder, and of all services on a Ray."""

    kind: str
    target: str
    reranker: str
    #: By which the processes of a Ray are found.
    mark: str = ""


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("serving")
    install_tiny_models(folder / "models")
    return settings_in(folder, PERGAMON_MAX_CALLS=str(MAX_CALLS), **write_keys(folder))


@pytest.fixture(scope="session")
def grpc_server(told: dict[str, str]) -> Iterator[Serving]:
    servers = [Server(name, {**told, "PERGAMON_PORT": str(free_port())}) for name in ("embedder", "reranker")]
    try:
        for server in servers:
            server.wait_until_ready()
        embedder, reranker = (server.target for server in servers)
        yield Serving(kind="grpc", target=embedder, reranker=reranker)
    finally:
        for server in servers:
            server.kill()


@pytest.fixture(scope="session")
def ray_serve(told: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """All four applications on one Ray, over an engine process."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install 'pergamon-server[ray]'")
    folder, port = tmp_path_factory.mktemp("ray"), free_port()
    target = f"127.0.0.1:{port}"
    with running_engine(folder / "engine") as qdrant:
        addresses = {
            "PERGAMON_QDRANT_URL": qdrant,
            "PERGAMON_EMBEDDER_TARGET": target,
            "PERGAMON_RERANKER_TARGET": target,
        }
        environment = {**told, **addresses, **ray_environment(), **QUICK}
        with running_cluster(
            port, {**{name: {} for name in APPLICATIONS}, **SCALED}, environment, folder / "stderr"
        ) as mark:
            yield Serving(kind="ray", target=target, reranker=target, mark=mark)


@pytest.fixture(params=["grpc_server", "ray_serve"], ids=["grpc", "ray"])
def serving(request: pytest.FixtureRequest) -> Serving:
    return request.getfixturevalue(request.param)


@pytest.fixture
def channel(serving: Serving) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(serving.target, options=SIZES) as opened:
        yield opened


@pytest.fixture
def reranker_channel(serving: Serving) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(serving.reranker, options=SIZES) as opened:
        yield opened
