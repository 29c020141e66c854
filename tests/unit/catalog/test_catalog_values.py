"""Values that need no database: metadata as stored, page tokens, blob keys."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.catalog.blobs import check_key
from services.catalog.paging import decode_token, encode_token, page_size_of
from services.catalog.rows import decode_metadata, encode_metadata, merge_metadata, to_time, to_us
from services.common.errors import InvalidRequest
from services.domain.blocks import DocumentMetadata

TIMES = st.none() | st.datetimes(timezones=st.just(UTC))
METADATA = st.builds(
    DocumentMetadata,
    title=st.text(),
    tags=st.lists(st.text(), max_size=3).map(tuple),
    authoritative=st.booleans(),
    created_time=TIMES,
    labels=st.dictionaries(st.text(), st.integers() | st.booleans() | st.text(), max_size=3),
)


@given(METADATA)
def test_metadata_when_stored_and_read_then_the_same(metadata: DocumentMetadata) -> None:
    assert decode_metadata(encode_metadata(metadata)) == metadata


@given(METADATA)
def test_merge_when_one_side_says_nothing_then_the_other_side(metadata: DocumentMetadata) -> None:
    assert merge_metadata(metadata, DocumentMetadata()) == metadata == merge_metadata(DocumentMetadata(), metadata)


def test_merge_when_both_speak_then_the_caller_wins() -> None:
    its = DocumentMetadata(title="its", author="Ann", tags=("a",), labels={"x": 1, "y": 2})
    mine = DocumentMetadata(title="mine", tags=("b",), labels={"x": 9})
    expected = DocumentMetadata(title="mine", author="Ann", tags=("b",), labels={"x": 9, "y": 2})
    assert merge_metadata(its, mine) == expected


@given(st.datetimes(timezones=st.just(UTC)))
def test_times_when_stored_and_read_then_the_same_microsecond(time: datetime) -> None:
    assert to_time(to_us(time)) == time


@given(st.text())
def test_page_token_when_it_is_anything_then_decoded_or_refused(token: str) -> None:
    try:
        decode_token(token, "list")
    except InvalidRequest:
        return
    assert token == "" or encode_token("list", decode_token(token, "list")) == token.rstrip("=")


def test_page_size_when_out_of_range_then_default_maximum_or_refused() -> None:
    assert (page_size_of(0), page_size_of(7), page_size_of(10_000)) == (50, 7, 1_000)
    with pytest.raises(InvalidRequest):
        page_size_of(-1)


@given(st.text())
def test_key_when_accepted_then_it_stays_below_its_root(key: str) -> None:
    try:
        check_key(key)
    except ValueError:
        return
    assert not key.startswith("/")
    assert not {"", ".", ".."} & set(key.split("/"))
