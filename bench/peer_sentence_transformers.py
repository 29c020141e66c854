"""sentence-transformers in its own environment, as a child that obeys commands; knows nothing of the product.

{"command": "load", "folder": "...", "reranker": false, "threads": 2}
{"command": "embed", "texts": [...], "batch": 32, "vectors": "out.npy"}
{"command": "rerank", "query": "...", "passages": [...], "batch": 32}
"""

import json
import sys
import time
from typing import Any

import numpy as np
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer

_loaded: dict[str, Any] = {}


def load(folder: str, reranker: bool, threads: int) -> dict[str, Any]:
    torch.set_num_threads(threads)
    kind = CrossEncoder if reranker else SentenceTransformer
    _loaded["model"] = kind(folder, device="cpu", model_kwargs={"dtype": torch.float32})
    first = next(_loaded["model"].parameters())
    return {"dtype": str(first.dtype), "threads": torch.get_num_threads()}


def embed(texts: list[str], batch: int, vectors: str = "") -> dict[str, Any]:
    cpu, started = time.process_time(), time.perf_counter()
    rows = _loaded["model"].encode(texts, batch_size=batch, show_progress_bar=False, convert_to_numpy=True)
    taken = _taken(cpu, started)
    if vectors:
        np.save(vectors, rows)
    return taken


def rerank(query: str, passages: list[str], batch: int) -> dict[str, Any]:
    pairs = [(query, passage) for passage in passages]
    cpu, started = time.process_time(), time.perf_counter()
    logits = _loaded["model"].predict(
        pairs, batch_size=batch, show_progress_bar=False, activation_fn=torch.nn.Identity()
    )
    return _taken(cpu, started) | {"logits": [float(logit) for logit in logits]}


def _taken(cpu: float, started: float) -> dict[str, float]:
    return {"seconds": time.perf_counter() - started, "cpu_s": time.process_time() - cpu}


_HANDLERS = {"load": load, "embed": embed, "rerank": rerank}

if __name__ == "__main__":
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps({"answer": _HANDLERS[asked.pop("command")](**asked)}), flush=True)
