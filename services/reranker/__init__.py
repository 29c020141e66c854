"""The reranker: a query and passages in, cross-encoder scores out, batched over all callers."""
