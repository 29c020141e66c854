"""A local Ray with the product's applications, as a process: `python -m tests.contract.serving.ray_cluster PORT APPS`

APPS is a JSON object: the name of each application, and its `args`. Prints `ready` when the applications run, and ends
all of it when its standard input ends.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import ray
from ray import serve

from services.launch import ray_apps
from services.launch.ray_scaling import InferenceScaling, IngestorScaling, RetrieverScaling
from tests.contract.serving.manifest import logging_config, servicer_functions
from tests.contract.serving.slow_embedder import slow_embedder
from tests.helpers.servers import free_port

_BUILDERS = {
    "embedder": (ray_apps.embedder, InferenceScaling),
    "slow-embedder": (slow_embedder, InferenceScaling),
    "reranker": (ray_apps.reranker, InferenceScaling),
    "retriever": (ray_apps.retriever, RetrieverScaling),
    "ingestor": (ray_apps.ingestor, IngestorScaling),
}
_ONE = {"min_replicas": 1, "max_replicas": 1, "num_cpus": 0.5}


def _target(name: str, args: dict[str, Any]) -> serve.RunTarget:
    build, scaling = _BUILDERS[name]
    return serve.RunTarget(target=build(scaling(**_ONE | args)), name=name, route_prefix=f"/{name}")


def main(port: int, applications: dict[str, dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:
        os.environ.update(_of_haproxy(Path(folder)))
        ray.init(
            num_cpus=4,
            include_dashboard=False,
            object_store_memory=100 << 20,
            log_to_driver=False,
            logging_level="WARNING",
            _temp_dir=folder,
        )
        try:
            serve.start(
                http_options={"host": "127.0.0.1", "port": free_port()},
                grpc_options={"port": port, "grpc_servicer_functions": servicer_functions()},
                logging_config=logging_config(),
            )
            serve.run_many([_target(name, args) for name, args in applications.items()])
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            sys.stdin.read()
            serve.shutdown()
        except BaseException:
            for name, state in serve.status().applications.items():
                sys.stderr.write(f"--- {name}: {state.message} {state.deployments}\n")
            for log in sorted(Path(folder).glob("session_latest/logs/serve/*.log")):
                sys.stderr.write(f"--- {log.name}\n{log.read_text(errors='replace')[-4000:]}\n")
            raise
        finally:
            ray.shutdown()


def _of_haproxy(folder: Path) -> dict[str, str]:
    """Ports and files of its own, for where RAY_SERVE_ENABLE_HA_PROXY is set."""
    files = {"CONFIG_FILE_LOC": "haproxy.cfg", "SOCKET_PATH": "admin.sock", "SERVER_STATE_BASE": "state",
             "SERVER_STATE_FILE": "state/servers", "METRICS_SOCKET_PATH": "metrics.sock"}  # fmt: skip
    ports = ("METRICS_PORT", "STATS_PORT")
    return {f"RAY_SERVE_HAPROXY_{name}": str(folder / file) for name, file in files.items()} | {
        f"RAY_SERVE_HAPROXY_{name}": str(free_port()) for name in ports
    }


if __name__ == "__main__":
    main(int(sys.argv[1]), json.loads(sys.argv[2]))
