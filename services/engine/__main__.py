"""`python -m services.engine --data-dir FOLDER --port PORT`: the embedded vector engine as a process."""

import argparse
import asyncio
import logging
import sys
from pathlib import Path

from services.engine.server import EngineOptions, serve
from services.engine.store import FolderInUse

#: Exit codes: the folder is in another engine's hands; the folder or the port cannot be used.
EXIT_IN_USE = 3
EXIT_UNUSABLE = 4


def main() -> int:
    """Run until told to stop. Returns the process's exit code."""
    parser = argparse.ArgumentParser(prog="python -m services.engine", description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True, help="folder of the collections; made when missing")
    parser.add_argument("--port", type=int, required=True, help="gRPC port; 0 picks a free one")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; there is no authentication")
    parser.add_argument("--parent-pid", type=int, default=0, help="stop when this parent process ends")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    options = EngineOptions(
        data_folder=arguments.data_dir, host=arguments.host, port=arguments.port, parent_pid=arguments.parent_pid
    )
    try:
        asyncio.run(serve(options))
    except FolderInUse as error:
        logging.getLogger("pergamon.engine").error("%s", error)
        return EXIT_IN_USE
    except OSError as error:
        logging.getLogger("pergamon.engine").error("cannot start: %s", error)
        return EXIT_UNUSABLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
