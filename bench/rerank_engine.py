"""Our reranking engine against CrossEncoder of sentence-transformers in f32: 50 passages of 150 tokens, in turn.

    python -m bench.rerank_engine [--rounds 5]

Both get every core. Passages are made to have about 150 tokens with the query; beside the speed, the order of the
best ten must be the same on both sides.
"""

import argparse
import os
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench import peers
from bench.children import Child
from bench.models import store_with
from bench.peer_folder import make_peer_folder
from bench.rounds import Turns, alternate, bars, load, ratio, spread, write
from services.inference.checkpoint import TOKENIZER_FILE
from services.inference.tokenizer import TextTokenizer
from services.launch.bench_texts import Span, texts_of

_MODEL, _PEER = "ms-marco-minilm-l12", "sentence-transformers"
_PASSAGES, _TOKENS, _BATCH, _TOP = 50, 150, 32, 10
_QUERY = "what pressure does the machine need before maintenance of the hydraulic compressor"


def passages_of(tokenizer: TextTokenizer, count: int, tokens: int) -> list[str]:
    """Made-up texts, each cut at the word where query and passage have `tokens` tokens."""
    passages: list[str] = []
    overhead = len(tokenizer.token_ids([_QUERY])[0]) + 1
    for text in texts_of(3, count, Span(least=tokens, most=tokens)):
        words = text.split()
        while len(tokenizer.token_ids([" ".join(words)])[0]) - 2 + overhead > tokens:
            words.pop()
        passages.append(" ".join(words))
    return passages


def order(logits: list[float]) -> list[int]:
    return sorted(range(len(logits)), key=lambda index: -logits[index])[:_TOP]


def measure(folder: Path, rounds: int, threads: int) -> dict[str, Any]:
    store = store_with(_MODEL, folder)
    card = store.card(_MODEL)
    tokenizer = TextTokenizer.load(store.folder(card) / TOKENIZER_FILE, max_tokens=card.max_tokens)
    passages = passages_of(tokenizer, _PASSAGES, _TOKENS)
    before = load()
    with (
        Child(["-m", "bench.own_engine"]) as own,
        Child(["bench/peer_sentence_transformers.py"], python=peers.python_of(_PEER)) as peer,
    ):
        own.ask("load", models_dir=str(store.root), model=_MODEL, threads=threads)
        peer_folder = make_peer_folder(store, card, folder / "peer")
        loaded = peer.ask("load", folder=str(peer_folder), reranker=True, threads=threads)

        def ask_own() -> dict[str, Any]:
            return own.ask("rerank", query=_QUERY, passages=passages)

        def ask_peer() -> dict[str, Any]:
            return peer.ask("rerank", query=_QUERY, passages=passages, batch=_BATCH)

        ask_own()
        ours, theirs = ask_own()["logits"], ask_peer()["logits"]
        turns = {"pergamon": Turns(ask_own, _PASSAGES), _PEER: Turns(ask_peer, _PASSAGES)}
        rates = alternate({side: turn.rate for side, turn in turns.items()}, rounds)
    return {
        "passages": _PASSAGES,
        "tokens": _TOKENS,
        "passages_per_s": {side: spread(values) for side, values in rates.items()},
        "ratio": ratio(rates["pergamon"], rates[_PEER]),
        "cpu_ms_a_passage": {side: spread(turn.cpu_ms) for side, turn in turns.items()},
        "cpu_ratio": ratio(turns[_PEER].cpu_ms, turns["pergamon"].cpu_ms),
        "same_order_of_top_10": order(ours) == order(theirs),
        "order": {"pergamon": order(ours), _PEER: order(theirs)},
        "logit_difference_max": round(max(abs(a - b) for a, b in zip(ours, theirs, strict=True)), 4),
        "logit_gap_of_neighbours_min": round(_least_gap(theirs), 4),
        "peer_dtype": loaded["dtype"],
        "load_average": {"before": before, "after": load()},
    }


def _least_gap(logits: list[float]) -> float:
    """Between neighbours among the best eleven: an order is decided no finer than this."""
    best = sorted(logits, reverse=True)[: _TOP + 1]
    return min(a - b for a, b in pairwise(best))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    threads = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="pergamon-bench-") as temporary:
        found = measure(Path(temporary), arguments.rounds, threads)
    report = {
        "model": _MODEL, "threads_of_each_side": threads, "rounds": arguments.rounds,
        "peer": peers.versions_of(_PEER), **found,
    }  # fmt: skip
    write("rerank_engine", report, lambda axes: bars(axes, {_MODEL: found["passages_per_s"]}, "passages/s"))


if __name__ == "__main__":
    main()
