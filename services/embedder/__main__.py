"""`python -m services.embedder`: the embedder as a server of its own. Settings: `PERGAMON_<FIELD>`."""

import sys

from services.common.main import run
from services.embedder.settings import EmbedderSettings
from services.embedder.standalone import opened

if __name__ == "__main__":
    sys.exit(run(EmbedderSettings, opened))
