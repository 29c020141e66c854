"""One document, block by block, into chunks: sections, then the stretches in them, then the best cuts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from services.domain.blocks import Block, BlockKind, DocumentKind
from services.domain.chunks import Chunk, Chunking
from services.ingestor.chunking.breaks import Breaks
from services.ingestor.chunking.code import unit_starts
from services.ingestor.chunking.cutter import Cutter, Piece
from services.ingestor.chunking.layout import Layout, Section, boxes_of
from services.ingestor.chunking.measure import Room, Ruler, count_words
from services.ingestor.chunking.prefix import chunk_prefix, document_title
from services.ingestor.chunking.tables import TableCutter, cell_ends
from services.ingestor.chunking.tokens import TokenCounter, open_tokenizer

_MIN_INPUT_TOKENS: Final = 16
_PREFIX_SHARE: Final = 4
# Tokens may join or part where a piece is cut; the estimate stays this far below the limit.
_SLACK_TOKENS: Final = 3
_ATOM_SHARE: Final = 0.9
_FENCE: Final = re.compile(r"^(`{3,}|~{3,})[^\n]*\n(?:[^\n]*\n)*?\1[`~]*[^\S\n]*$", re.MULTILINE)


def chunk_document(
    blocks: Sequence[Block],
    *,
    kind: DocumentKind,
    title: str,
    name: str,
    chunking: Chunking,
    tokenizer_path: str,
    max_tokens: int,
    passage_prefix_tokens: int = 0,
) -> tuple[Chunk, ...]:
    """Cuts a document by the rules of `chunking`; every visible character of every block is in some chunk, in order.

    `max_tokens` is the model's input limit, special tokens and `passage_prefix_tokens` (what the embedder puts before a
    passage) included; `token_count` of a chunk counts the same. `chunking` must be valid (see `rules.validate`). A
    chunk's text is the document's text from `start` to `end`, behind the repeated header if it continues a table.

    Errors: OSError when there is no tokenizer; ValueError when the limit leaves less than 16 tokens.
    """
    layout = Layout(blocks)
    counter = open_tokenizer(tokenizer_path)
    room = max_tokens - passage_prefix_tokens - counter.special_tokens
    if room < _MIN_INPUT_TOKENS:
        raise ValueError(f"max_tokens {max_tokens} leaves {room} tokens for text; at least {_MIN_INPUT_TOKENS} needed")
    work = _Work(
        layout=layout,
        ruler=Ruler(layout.text, counter.starts(layout.text)),
        counter=counter,
        chunking=chunking,
        kind=kind,
        language=_code_language(name),
        title=document_title(title, name),
        max_tokens=max_tokens - passage_prefix_tokens,
    )
    chunks: list[Chunk] = []
    for section in layout.sections():
        prefix = work.prefix(section.path)
        for piece in work.pieces(section, prefix):
            chunks.append(work.chunk(piece, section, prefix, len(chunks), passage_prefix_tokens))
    return tuple(chunks)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    layout: Layout
    ruler: Ruler
    counter: TokenCounter
    chunking: Chunking
    kind: DocumentKind
    language: str
    title: str
    max_tokens: int

    def prefix(self, path: tuple[str, ...]) -> str:
        most = max(1, (self.max_tokens - self.counter.special_tokens) // _PREFIX_SHARE)
        special = self.counter.special_tokens
        return chunk_prefix(self.title, path, lambda prefix: self.counter.count(prefix) - special <= most)

    def pieces(self, section: Section, prefix: str) -> Iterator[Piece]:
        """Stretches of a section: text between big tables, and those tables. A short text joins the table after it."""
        layout, breaks = self.layout, Breaks()
        cutter = self._cutter(prefix, breaks)
        start = layout.starts[section.first]
        for index in range(section.first, section.end):
            block, at = layout.blocks[index], layout.starts[index]
            end = at + len(block.text)
            if index > section.first and layout.blocks[index - 1].kind is not BlockKind.HEADING:
                breaks.ranks[0].append(at)
            if block.kind is BlockKind.TABLE and not self._is_atom(cutter.room, at, end):
                breaks.ranks[1].extend(cell_ends(block.text, at))
                breaks.add_sentences(block.text, at)
                if self.ruler.units(self.chunking.unit, start, at) >= self.chunking.min_size:
                    yield from cutter.pieces(start, at)
                    start = at
                lead_start = start + len(layout.text[start:at]) - len(layout.text[start:at].lstrip())
                yield from TableCutter(cutter=cutter, block=block, at=at).pieces(lead_start)
                start = end
            else:
                self._add_breaks(block, at, cutter.room, breaks)
        yield from cutter.pieces(start, layout.end_of(section.end - 1))

    def chunk(self, piece: Piece, section: Section, prefix: str, ordinal: int, passage_prefix_tokens: int) -> Chunk:
        text = self._text(piece.start, piece.end, piece.lead)
        covered = self.layout.covering(piece.start, piece.end)
        pages = [block.page for block in covered if block.page is not None]
        return Chunk(
            ordinal=ordinal,
            text=text,
            prefix=prefix,
            section=section.path,
            first_page=min(pages, default=None),
            last_page=max(pages, default=None),
            boxes=boxes_of(covered),
            start=self.layout.base + piece.start,
            end=self.layout.base + piece.end,
            word_count=count_words(text),
            token_count=piece.token_count + passage_prefix_tokens,
            content_hash=sha256(" ".join(text.split()).encode("utf-8", "surrogatepass")).hexdigest(),
        )

    def _cutter(self, prefix: str, breaks: Breaks) -> Cutter:
        tokens = self.max_tokens - self.counter.count(prefix) - _SLACK_TOKENS
        return Cutter(
            text=self.layout.text,
            ruler=self.ruler,
            breaks=breaks,
            chunking=self.chunking,
            room=Room(unit=self.chunking.unit, units=self.chunking.size, tokens=max(1, tokens)),
            count_input=lambda start, end, lead: self.counter.count(prefix + self._text(start, end, lead)),
            max_tokens=self.max_tokens,
            by_unit=self.kind is DocumentKind.CODE,
        )

    def _text(self, start: int, end: int, lead: str) -> str:
        return lead + self.layout.text[start:end]

    def _is_atom(self, room: Room, start: int, end: int) -> bool:
        return self.ruler.fits(room, start, end) and self.ruler.tokens(start, end) <= room.tokens * _ATOM_SHARE

    def _add_breaks(self, block: Block, at: int, room: Room, breaks: Breaks) -> None:
        end = at + len(block.text)
        is_code = block.kind is BlockKind.CODE or self.kind is DocumentKind.CODE
        if block.kind is BlockKind.TABLE or (
            block.kind is BlockKind.CODE and self.kind is not DocumentKind.CODE and self._is_atom(room, at, end)
        ):
            breaks.atoms.append((at, end))
        elif is_code:
            language = block.code_language or self.language
            units = unit_starts(block.text, language, lambda a, b: not self._is_atom(room, at + a, at + b))
            breaks.add_lines(block.text, at, [unit for unit in units if unit])
        elif self.kind is DocumentKind.MARKDOWN and ("```" in block.text or "~~~" in block.text):
            self._add_fenced(block.text, at, room, breaks)
        else:
            breaks.add_prose(block.text, at)

    def _add_fenced(self, text: str, at: int, room: Room, breaks: Breaks) -> None:
        """Prose with fences that the parser left in it: a fence that fits is never torn."""
        found = Breaks()
        found.add_prose(text, at)
        atoms = [(at + match.start(), at + match.end()) for match in _FENCE.finditer(text)]
        found.atoms = [atom for atom in atoms if self._is_atom(room, *atom)]
        breaks.atoms.extend(found.atoms)
        for rank, positions in enumerate(found.ranks):
            breaks.ranks[rank].extend(p for p in positions if found.outside_atoms(p) == p)
        breaks.ranks[0].extend(start for start, _ in found.atoms if start > at)
        breaks.ranks[0].sort()


def _code_language(name: str) -> str:
    return name.rpartition(".")[2].lower() if "." in name else ""
