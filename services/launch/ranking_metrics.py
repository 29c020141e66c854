"""Ranking metrics over one query, as trec_eval defines them (linear gain)."""

import math
from collections.abc import Mapping, Sequence


def ndcg_at(k: int, ranked: Sequence[str], relevance: Mapping[str, int]) -> float:
    """Normalised discounted cumulative gain of the first k of `ranked`, 0 to 1 (Järvelin and Kekäläinen 2002)."""
    ideal = _gain(sorted((grade for grade in relevance.values() if grade > 0), reverse=True)[:k])
    if ideal == 0:
        return 0.0
    return _gain([max(0, relevance.get(entry, 0)) for entry in ranked[:k]]) / ideal


def recall_at(k: int, ranked: Sequence[str], relevance: Mapping[str, int]) -> float:
    """Share of the relevant entries that are among the first k."""
    relevant = {entry for entry, grade in relevance.items() if grade > 0}
    return len(relevant.intersection(ranked[:k])) / len(relevant) if relevant else 0.0


def reciprocal_rank_at(k: int, ranked: Sequence[str], relevance: Mapping[str, int]) -> float:
    """1 / rank of the first relevant entry among the first k, else 0."""
    for rank, entry in enumerate(ranked[:k], 1):
        if relevance.get(entry, 0) > 0:
            return 1 / rank
    return 0.0


def _gain(grades: Sequence[int]) -> float:
    return sum(grade / math.log2(rank + 1) for rank, grade in enumerate(grades, 1))
