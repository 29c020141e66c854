"""Filters are built from plain Python values."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from pergamon.client import document_metadata, filters
from pergamon.type.v1 import filter_pb2 as pb


@pytest.mark.parametrize(
    ("value", "kind"),
    [("a", "string_value"), (7, "int_value"), (0.5, "double_value"), (True, "bool_value"), (False, "bool_value")],
)
def test_equals_of_a_plain_value_sets_its_own_kind(value, kind):
    condition = filters.equals("labels.x", value)
    assert condition.equals.field == "labels.x"
    assert condition.equals.value.WhichOneof("kind") == kind
    assert getattr(condition.equals.value, kind) == value


def test_between_of_datetimes_in_another_zone_keeps_the_moment():
    moment = datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    bounds = filters.between("updated_time", gte=moment).range
    assert bounds.gte.time_value.ToDatetime(tzinfo=UTC) == moment
    assert not bounds.HasField("lt")


def test_between_of_zero_keeps_the_bound():
    assert filters.between("page_count", gt=0, lte=9.5).range == pb.RangeFilter(
        field="page_count", gt=pb.FilterValue(int_value=0), lte=pb.FilterValue(double_value=9.5)
    )


def test_is_in_of_values_keeps_their_order():
    values = getattr(filters.is_in("tags", ["b", "a"]), "in").values
    assert [value.string_value for value in values] == ["b", "a"]


def test_combined_filters_nest_as_written():
    condition = filters.any_of(
        filters.all_of(filters.exists("title"), filters.text("name", "travel")),
        filters.negate(filters.exists("author")),
    )
    inner, negated = getattr(condition, "or").filters
    assert [part.WhichOneof("kind") for part in getattr(inner, "and").filters] == ["exists", "text"]
    assert getattr(negated, "not").exists.field == "author"


@pytest.mark.parametrize(
    ("build", "error"),
    [
        (lambda: filters.equals("created_time", datetime(2026, 1, 1)), ValueError),
        (lambda: filters.equals("name", None), TypeError),
        (lambda: filters.is_in("tags", "abc"), TypeError),
        (lambda: filters.between("page_count"), ValueError),
        (filters.all_of, ValueError),
        (lambda: filters.equals("labels.n", 2**63), ValueError),
    ],
    ids=["naive time", "none", "string for list", "no bound", "empty list", "beyond int64"],
)
def test_filter_of_a_wrong_value_is_refused(build, error):
    with pytest.raises(error):
        build()


def test_document_metadata_of_labels_keeps_their_kinds():
    labels = document_metadata(labels={"draft": True, "year": 2026, "score": 0.5, "team": "people"}).labels
    assert {key: value.WhichOneof("kind") for key, value in labels.items()} == {
        "draft": "bool_value",
        "year": "int_value",
        "score": "double_value",
        "team": "string_value",
    }


def test_document_metadata_of_a_naive_time_is_refused():
    with pytest.raises(ValueError, match="time zone"):
        document_metadata(created_time=datetime(2026, 1, 1))
