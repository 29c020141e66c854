"""`python -m services.engine --data-dir FOLDER --port PORT`: the embedded vector engine as a process."""

import argparse
import asyncio
import logging
import sys
from pathlib import Path

from services.engine.server import EngineOptions, serve
from services.engine.store import FolderInUse, Store

#: Exit codes: the folder is in another engine's hands; the folder or the port cannot be used.
EXIT_IN_USE = 3
EXIT_UNUSABLE = 4


def main() -> int:
    """Run until told to stop. Returns the process's exit code."""
    parser = argparse.ArgumentParser(prog="python -m services.engine", description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True, help="folder of the collections; made when missing")
    task = parser.add_mutually_exclusive_group(required=True)
    task.add_argument("--port", type=int, help="serve on this gRPC port; 0 picks a free one")
    task.add_argument(
        "--compact", action="store_true", help="instead of serving: drop deleted points, build graphs, end"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; there is no authentication")
    parser.add_argument("--parent-pid", type=int, default=0, help="stop when this parent process ends")
    parser.add_argument("--log-level", default="INFO", help="least severe level that is logged, to standard error")
    arguments = parser.parse_args()
    logging.basicConfig(
        level=arguments.log_level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    try:
        if arguments.compact:
            _compact(arguments.data_dir)
        else:
            asyncio.run(
                serve(
                    EngineOptions(
                        data_folder=arguments.data_dir,
                        host=arguments.host,
                        port=arguments.port,
                        parent_pid=arguments.parent_pid,
                    )
                )
            )
    except FolderInUse as error:
        logging.getLogger("pergamon.engine").error("%s", error)
        return EXIT_IN_USE
    except OSError as error:
        logging.getLogger("pergamon.engine").error("cannot start: %s", error)
        return EXIT_UNUSABLE
    return 0


def _compact(folder: Path) -> None:
    store = Store(folder)
    try:
        changed = store.compact()
    finally:
        store.close()
    logging.getLogger("pergamon.engine").info("compacted %d collections: %s", len(changed), ", ".join(changed))


if __name__ == "__main__":
    sys.exit(main())
