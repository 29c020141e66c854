"""What a reader expects of the cuts: sections, sentences, fences, functions, tables, prefixes, overlap."""

import time

import pytest

from services.domain.blocks import Block, BlockKind, DocumentKind
from services.domain.chunks import Chunking, ChunkUnit
from services.ingestor.chunking import chunk_document, effective_size, validate


def heading(text, level=1):
    return Block(kind=BlockKind.HEADING, text=text, level=level)


def paragraph(text):
    return Block(kind=BlockKind.PARAGRAPH, text=text)


def table(rows, header_rows=1):
    return Block(kind=BlockKind.TABLE, text="\n".join(map(" | ".join, rows)), rows=tuple(rows), header_rows=header_rows)


@pytest.fixture
def cut(tokenizer_path):
    def run(*blocks, kind=DocumentKind.TEXT, title="", name="guide.md", max_tokens=2000, **sizes):
        return chunk_document(
            blocks,
            kind=kind,
            title=title,
            name=name,
            chunking=Chunking(**({"size": 20, "overlap": 0, "min_size": 3} | sizes)),
            tokenizer_path=tokenizer_path,
            max_tokens=max_tokens,
        )

    return run


def test_sections_when_headings_nest_then_path_is_in_the_prefix_and_headings_stay_with_text(cut):
    chunks = cut(
        heading("Manual"), heading("Setup", 2), paragraph("Plug it in."), heading("Use", 2), paragraph("Press start."),
        heading("Legal"), paragraph("No warranty."),
    )  # fmt: skip
    assert [(c.prefix, c.text) for c in chunks] == [
        ("guide > Manual > Setup: ", "Manual\n\nSetup\n\nPlug it in."),
        ("guide > Manual > Use: ", "Use\n\nPress start."),
        ("guide > Legal: ", "Legal\n\nNo warranty."),
    ]


def test_prefix_when_the_title_is_known_then_it_replaces_the_name_and_is_not_repeated(cut):
    (chunk,) = cut(heading("The Guide"), paragraph("Text."), title="The guide", name="x/y.pdf")
    assert chunk.prefix == "The guide: "
    assert chunk.section == ("The Guide",)
    assert cut(paragraph("Text."), name="a/b/report.v2.pdf")[0].prefix == "report.v2: "


def test_prefix_when_titles_are_absurdly_long_then_it_leaves_room_for_text(cut):
    (chunk,) = cut(*(heading("word " * 300, n) for n in range(1, 6)), paragraph("Text."), max_tokens=3000, size=5000)
    assert len(chunk.prefix) < 1000
    short = cut(heading("word " * 30), paragraph("Some text of the section."), max_tokens=40, size=50)
    assert all(c.token_count <= 40 for c in short)
    assert short[-1].text.endswith("section.")


def test_prose_when_paragraphs_are_short_then_they_share_chunks_up_to_the_size(cut):
    chunks = cut(*(paragraph(f"Five words are in {n}.") for n in range(10)))
    assert [c.word_count for c in chunks] == [20, 20, 10]


def test_prose_when_the_rest_is_a_scrap_then_the_cut_moves(cut):
    chunks = cut(*(paragraph(f"Five words are in {n}.") for n in range(9)), min_size=8)
    assert [c.word_count for c in chunks] == [20, 15, 10]


def test_sentences_when_split_then_neither_abbreviations_nor_decimals_end_one(cut):
    text = "We use tools, e.g. Hammers and saws. It costs 3.50 dollars each. Dr. Smith agrees with us. All is well now."
    chunks = cut(paragraph(text), size=8)
    assert [c.text for c in chunks] == [
        "We use tools, e.g. Hammers and saws.", "It costs 3.50 dollars each.", "Dr. Smith agrees with us.",
        "All is well now.",
    ]  # fmt: skip


def test_sentences_when_chinese_then_full_stops_end_them_and_characters_are_words(cut):
    chunks = cut(paragraph("今天天气很好。我们去公园玩！你去不去？好的。"), size=8)
    assert [c.text for c in chunks] == ["今天天气很好。", "我们去公园玩！", "你去不去？好的。"]
    assert [c.word_count for c in chunks] == [6, 6, 6]


def test_overlap_when_a_section_is_split_then_it_starts_at_a_sentence_and_stays_in_the_section(cut):
    text = "One two three four five. Six seven eight. Nine ten eleven twelve."
    chunks = cut(heading("A"), paragraph(text), heading("B"), paragraph("Other words."), size=9, overlap=4, min_size=0)
    assert [c.text for c in chunks] == [
        "A\n\nOne two three four five. Six seven eight.", "Six seven eight. Nine ten eleven twelve.",
        "B\n\nOther words.",
    ]  # fmt: skip


def test_tokens_when_they_are_the_unit_then_they_bound_the_chunk(cut):
    chunks = cut(paragraph("the word " * 100), unit=ChunkUnit.TOKENS, size=30, name="the.txt")
    prefix_and_special = 2 + 2
    assert all(c.token_count <= 30 + prefix_and_special for c in chunks)
    assert len(chunks) == 7


