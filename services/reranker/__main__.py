"""`python -m services.reranker`: the reranker as a server of its own. Settings: `PERGAMON_<FIELD>`."""

import sys

from services.common.main import run
from services.reranker.settings import RerankerSettings
from services.reranker.standalone import opened

if __name__ == "__main__":
    sys.exit(run(RerankerSettings, opened))
