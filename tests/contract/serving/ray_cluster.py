"""A local Ray with the product's applications, as a process: `python -m tests.contract.serving.ray_cluster PORT APP...`

Prints `ready` when the applications run, and ends all of it when its standard input ends.
"""

import sys
import tempfile
from pathlib import Path

import ray
from ray import serve

from services.launch import ray_apps
from services.launch.ray_scaling import IngestorScaling, RetrieverScaling, Scaling
from tests.contract.serving.manifest import servicer_functions
from tests.helpers.servers import free_port

_BUILDERS = {
    "embedder": (ray_apps.embedder, Scaling),
    "reranker": (ray_apps.reranker, Scaling),
    "retriever": (ray_apps.retriever, RetrieverScaling),
    "ingestor": (ray_apps.ingestor, IngestorScaling),
}


def _target(name: str) -> serve.RunTarget:
    build, scaling = _BUILDERS[name]
    one = scaling(min_replicas=1, max_replicas=1, num_cpus=0.5)
    return serve.RunTarget(target=build(one), name=name, route_prefix=f"/{name}")


def main(port: int, applications: list[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:
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
            )
            serve.run_many([_target(name) for name in applications])
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            sys.stdin.read()
            serve.shutdown()
        except BaseException:
            for log in sorted(Path(folder).glob("session_latest/logs/serve/*.log")):
                sys.stderr.write(f"--- {log.name}\n{log.read_text(errors='replace')[-4000:]}\n")
            raise
        finally:
            ray.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
