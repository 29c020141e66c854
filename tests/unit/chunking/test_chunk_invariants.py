"""What holds for every document: nothing lost, nothing over the limit, places right."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from services.domain.blocks import BLOCK_SEPARATOR, Block, BlockKind, BoundingBox, DocumentKind
from services.domain.chunks import Chunking, ChunkUnit
from services.ingestor.chunking import chunk_document
from services.ingestor.chunking.measure import count_words
from services.ingestor.chunking.tokens import open_tokenizer

MAX_TOKENS = 40
PASSAGE_PREFIX_TOKENS = 2

word = st.text("abcdefg中文字é1._-ÀЖก", min_size=1, max_size=12) | st.just("x" * 90) | st.just("e.g.")
line = st.lists(word, min_size=1, max_size=30).map(" ".join)
text = st.lists(line, min_size=1, max_size=4).flatmap(
    lambda lines: st.sampled_from(["\n", "\n\n", ". ", "。"]).map(lambda separator: separator.join(lines))
)
cell = line.map(lambda value: value[:60].strip() or "-")


def table(rows):
    shown = "\n".join(" | ".join(row) for row in rows)
    return Block(kind=BlockKind.TABLE, text=shown, rows=tuple(map(tuple, rows)), header_rows=1)


block = st.one_of(
    text.map(lambda value: Block(kind=BlockKind.PARAGRAPH, text=value)),
    text.map(lambda value: Block(kind=BlockKind.CODE, text=value, code_language="python")),
    text.map(lambda value: Block(kind=BlockKind.PARAGRAPH, text=f"before\n```\n{value}\n```\nafter")),
    st.builds(lambda value, level: Block(kind=BlockKind.HEADING, text=value, level=level), line, st.integers(1, 3)),
    st.lists(st.tuples(cell, cell), min_size=1, max_size=12).map(table),
)


def placed(blocks):
    found, at = [], 0
    for index, one in enumerate(blocks):
        page = index // 2 + 1
        box = BoundingBox(page=page, x0=0, y0=index, x1=1, y1=index + 1)
        end = at + len(one.text)
        found.append(
            Block(kind=one.kind, text=one.text, level=one.level, rows=one.rows, header_rows=one.header_rows,
                  code_language=one.code_language, page=page, box=box, start=at, end=end)
        )  # fmt: skip
        at = end + len(BLOCK_SEPARATOR)
    return found


@settings(max_examples=60, deadline=None)
@given(
    blocks=st.lists(block, max_size=8).map(placed),
    unit=st.sampled_from(ChunkUnit),
    size=st.integers(3, 30),
    overlap=st.integers(0, 2),
    kind=st.sampled_from([DocumentKind.TEXT, DocumentKind.MARKDOWN, DocumentKind.CODE]),
)
def test_chunks_of_any_document_cover_it_in_order_and_fit(tokenizer_path, blocks, unit, size, overlap, kind):
    chunking = Chunking(unit=unit, size=size, overlap=overlap, min_size=min(3, size))
    chunks = chunk_document(
        blocks,
        kind=kind,
        title="A title",
        name="a.md",
        chunking=chunking,
        tokenizer_path=tokenizer_path,
        max_tokens=MAX_TOKENS,
        passage_prefix_tokens=PASSAGE_PREFIX_TOKENS,
    )
    document = BLOCK_SEPARATOR.join(one.text for one in blocks)
    counter = open_tokenizer(tokenizer_path)
    seen = 0
    assert [chunk.ordinal for chunk in chunks] == list(range(len(chunks)))
    for chunk in chunks:
        span = document[chunk.start : chunk.end]
        assert span.strip()
        assert chunk.text.endswith(span)
        assert chunk.word_count == count_words(chunk.text)
        assert chunk.token_count == counter.count(chunk.embedding_text) + PASSAGE_PREFIX_TOKENS <= MAX_TOKENS
        # Between the end of what was covered and the start of this chunk lies white space alone.
        assert not document[seen : chunk.start].strip()
        assert chunk.end > seen
        if unit is ChunkUnit.WORDS:
            assert count_words(span) <= size
            # A word that is torn counts on both sides of the cut.
            assert count_words(document[chunk.start : max(chunk.start, seen)]) <= overlap
        seen = chunk.end
        pages = [b.page for b in blocks if b.text.strip() and b.start < chunk.end and b.end > chunk.start]
        assert (chunk.first_page, chunk.last_page) == (min(pages), max(pages))
        assert {box.page for box in chunk.boxes} == set(pages)
    assert not document[seen:].strip()


@settings(max_examples=30, deadline=None)
@given(rows=st.lists(st.tuples(cell, cell), min_size=20, max_size=40))
def test_big_table_when_split_then_rows_stay_whole_where_they_fit(tokenizer_path, rows):
    rows = [("H1", "H2"), *((a[:8], b[:8]) for a, b in rows)]
    rows = [(a.strip() or "-", b.strip() or "-") for a, b in rows]
    chunks = chunk_document(
        placed([table(rows)]),
        kind=DocumentKind.TEXT,
        title="",
        name="t.txt",
        chunking=Chunking(size=40, overlap=5, min_size=1),
        tokenizer_path=tokenizer_path,
        max_tokens=64,
    )
    allowed = {" | ".join(row) for row in rows}
    for chunk in chunks:
        lines = chunk.text.split("\n")
        assert lines[0] == "H1 | H2"
        assert set(lines) <= allowed
    assert [line for chunk in chunks for line in chunk.text.split("\n")[1:]] == [" | ".join(row) for row in rows[1:]]
    assert re.search(r"\S", chunks[0].text)
