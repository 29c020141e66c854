from datetime import datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from services.domain.ids import DocVersionId, IndexVersionId
from services.index.payload import label_key, label_term, time_text
from services.index.schema import CollectionSchema
from services.index.types import point_id


@given(st.text(max_size=12), st.text(max_size=12))
def test_label_key_when_keys_differ_then_so_do_the_payload_keys(one: str, two: str) -> None:
    assert (label_key(one) == label_key(two)) == (one == two)
    assert all(c.isascii() and (c.isalnum() or c in "_-") for c in label_key(one))


def test_label_term_when_numbers_are_equal_then_one_term_and_types_stay_apart() -> None:
    assert label_term("k", 1) == label_term("k", 1.0)
    assert label_term("k", -0.0) == label_term("k", 0)
    assert len({label_term("k", value) for value in (1, True, "1", 1.5, "b:1", 2**53, 2**53 + 1)}) == 7


def test_time_text_when_zones_differ_then_utc_with_microseconds() -> None:
    moment = datetime(2024, 1, 1, 1, 0, 0, 7, tzinfo=timezone(timedelta(hours=2)))
    assert time_text(moment) == "2023-12-31T23:00:00.000007Z"
    assert time_text(datetime(2024, 1, 1)) == "2024-01-01T00:00:00.000000Z"


def test_point_id_when_any_part_differs_then_another_id_and_always_the_same_one() -> None:
    ids = {point_id(IndexVersionId(i), DocVersionId(d), o) for i in (1, 11) for d in (1, 11) for o in (1, 11)}
    assert len(ids) == 8
    assert point_id(IndexVersionId(1), DocVersionId(2), 3) == "4ba4d4ad-9b78-5701-9b6c-b650b4a55641"


def test_collection_when_the_schema_differs_then_another_name_that_an_engine_accepts() -> None:
    schemas = [
        CollectionSchema(model="BAAI/bge-m3", dimensions=1024, tokenizer_version="1"),
        CollectionSchema(model="baai/BGE-m3", dimensions=1024, tokenizer_version="1"),
        CollectionSchema(model="BAAI/bge-m3", dimensions=1024, tokenizer_version="2"),
        CollectionSchema(model="模型", dimensions=8, tokenizer_version="1"),
        CollectionSchema(model="x" * 500, dimensions=8, tokenizer_version="1"),
    ]
    names = {schema.collection for schema in schemas}
    assert len(names) == 5
    assert all(len(name) < 150 and not set(name) & set("/. ") for name in names)
    assert schemas[0].collection.startswith("baai-bge-m3-1024-")
