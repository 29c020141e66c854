"""Retrieval quality of the BM25 analysis alone: nDCG@10 and Recall@10, brute force, on sets in BEIR's layout.

    python bench/bm25_quality.py FOLDER [--sets a,b] [--language-hint] [--json FILE]

Each set is a folder with corpus.jsonl, queries.jsonl and qrels.tsv. Scores are those of the engine: passage weight
times the inverse document frequency ln(1 + (N - n + .5) / (n + .5)), with the true average length of the set.
"""

import argparse
import json
import math
import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from services.embedder.bm25 import TOKENIZER_VERSION, Bm25Encoder


def lines(path):
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def judgements(path):
    found = defaultdict(dict)
    for line in path.read_text(encoding="utf-8").splitlines()[1:]:
        query, document, score = line.split("\t")
        found[query][document] = float(score)
    return found


def measure(folder: Path, encoder: Bm25Encoder, language: str) -> dict:
    corpus = lines(folder / "corpus.jsonl")
    texts = [d.get("title", "") + " " + d["text"] for d in corpus]
    started = time.perf_counter()
    probes = [encoder.passage_vector(t, average_length=1.0, language=language) for t in texts]
    seconds = time.perf_counter() - started
    average = sum(v.length for v in probes) / len(probes)
    vectors = [encoder.passage_vector(t, average_length=average, language=language) for t in texts]
    postings = defaultdict(list)
    for row, vector in enumerate(vectors):
        for index, value in zip(vector.indices.tolist(), vector.values.tolist(), strict=True):
            postings[index].append((row, value))
    arrays = {i: (np.array([r for r, _ in p]), np.array([v for _, v in p])) for i, p in postings.items()}
    ids = [d["_id"] for d in corpus]
    qrels = judgements(folder / "qrels.tsv")
    ndcg, recall = [], []
    query_seconds = 0.0
    for query in lines(folder / "queries.jsonl"):
        relevant = qrels.get(query["_id"])
        if not relevant:
            continue
        scores = np.zeros(len(texts))
        started = time.perf_counter()
        vector = encoder.query_vector(query["text"], language=language)
        query_seconds += time.perf_counter() - started
        for index, weight in zip(vector.indices.tolist(), vector.values.tolist(), strict=True):
            if index in arrays:
                rows, values = arrays[index]
                scores[rows] += weight * values * math.log(1 + (len(texts) - len(rows) + 0.5) / (len(rows) + 0.5))
        top = np.argsort(-scores, kind="stable")[:10]
        gains = [relevant.get(ids[row], 0.0) if scores[row] > 0 else 0.0 for row in top]
        ideal = sorted(relevant.values(), reverse=True)[:10]
        ndcg.append(dcg(gains) / dcg(ideal) if dcg(ideal) else 0.0)
        recall.append(sum(g > 0 for g in gains) / sum(g > 0 for g in relevant.values()))
    size_mb = sum(len(t.encode()) for t in texts) / 1e6
    return {
        "set": folder.name,
        "ndcg_at_10": round(float(np.mean(ndcg)), 4),
        "recall_at_10": round(float(np.mean(recall)), 4),
        "average_length": round(average, 1),
        "mb_per_s": round(size_mb / seconds, 2),
        "query_ms": round(1000 * query_seconds / len(ndcg), 3),
    }


def dcg(gains):
    return sum(gain / math.log2(rank + 2) for rank, gain in enumerate(gains))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sets", default="")
    parser.add_argument("--language-hint", action="store_true", help="pass the language of meta.json on both sides")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    chosen = set(filter(None, arguments.sets.split(",")))
    encoder = Bm25Encoder()
    rows = []
    for folder in sorted(p for p in arguments.folder.iterdir() if (p / "corpus.jsonl").exists()):
        if chosen and folder.name not in chosen:
            continue
        language = ""
        if arguments.language_hint:
            language = json.loads((folder / "meta.json").read_text(encoding="utf-8"))["lang"][:2]
        rows.append(measure(folder, encoder, language))
        print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps({"tokenizer": TOKENIZER_VERSION, "sets": rows}, indent=1))


if __name__ == "__main__":
    main()
