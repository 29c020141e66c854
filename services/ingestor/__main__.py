"""`python -m services.ingestor`: the ingestor as a server of its own. Settings: `PERGAMON_<FIELD>`."""

import sys

from services.common.main import run
from services.ingestor.settings import IngestorSettings
from services.ingestor.standalone import opened

if __name__ == "__main__":
    sys.exit(run(IngestorSettings, opened))
