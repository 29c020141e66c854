"""Our embedding engine against sentence-transformers in f32, on the same mixed texts, in turn within one run.

    python -m bench.embed_engine [--rounds 5] [--models NAME,...] [--texts 256]

Both get every core. Each side is a process of its own that obeys commands, so that the two never compute at the
same time; texts are 20 to 300 words, cut at the model's limit. The model `xlm-r-large-random` has the shape of bge-m3
and random weights, and gets 32 texts because it is slow. The fewer the texts, the more of the peer's work is padding:
the report says how much.
"""

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from bench import peers
from bench.children import Child
from bench.models import LARGE, store_with
from bench.peer_folder import make_peer_folder
from bench.rounds import Turns, alternate, bars, load, ratio, spread, write
from services.inference.cards import ModelCard
from services.inference.store import ModelStore
from services.launch.bench_texts import Span, texts_of

_MODELS = ("all-minilm-l6-v2", "multilingual-e5-small", LARGE)
_WORDS, _LARGE_TEXTS, _BATCH = Span(least=20, most=300), 32, 32
_PEER = "sentence-transformers"


def measure(name: str, folder: Path, texts: list[str], rounds: int, threads: int) -> dict[str, Any]:
    store = store_with(name, folder / "models")
    card = store.card(name)
    before = load()
    with (
        Child(["-m", "bench.own_engine"]) as own,
        Child(["bench/peer_sentence_transformers.py"], python=peers.python_of(_PEER)) as peer,
    ):
        own.ask("load", models_dir=str(store.root), model=name, threads=threads)
        peer_folder = make_peer_folder(store, card, folder / f"peer-{name}")
        loaded = peer.ask("load", folder=str(peer_folder), reranker=False, threads=threads)
        prefixed = [card.passage_prefix + text for text in texts]
        cosine = _least_cosine(own, peer, texts, prefixed, folder)
        turns = {
            "pergamon": Turns(lambda: own.ask("embed", texts=texts), len(texts)),
            _PEER: Turns(lambda: peer.ask("embed", texts=prefixed, batch=_BATCH), len(texts)),
        }
        rates = alternate({side: turn.rate for side, turn in turns.items()}, rounds)
    return {
        "texts": len(texts),
        "texts_per_s": {side: spread(values) for side, values in rates.items()},
        "ratio": ratio(rates["pergamon"], rates[_PEER]),
        "cpu_ms_a_text": {side: spread(turn.cpu_ms) for side, turn in turns.items()},
        "cpu_ratio": ratio(turns[_PEER].cpu_ms, turns["pergamon"].cpu_ms),
        "cosine_min": round(cosine, 6),
        "peer_dtype": loaded["dtype"],
        "load_average": {"before": before, "after": load()},
    }


def _least_cosine(own: Child, peer: Child, texts: list[str], prefixed: list[str], folder: Path) -> float:
    """Of the vectors of both sides; this is their warm-up too."""
    ours, theirs = folder / "own.npy", folder / "peer.npy"
    for _ in range(2):
        own.ask("embed", texts=texts, vectors=str(ours))
    peer.ask("embed", texts=prefixed, batch=_BATCH, vectors=str(theirs))
    rows = np.load(ours) * np.load(theirs)
    return float(rows.sum(axis=1).min())


def token_counts(store: ModelStore, card: ModelCard, texts: list[str]) -> dict[str, float]:
    from services.inference.checkpoint import TOKENIZER_FILE
    from services.inference.tokenizer import TextTokenizer

    tokenizer = TextTokenizer.load(store.folder(card) / TOKENIZER_FILE, max_tokens=card.max_tokens)
    counts = [min(len(ids), card.max_tokens) for ids in tokenizer.token_ids(texts, prefix=card.passage_prefix)]
    ordered = sorted(counts, reverse=True)  # as the peer sorts them, though by characters
    padded = sum(len(ordered[at : at + _BATCH]) * ordered[at] for at in range(0, len(ordered), _BATCH))
    return {
        "mean": round(float(np.mean(counts)), 1),
        "most": max(counts),
        "peer_padded_by_real": round(padded / sum(counts), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--models", default=",".join(_MODELS))
    parser.add_argument("--texts", type=int, default=256)
    arguments = parser.parse_args()
    threads = len(os.sched_getaffinity(0))
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="pergamon-bench-") as temporary:
        for name in arguments.models.split(","):
            count = min(arguments.texts, _LARGE_TEXTS) if name == LARGE else arguments.texts
            texts = texts_of(1, count, _WORDS)
            found[name] = measure(name, Path(temporary), texts, arguments.rounds, threads)
            store = store_with(name, Path(temporary) / "models")
            found[name]["tokens"] = token_counts(store, store.card(name), texts)
    report = {
        "threads_of_each_side": threads, "rounds": arguments.rounds, "peer": peers.versions_of(_PEER), "models": found,
    }  # fmt: skip
    write(
        "embed_engine",
        report,
        lambda axes: bars(axes, {name: one["texts_per_s"] for name, one in found.items()}, "texts/s"),
    )


if __name__ == "__main__":
    main()
