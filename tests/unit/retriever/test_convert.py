"""Requests of the wire: what is refused, with all of it at once, and what the rest becomes."""

from datetime import UTC, datetime
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from pergamon.client import filters as f
from pergamon.retriever.v1 import retriever_pb2 as pb
from pergamon.type.v1 import filter_pb2

from services.common.auth import Principal, Role
from services.common.errors import InvalidRequest, NotFound, Reason
from services.domain.filters import And, Equals, Exists, In, Not, Or, Range, TextMatch
from services.domain.ids import TenantId, new_id
from services.domain.scores import SearchMode
from services.retriever.convert import retrieve_in, search_in
from services.retriever.types import Combination, ContextFormat

KB = new_id("kb")
MINE = Equals(field="author", value="me")
CALLER = Principal(key_id="k", tenant_id=TenantId("acme"), role=Role.READER, filters=(MINE,))


def request(**changes: Any) -> pb.SearchRequest:
    return pb.SearchRequest(**{"query": "who pays?", "knowledge_base_ids": [KB], **changes})


def deep(levels: int) -> filter_pb2.Filter:
    condition = f.exists("title")
    for _ in range(levels - 1):
        condition = f.negate(condition)
    return condition


def in_filter(values: list[filter_pb2.FilterValue]) -> filter_pb2.Filter:
    condition = filter_pb2.Filter()
    getattr(condition, "in").CopyFrom(filter_pb2.InFilter(field="title", values=values))
    return condition


def empty(kind: str) -> filter_pb2.Filter:
    condition = filter_pb2.Filter()
    getattr(condition, kind).SetInParent()
    return condition


EMPTY_AND = empty("and")
BAD_TIME = filter_pb2.Filter(
    equals=filter_pb2.EqualsFilter(
        field="created_time", value=filter_pb2.FilterValue(time_value=Timestamp(seconds=10**15))
    )
)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"query": ""}, "query"),
        ({"query": " \n\t "}, "query"),
        ({"query": "x" * 8_193}, "query"),
        ({"knowledge_base_ids": []}, "knowledge_base_ids"),
        ({"knowledge_base_ids": [KB, KB]}, "knowledge_base_ids"),
        ({"knowledge_base_ids": [new_id("kb") for _ in range(33)]}, "knowledge_base_ids"),
        ({"mode": 99}, "mode"),
        ({"combination": 99}, "combination"),
        ({"rerank": 99}, "rerank"),
        ({"rerank_model": "m" * 101}, "rerank_model"),
        ({"top_k": 0}, "top_k"),
        ({"top_k": 101}, "top_k"),
        ({"candidates": 0}, "candidates"),
        ({"candidates": 201}, "candidates"),
        ({"top_k": 20, "candidates": 19}, "candidates"),
        ({"similarity_threshold": -0.1}, "similarity_threshold"),
        ({"similarity_threshold": 1.1}, "similarity_threshold"),
        ({"similarity_threshold": float("nan")}, "similarity_threshold"),
        ({"dense_weight": 0.0}, "dense_weight"),
        ({"dense_weight": -1.0}, "dense_weight"),
        ({"bm25_weight": float("nan")}, "bm25_weight"),
        ({"bm25_weight": float("inf")}, "bm25_weight"),
        ({"bm25_weight": 1_001.0}, "bm25_weight"),
    ],
)
def test_search_in_when_a_field_is_wrong_then_its_violation_names_it(changes: dict[str, Any], field: str):
    with pytest.raises(InvalidRequest) as caught:
        search_in(request(**changes), CALLER)
    assert [violation.field for violation in caught.value.violations] == [field]
    assert caught.value.error_reason is Reason.INVALID_REQUEST


@pytest.mark.parametrize(
    ("condition", "field"),
    [
        (filter_pb2.Filter(), "filter"),
        (EMPTY_AND, "filter.and"),
        (empty("or"), "filter.or"),
        (empty("not"), "filter.not"),
        (f.all_of(f.exists("title"), filter_pb2.Filter()), "filter.and.filters[1]"),
        (f.equals("colour", "red"), "filter.equals.field"),
        (f.equals("labels.", "red"), "filter.equals.field"),
        (f.equals("", "red"), "filter.equals.field"),
        (filter_pb2.Filter(equals=filter_pb2.EqualsFilter(field="title")), "filter.equals.value"),
        (f.equals("page_count", float("nan")), "filter.equals.value"),
        (BAD_TIME, "filter.equals.value"),
        (in_filter([filter_pb2.FilterValue(string_value="x")] * 1_001), "filter.in.values"),
        (in_filter([filter_pb2.FilterValue()]), "filter.in.values[0]"),
        (filter_pb2.Filter(range=filter_pb2.RangeFilter(field="page_count")), "filter.range"),
        (f.between("title", gte=1), "filter.range"),
        (f.between("authoritative", gte=1), "filter.range"),
        (f.between("created_time", gte=3), "filter.range.gte"),
        (f.equals("authoritative", "true"), "filter.equals.value"),
        (f.equals("page_count", "3"), "filter.equals.value"),
        (f.equals("page_count", True), "filter.equals.value"),
        (f.equals("created_time", "2026-01-01"), "filter.equals.value"),
        (f.equals("title", 3), "filter.equals.value"),
        (f.equals("labels.when", datetime(2026, 1, 1, tzinfo=UTC)), "filter.equals.value"),
        (
            in_filter([filter_pb2.FilterValue(string_value="x"), filter_pb2.FilterValue(int_value=1)]),
            "filter.in.values[1]",
        ),
        (f.between("page_count", lt=datetime(2026, 1, 1, tzinfo=UTC)), "filter.range.lt"),
        (f.text("title", " .. "), "filter.text.text"),
        (f.text("title", "x" * 1_025), "filter.text.text"),
        (f.text("page_count", "four"), "filter.text.field"),
        (deep(9), "filter.not.not.not.not.not.not.not.not"),
        (f.any_of(*[f.exists("title")] * 129), "filter"),
    ],
)
def test_search_in_when_the_filter_is_malformed_then_invalid_filter_names_the_place(condition, field: str):
    with pytest.raises(InvalidRequest) as caught:
        search_in(request(filter=condition), CALLER)
    assert [violation.field for violation in caught.value.violations] == [field]
    assert caught.value.error_reason is Reason.INVALID_FILTER


