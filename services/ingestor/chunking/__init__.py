"""Cuts a parsed document into the chunks that are embedded and found. Light to import: runs in worker processes."""

from services.ingestor.chunking.chunker import chunk_document
from services.ingestor.chunking.rules import effective_size, validate

__all__ = ["chunk_document", "effective_size", "validate"]
