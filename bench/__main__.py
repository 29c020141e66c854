"""`make bench`: every measurement, one after another; JSON goes into bench/out. Some need evaluation data.

    python -m bench [NAME ...]      names: search, index, reliability, bm25, models, extraction,
                                    embed_engine, embed_service, rerank_engine, host_cost, lanes, overload,
                                    soak, ray_serve

`search`, `index` and `reliability` make their own data and take minutes to an hour; `reliability` stops after 20.
The second row is inference: those that compare with peers install them, once, into bench/.peers.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_BENCH = Path(__file__).resolve().parent
_OUT = _BENCH / "out"
#: Modules of this package that write NAME.json and NAME.png into bench/out themselves.
_INFERENCE = ("embed_engine", "embed_service", "rerank_engine", "host_cost", "lanes", "overload", "soak", "ray_serve")


def evaluation_data() -> Path | None:
    """Where the evaluation data is: PERGAMON_EVAL_DATA, or `shared/data` beside the checkout."""
    named = os.environ.get("PERGAMON_EVAL_DATA")
    folder = Path(named) if named else _BENCH.parent.parent / "shared" / "data"
    return folder if folder.is_dir() else None


def commands(data: Path | None) -> dict[str, tuple[Sequence[str], bool]]:
    """The command line of each measurement, and whether it prints its JSON instead of writing it."""
    known: dict[str, tuple[Sequence[str], bool]] = {
        "search": (("-m", "bench.search_overhead", "--out", str(_OUT / "search.json")), False),
        "index": (("bench/index_speed.py", "--out", str(_OUT / "index.json")), False),
        "reliability": (("bench/reliability.py", "--kills", "200", "--minutes", "20", "--json"), True),
    }
    known |= {name: (("-m", f"bench.{name}"), False) for name in _INFERENCE}
    if data is not None:
        retrieval = str(data / "retrieval")
        known["bm25"] = (("bench/bm25_quality.py", retrieval, "--json", str(_OUT / "bm25.json")), False)
        known["models"] = (("bench/dense_models.py", retrieval, "--json", str(_OUT / "models.json")), False)
        known["extraction"] = (("bench/extract_local.py", str(data / "hard")), True)
    return known


def main() -> int:
    data = evaluation_data()
    known = commands(data)
    chosen = sys.argv[1:] or list(known)
    unknown = [name for name in chosen if name not in known]
    if unknown:
        print(f"unknown or without its data: {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    if data is None:
        print("no evaluation data (PERGAMON_EVAL_DATA): bm25, models and extraction are left out", file=sys.stderr)
    _OUT.mkdir(exist_ok=True)
    failed = 0
    for name in chosen:
        arguments, prints = known[name]
        print(f"== {name}", flush=True)
        ended = subprocess.run(
            [sys.executable, *arguments], cwd=_BENCH.parent, check=False, stdout=subprocess.PIPE if prints else None
        )
        if prints:
            (_OUT / f"{name}.txt").write_bytes(ended.stdout)
            sys.stdout.buffer.write(ended.stdout)
        failed += ended.returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
