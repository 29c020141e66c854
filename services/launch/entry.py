"""The entry point of the `pergamon` command: quiets gRPC's core, which reads its environment when it is imported."""

import os


def main() -> None:
    # Notes about forks and closed connections are for its developers; failures reach us as errors.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    from services.launch.cli import main as run

    run()
