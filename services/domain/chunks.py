"""Chunks (what is embedded) and the settings that shape them."""

from dataclasses import dataclass
from enum import StrEnum

from services.domain.blocks import BoundingBox


class ChunkingStrategy(StrEnum):
    STANDARD = "STANDARD"


class ChunkUnit(StrEnum):
    WORDS = "WORDS"
    TOKENS = "TOKENS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunking:
    """How documents of a knowledge base are cut. Sizes are in `unit`; the model's input limit wins over `size`."""

    strategy: ChunkingStrategy = ChunkingStrategy.STANDARD
    unit: ChunkUnit = ChunkUnit.WORDS
    size: int = 400
    overlap: int = 40
    min_size: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One embedded piece of a document.

    `text` is what a caller gets back; `embedding_text` is `prefix + text`, what the models see. `ordinal` counts
    from 0 in document order. `content_hash` is the sha256 (hex) of `text` with white space collapsed: equal
    hashes are the same passage. `start`/`end` are the character range in the document's text.
    """

    ordinal: int
    text: str
    prefix: str
    section: tuple[str, ...]
    first_page: int | None
    last_page: int | None
    boxes: tuple[BoundingBox, ...]
    start: int
    end: int
    word_count: int
    token_count: int
    content_hash: str

    @property
    def embedding_text(self) -> str:
        return self.prefix + self.text
