"""Retrieval quality of dense models alone: nDCG@10 by exact search, on sets in BEIR's layout.

    python bench/dense_models.py FOLDER [--models a,b] [--sets a,b] [--max-queries 400] [--threads 1] [--json FILE]

Each set is a folder with corpus.jsonl, queries.jsonl and qrels.tsv. Texts go through the product's own engine:
prefixes of the model's card, truncation on the right at its limit. Models are pulled when they are missing. The JSON is
written after every set, so that an interrupted run keeps what it has.
"""

import argparse
import asyncio
import json
import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from services.common.clock import Deadline, SystemClock
from services.inference.engine import InferenceEngine
from services.inference.pull import pull
from services.inference.settings import InferenceSettings, default_models_dir
from services.inference.store import ModelStore
from services.inference.types import InputType, Lane, Truncation

MODELS = "all-minilm-l6-v2,bge-small-en-v1.5,multilingual-e5-small"
SETS = "xquad-zh,xquad-en,stard-even,cranfield,cisi,drcd-dev,cosqa-dev"
CALL_TEXTS, CALL_SECONDS = 256, 3600.0


def lines(path):
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def judgements(path):
    found = defaultdict(dict)
    for line in path.read_text(encoding="utf-8").splitlines()[1:]:
        query, document, score = line.split("\t")
        found[query][document] = float(score)
    return found


async def vectors(engine, texts, input_type):
    """Unit vectors, float32 [n, dimensions]; how many texts were cut; seconds."""
    started = time.perf_counter()
    rows, truncated = [], 0
    for start in range(0, len(texts), CALL_TEXTS):
        outcome = await engine.embed(
            texts[start : start + CALL_TEXTS], input_type=input_type, truncation=Truncation.RIGHT, lane=Lane.BULK,
            deadline=Deadline.after(CALL_SECONDS, SystemClock()),
        )  # fmt: skip
        rows.append(outcome.dense)
        truncated += sum(item.truncated for item in outcome.items)
    return np.concatenate(rows), truncated, time.perf_counter() - started


def ndcg_at_10(order, relevant):
    gains = [relevant.get(document, 0.0) for document in order[:10]]
    ideal = sorted(relevant.values(), reverse=True)[:10]
    discounts = 1 / np.log2(np.arange(2, 12))
    best = float((np.array(ideal) * discounts[: len(ideal)]).sum())
    return float((np.array(gains) * discounts[: len(gains)]).sum()) / best if best else 0.0


async def measure(engine, folder, max_queries):
    corpus = lines(folder / "corpus.jsonl")
    qrels = judgements(folder / "qrels.tsv")
    queries = [query for query in lines(folder / "queries.jsonl") if qrels.get(query["_id"])][:max_queries]
    passages = [(document.get("title", "") + " " + document["text"]).strip() for document in corpus]
    rows, truncated, seconds = await vectors(engine, passages, InputType.PASSAGE)
    wanted, _, _ = await vectors(engine, [query["text"] for query in queries], InputType.QUERY)
    ids = [document["_id"] for document in corpus]
    scores = []
    for query, row in zip(queries, wanted, strict=True):
        similarity = rows @ row
        best = np.argsort(-similarity, kind="stable")[:10]
        scores.append(ndcg_at_10([ids[i] for i in best], qrels[query["_id"]]))
    return {
        "ndcg_at_10": round(float(np.mean(scores)), 4), "queries": len(queries), "passages": len(passages),
        "passages_cut": truncated, "passages_per_second": round(len(passages) / seconds, 1),
    }  # fmt: skip


async def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--models", default=MODELS)
    arguments.add_argument("--sets", default=SETS)
    arguments.add_argument("--models-dir", type=Path, default=default_models_dir())
    arguments.add_argument("--max-queries", type=int, default=400)
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--json", type=Path)
    chosen = arguments.parse_args()
    settings = InferenceSettings(models_dir=chosen.models_dir, threads=chosen.threads, max_backlog_seconds=CALL_SECONDS)
    store = ModelStore(settings.models_dir)
    report = {}
    for model in chosen.models.split(","):
        pull(store, model)
        engine = await InferenceEngine.load(model, store=store, settings=settings, clock=SystemClock())
        report[model] = {}
        for name in chosen.sets.split(","):
            report[model][name] = await measure(engine, chosen.folder / name, chosen.max_queries)
            print(model, name, report[model][name], flush=True)
            if chosen.json:
                chosen.json.write_text(json.dumps(report, indent=2) + "\n")
        await engine.aclose()


if __name__ == "__main__":
    asyncio.run(main())
