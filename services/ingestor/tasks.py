"""What worker processes do for the pipeline: read a stretch of a document, cut it into chunks.

Functions here run in spawned processes: they take and return plain values, and never open the catalogue.
"""

from dataclasses import dataclass
from pathlib import Path

from services.common.errors import DocumentError, Reason
from services.domain.blocks import Block, DocumentKind, DocumentMetadata, ParseWarning
from services.domain.chunks import Chunk, Chunking
from services.ingestor.chunking import chunk_document
from services.ingestor.parsing import ParseOptions, open_source
from services.ingestor.parts import decode_part, encode_part, placed


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A parsed stretch in its stored form, and where to go on: `next_page` None after the last one."""

    content: bytes
    next_page: int | None
    pages_done: int
    kind: DocumentKind
    page_count: int
    metadata: DocumentMetadata
    warnings: tuple[ParseWarning, ...]
    text_chars: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkOptions:
    kind: DocumentKind
    title: str
    name: str
    chunking: Chunking
    tokenizer_path: str
    max_tokens: int
    passage_overhead_tokens: int


def parse_stretch(path: Path, options: ParseOptions, first_page: int) -> Stretch:
    """Parse the stretch of the document that starts at `first_page`. Raises DocumentError."""
    source = open_source(path, options)
    try:
        part = next(iter(source.parts(first_page)), None)
        if part is None:
            raise DocumentError(f"page {first_page} is beyond the end", reason=Reason.UNREADABLE_DOCUMENT)
        paged = source.page_count > 0
        more = paged and part.last_page < source.page_count
        return Stretch(
            content=encode_part(part),
            next_page=part.last_page + 1 if more else None,
            pages_done=part.last_page if paged else 1,
            kind=source.kind,
            page_count=source.page_count,
            metadata=source.metadata,
            warnings=part.warnings,
            text_chars=sum(len(block.text) for block in part.blocks),
        )
    finally:
        source.close()


def chunk_parts(parts: list[bytes], options: ChunkOptions) -> tuple[Chunk, ...]:
    """Cut a whole document, given in its stored form."""
    blocks: list[Block] = list(placed(block for part in parts for block in decode_part(part).blocks))
    return chunk_document(
        blocks,
        kind=options.kind,
        title=options.title,
        name=options.name,
        chunking=options.chunking,
        tokenizer_path=options.tokenizer_path,
        max_tokens=options.max_tokens,
        passage_prefix_tokens=options.passage_overhead_tokens,
    )
