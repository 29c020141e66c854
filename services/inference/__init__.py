"""Running models: cards and pulling, tokenisation, batching, and the backends. Shared by embedder and reranker."""