def test_fences_when_left_in_markdown_prose_then_they_are_not_torn(cut):
    fence = "```python\n# not a heading\n\nx = 1\n\ny = 2\n```"
    text = f"{'Some words here. ' * 5}\n\n{fence}\n\n{'More words here. ' * 5}"
    chunks = cut(paragraph(text), kind=DocumentKind.MARKDOWN)
    assert any(fence in c.text for c in chunks)


def test_code_block_when_it_fits_then_it_is_not_torn(cut):
    code = Block(kind=BlockKind.CODE, text="a = 1\n\nb = 2\n\nc = 3", code_language="python")
    chunks = cut(paragraph("word " * 17), code, paragraph("tail"))
    assert any(code.text in c.text for c in chunks)


PYTHON = '''import os


# Adds numbers.
@cached
@traced
def add(first, second):
    """Add two numbers and return it."""

    return first + second


class Thing:
    """A thing that has methods."""

    def one(self):
        return "one one one one one"

    # Says two.
    @property
    def two(self):
        return "two two two two two"
'''


def test_python_when_cut_then_functions_keep_decorators_comments_and_indentation(cut):
    chunks = cut(Block(kind=BlockKind.CODE, text=PYTHON), kind=DocumentKind.CODE, name="a.py", size=22, min_size=8)
    assert [c.text.split("\n")[0] for c in chunks] == ["import os", "class Thing:", "    # Says two."]
    chunks = cut(Block(kind=BlockKind.CODE, text=PYTHON), kind=DocumentKind.CODE, name="a.py", size=22, min_size=1)
    assert [c.text.split("\n")[0] for c in chunks] == [
        "import os", "# Adds numbers.", "class Thing:", "    def one(self):", "    # Says two.",
    ]  # fmt: skip


def test_other_languages_when_cut_then_units_begin_after_blank_lines_and_brackets(cut):
    go = "package main\n\n// Adds.\nfunc add(a int) {\n\n\treturn a\n}\nfunc sub(b int) {\n\treturn b\n}\n"
    chunks = cut(Block(kind=BlockKind.CODE, text=go), kind=DocumentKind.CODE, name="a.go", size=12, min_size=3)
    assert [c.text.split("\n")[0] for c in chunks] == ["package main", "func sub(b int) {"]


def test_table_when_it_fits_then_it_stays_with_its_caption(cut):
    (chunk,) = cut(paragraph("Prices."), table([("Item", "Price"), ("Nail", "1")]))
    assert chunk.text == "Prices.\n\nItem | Price\nNail | 1"


def test_table_when_split_then_the_header_is_repeated_and_the_place_is_that_of_the_rows(cut):
    rows = [("Item", "Price"), *((f"nail{n}", f"{n} cents") for n in range(20))]
    given = table(rows)
    chunks = cut(paragraph("Prices."), given, overlap=5)
    assert chunks[0].text.startswith("Prices.\n\nItem | Price\nnail0 | 0 cents")
    assert all(c.text.startswith("Item | Price\nnail") for c in chunks[1:])
    document = f"Prices.\n\n{given.text}"
    assert chunks[1].text == "Item | Price\n" + document[chunks[1].start : chunks[1].end]
    assert all(c.word_count <= 20 for c in chunks)


def test_table_when_a_row_is_too_big_then_it_is_cut_at_its_cells(cut):
    row = tuple("word " * 8 + str(n) for n in range(6))
    chunks = cut(table([("a", "b", "c", "d", "e", "f"), row]))
    assert chunks[0].text.startswith("a | b | c | d | e | f\nword")
    assert all(c.text.startswith("word") for c in chunks[1:])
    assert "".join("".join(c.text.split()) for c in chunks) == "a|b|c|d|e|f" + "|".join(row).replace(" ", "")


def test_hash_when_only_white_space_differs_then_it_is_the_same(cut):
    one, other = (cut(paragraph(text))[0] for text in ("same  text", "same\ntext"))
    assert one.content_hash == other.content_hash != cut(paragraph("other text"))[0].content_hash


def test_limit_when_it_leaves_no_room_then_refused(cut):
    with pytest.raises(ValueError, match="max_tokens 10"):
        cut(paragraph("x"), max_tokens=10)


def test_empty_documents_have_no_chunks(cut):
    assert cut() == cut(paragraph(" \n ")) == ()


@pytest.mark.parametrize("text", ["x" * 600_000, "字" * 200_000, "-" * 200_000, "no stop here " * 40_000])
def test_text_without_breaks_when_long_then_time_stays_linear(cut, text):
    started = time.process_time()
    chunks = cut(paragraph(text), size=400, overlap=40, max_tokens=512)
    assert time.process_time() - started < 10
    assert sum(len(c.text.replace(" ", "")) for c in chunks) >= len(text.replace(" ", ""))


def test_validate_names_every_violation():
    assert validate(Chunking()) == []
    assert [v.field for v in validate(Chunking(size=0, overlap=0, min_size=0))] == ["chunking.size"]
    assert [v.field for v in validate(Chunking(size=50, overlap=50, min_size=60))] == [
        "chunking.overlap", "chunking.min_size",
    ]  # fmt: skip


def test_effective_size_when_the_model_is_short_then_it_is_below_the_size():
    assert 300 <= effective_size(Chunking(), 512) <= 352
    assert effective_size(Chunking(), 8192) == 400
    assert effective_size(Chunking(unit=ChunkUnit.TOKENS, size=512, overlap=64), 512) == 488
