"""Texts as BM25 sparse vectors, in every language."""

from services.embedder.bm25.encoder import TOKENIZER_VERSION, Bm25Encoder, Side, SparseVector

__all__ = ["TOKENIZER_VERSION", "Bm25Encoder", "Side", "SparseVector"]
