"""Our ranking metrics agree with a published library on random rankings."""

import numpy as np
import pytest
import pytrec_eval

from services.launch.ranking_metrics import ndcg_at, recall_at, reciprocal_rank_at


def rankings(seed: int) -> tuple[dict[str, dict[str, int]], dict[str, list[str]]]:
    random = np.random.default_rng(seed)
    relevance: dict[str, dict[str, int]] = {}
    ranked: dict[str, list[str]] = {}
    for query in range(20):
        documents = [f"d{n}" for n in range(40)]
        grades = random.choice([0, 0, 0, 1, 2, 3], size=40)
        relevance[f"q{query}"] = {d: int(g) for d, g in zip(documents, grades, strict=True)} | {"d0": 1}
        ranked[f"q{query}"] = list(random.permutation(documents)[: random.integers(1, 30)])
    return relevance, ranked


@pytest.mark.parametrize("seed", range(3))
def test_metrics_when_compared_with_ranx_then_they_agree(seed: int) -> None:
    relevance, ranked = rankings(seed)
    run = {q: {d: float(10 - i) for i, d in enumerate(r[:10])} for q, r in ranked.items()}
    measured = pytrec_eval.RelevanceEvaluator(relevance, {"ndcg_cut.10", "recall.10", "recip_rank"}).evaluate(run)
    for name, metric in (("ndcg_cut_10", ndcg_at), ("recall_10", recall_at), ("recip_rank", reciprocal_rank_at)):
        for query in relevance:
            assert metric(10, ranked[query], relevance[query]) == pytest.approx(measured[query][name]), (name, query)


def test_metrics_when_nothing_is_relevant_then_they_are_zero() -> None:
    assert ndcg_at(10, ["a"], {"a": 0}) == recall_at(10, ["a"], {}) == reciprocal_rank_at(10, ["a"], {"b": 1}) == 0.0