def test_search_in_when_many_things_are_wrong_then_all_are_told_at_once():
    bad = request(query=" ", top_k=0, dense_weight=-1.0, filter=f.all_of(f.equals("x", 1), f.equals("y", 2)))
    with pytest.raises(InvalidRequest) as caught:
        search_in(bad, CALLER)
    assert [violation.field for violation in caught.value.violations] == [
        "query",
        "top_k",
        "dense_weight",
        "filter.and.filters[0].equals.field",
        "filter.and.filters[1].equals.field",
    ]
    assert caught.value.error_reason is Reason.INVALID_REQUEST


@pytest.mark.parametrize(
    "kb_id",
    ["", "kb_1", new_id("doc"), KB.upper(), "x" * 5_000],
    ids=["empty", "short", "document", "capitals", "long"],
)
def test_search_in_when_an_id_is_none_that_exists_then_not_found_like_an_unknown_one(kb_id: str):
    with pytest.raises(NotFound) as caught:
        search_in(request(knowledge_base_ids=[kb_id]), CALLER)
    assert caught.value.error_reason is Reason.KNOWLEDGE_BASE_NOT_FOUND


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (f.equals("title", "a"), Equals(field="title", value="a")),
        (f.equals("labels.open", True), Equals(field="labels.open", value=True)),
        (f.is_in("page_count", [1, 2]), In(field="page_count", values=(1, 2))),
        (f.is_in("title", []), In(field="title", values=())),
        (f.between("page_count", gte=2, lt=9), Range(field="page_count", gte=2, lt=9)),
        (
            f.between("updated_time", gt=datetime(2026, 1, 1, tzinfo=UTC)),
            Range(field="updated_time", gt=datetime(2026, 1, 1, tzinfo=UTC)),
        ),
        (f.exists("labels.team"), Exists(field="labels.team")),
        (f.text("title", "travel costs"), TextMatch(field="title", text="travel costs")),
        (f.all_of(f.exists("title")), And(filters=(Exists(field="title"),))),
        (f.any_of(f.exists("title")), Or(filters=(Exists(field="title"),))),
        (f.negate(f.exists("title")), Not(filter=Exists(field="title"))),
    ],
)
def test_search_in_when_the_filter_is_fine_then_it_narrows_the_credentials_own(condition, expected):
    assert search_in(request(filter=condition), CALLER).filters == (MINE, expected)


def test_search_in_when_the_filter_is_at_its_limits_then_accepted():
    search_in(request(filter=deep(8)), CALLER)
    search_in(request(filter=f.any_of(*[f.exists("title")] * 128)), CALLER)


def test_search_in_when_a_filter_has_very_many_conditions_then_none_of_them_is_read():
    unknown_fields = f.any_of(*[f.any_of(*[f.exists("nope")] * 120)] * 120)
    with pytest.raises(InvalidRequest) as caught:
        search_in(request(filter=unknown_fields), CALLER)
    assert [violation.field for violation in caught.value.violations] == ["filter"]


def test_search_in_when_nothing_else_is_said_then_the_credentials_filter_stands_alone():
    call = search_in(request(), CALLER)
    assert call.filters == (MINE,)
    assert (call.mode, call.top_k, call.candidates, call.rerank, call.threshold) == (None,) * 5
    assert (call.tenant_id, call.combination) == ("acme", Combination.ROUTED)


def test_search_in_when_all_is_said_then_all_arrives():
    call = search_in(
        request(
            mode=pb.SEARCH_MODE_KEYWORD,
            top_k=100,
            candidates=200,
            combination=pb.COMBINATION_MERGED,
            rerank=pb.RERANK_CHOICE_OFF,
            similarity_threshold=0.0,
            dense_weight=0.5,
            include_dropped=True,
        ),
        CALLER,
    )
    assert (call.mode, call.top_k, call.candidates) == (SearchMode.KEYWORD, 100, 200)
    assert (call.combination, call.rerank, call.threshold) == (Combination.MERGED, False, 0.0)
    assert (call.dense_weight, call.bm25_weight, call.include_dropped) == (0.5, None, True)


def test_retrieve_in_when_search_and_context_are_wrong_then_all_is_told():
    bad = pb.RetrieveRequest(search=request(query=""), format=99, budget_tokens=100_001, max_blocks=51)
    with pytest.raises(InvalidRequest) as caught:
        retrieve_in(bad, CALLER)
    assert [v.field for v in caught.value.violations] == ["search.query", "format", "budget_tokens", "max_blocks"]


def test_retrieve_in_when_nothing_is_said_then_the_defaults_hold():
    call, context = retrieve_in(pb.RetrieveRequest(search=request()), CALLER)
    assert call.for_context
    assert (context.format, context.budget_tokens, context.max_blocks) == (ContextFormat.BLOCKS, 4_000, 12)
