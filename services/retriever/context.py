"""Passages assembled into a context, ready for a prompt: within a token budget, and safe from text that imitates it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise

from services.domain.ids import DocumentId
from services.retriever.types import Context, ContextCall, ContextFormat, Passage

_END = "=== END ==="
#: Scripts of which a model reads about one token a character: Han, Hiragana, Katakana, Hangul.
_CJK = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]")
_CHARS_A_TOKEN = 4
#: A line that could be taken for one of our marks, whatever invisible characters stand before it.
_MARK = re.compile(
    "(^|[\\n\\r\\v\\f\\x1c-\\x1e\\x85\\u2028\\u2029])"
    "([\\s\\x00-\\x1f\\x7f\\xad\\u034f\\u061c\\u180e\\u200b-\\u200f\\u202a-\\u202e\\u2060-\\u206f\\ufeff]*)"
    "(={3,})(?=[^=\\n\\r])"
)


def estimate_tokens(text: str) -> int:
    """Tokens of `text`: one a CJK character, one for every four other characters, rounded up."""
    cjk = len(_CJK.findall(text))
    return cjk + -(-(len(text) - cjk) // _CHARS_A_TOKEN)


def assemble(passages: Sequence[Passage], call: ContextCall) -> Context:
    """Take passages best first while they fit the budget, headings included, and put them in the format's order.

    A passage that does not fit is left out and a shorter one after it may still come in; all that were left out are
    counted. By knowledge base, the best of each come first in turn, so that no one takes all the room.
    """
    taken = _Taken(headed=call.by_knowledge_base, by_document=call.format is ContextFormat.DOCUMENTS)
    for position in _turns(passages) if call.by_knowledge_base else range(len(passages)):
        passage = passages[position]
        if len(taken.positions) < call.max_blocks and taken.cost(passage) + taken.tokens <= call.budget_tokens:
            taken.add(position, passage)
    arranged = sorted(taken.positions)
    if taken.by_document:
        arranged = _by_document(passages, arranged, by_knowledge_base=call.by_knowledge_base)
    text = _render(passages, arranged, taken)
    return Context(
        text=text,
        token_count=estimate_tokens(text),
        passages=tuple(arranged),
        omitted=len(passages) - len(arranged),
    )


@dataclass(slots=True, kw_only=True)
class _Taken:
    """What is in the context so far, and its tokens. Every part is rounded up, so the whole never exceeds their sum."""

    headed: bool
    by_document: bool
    positions: list[int] = field(default_factory=list[int])
    tokens: int = 0
    kbs: set[str] = field(default_factory=set[str])
    documents: set[DocumentId] = field(default_factory=set[DocumentId])

    def cost(self, passage: Passage) -> int:
        return sum(estimate_tokens(part) for part in self._parts(passage))

    def add(self, position: int, passage: Passage) -> None:
        self.tokens += self.cost(passage)
        self.positions.append(position)
        self.kbs.add(passage.stored.kb_id)
        self.documents.add(passage.stored.document_id)

    def _parts(self, passage: Passage) -> list[str]:
        parts: list[str] = []
        if self.headed and passage.stored.kb_id not in self.kbs:
            parts.append(_kb_heading(passage) + "\n\n")
        if not self.by_document:
            return [*parts, _block(passage) + "\n\n"]
        if passage.stored.document_id not in self.documents:
            parts.append(f"{_document_heading(passage)}\n\n{_END}\n\n")
        return [*parts, _body(passage) + "\n\n"]


def _turns(passages: Sequence[Passage]) -> list[int]:
    """Positions: the first passage of each knowledge base, then the second of each, and so on."""
    seen: dict[str, int] = {}
    turns: list[tuple[int, int]] = []
    for position, passage in enumerate(passages):
        turn = seen.get(passage.stored.kb_id, 0)
        seen[passage.stored.kb_id] = turn + 1
        turns.append((turn, position))
    return [position for _, position in sorted(turns)]


def _by_document(passages: Sequence[Passage], positions: Sequence[int], *, by_knowledge_base: bool) -> list[int]:
    """Documents by their best passage (within their knowledge base if asked), their passages in document order."""
    kbs: dict[str, int] = {}
    documents: dict[DocumentId, int] = {}
    for position in positions:
        kbs.setdefault(passages[position].stored.kb_id, position)
        documents.setdefault(passages[position].stored.document_id, position)

    def place(position: int) -> tuple[int, int, int]:
        stored = passages[position].stored
        return kbs[stored.kb_id] if by_knowledge_base else 0, documents[stored.document_id], stored.ordinal

    return sorted(positions, key=place)


def _render(passages: Sequence[Passage], arranged: Sequence[int], taken: _Taken) -> str:
    parts: list[str] = []
    for _, same_kb in groupby(arranged, key=lambda position: passages[position].stored.kb_id):
        chosen = [passages[position] for position in same_kb]
        if taken.headed:
            parts.append(_kb_heading(chosen[0]))
        if not taken.by_document:
            parts += [_block(passage) for passage in chosen]
            continue
        for _, same_document in groupby(chosen, key=lambda passage: passage.stored.document_id):
            document = list(same_document)
            bodies = [
                _body(document[0]),
                *(_body(after, _overlap(before, after)) for before, after in pairwise(document)),
            ]
            parts += [_document_heading(document[0]), *(body for body in bodies if body), _END]
    return "\n\n".join(parts)


def _kb_heading(passage: Passage) -> str:
    return f"=== KNOWLEDGE BASE: {_in_heading(passage.knowledge_base_name)} ==="


def _document_heading(passage: Passage) -> str:
    metadata = passage.document.metadata
    title = _in_heading(metadata.title or passage.document.name)
    source = _in_heading(metadata.source_url or passage.document.name)
    updated = f" [updated: {metadata.updated_time:%Y-%m-%d}]" if metadata.updated_time else ""
    return f"=== DOCUMENT: {title} [source: {source}]{updated} ==="


def _block(passage: Passage) -> str:
    place = " > ".join(_in_heading(part) for part in (passage.document.name, *passage.stored.section))
    rerank = passage.scores.rerank
    relevance = f" [relevance: {rerank.label.value}]" if rerank else ""
    return f"=== SOURCE: {place}{relevance} ===\n{_body(passage)}\n{_END}"


def _overlap(before: Passage, after: Passage) -> int:
    """Characters at the start of `after` that `before` has said already, where the texts are as in the document."""
    first, second = before.stored, after.stored
    shared = first.end - second.start
    as_is = len(second.text) == second.end - second.start
    return shared if as_is and shared > 0 and first.text.endswith(second.text[:shared]) else 0


def _body(passage: Passage, skipped: int = 0) -> str:
    first, last = passage.stored.first_page, passage.stored.last_page
    text = _MARK.sub(_defused, passage.stored.text[skipped:].lstrip() if skipped else passage.stored.text)
    if not first or not text:
        return text
    return f"[Page {first}] {text}" if last in (None, first) else f"[Pages {first}-{last}] {text}"


def _in_heading(text: str) -> str:
    """On one line, and without what could end the heading early."""
    return re.sub("={3,}", lambda found: " ".join(found.group()), " ".join(text.split()))


def _defused(found: "re.Match[str]") -> str:
    """The same line with its equals signs set apart: readable, and no mark of ours."""
    return found.group(1) + found.group(2) + " ".join(found.group(3))
