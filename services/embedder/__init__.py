"""The embedder: texts in, dense and sparse vectors out, batched over all callers."""
