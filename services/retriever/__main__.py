"""`python -m services.retriever`: the retriever as a server of its own. Settings: `PERGAMON_<FIELD>`."""

import sys

from services.common.main import run
from services.retriever.settings import RetrieverSettings
from services.retriever.standalone import opened

if __name__ == "__main__":
    sys.exit(run(RetrieverSettings, opened))
