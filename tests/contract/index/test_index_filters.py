"""Every filter operator, alone and negated, over odd values."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone

import pytest

from services.common.errors import InvalidRequest, Reason
from services.domain.blocks import DocumentMetadata
from services.domain.filters import And, Equals, Exists, Filter, In, Not, Or, Range, TextMatch
from services.index.types import IndexedDocument
from tests.contract.index.builders import World

NOON = datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=UTC)
ODD_KEY = 'a.b["c"] _x 键'

#: Documents by name: the name is what the expectations below speak of.
DOCUMENTS: Mapping[str, tuple[DocumentMetadata, int | None]] = {
    "full.pdf": (
        DocumentMetadata(
            title="Die große STRASSE",
            author="Ada Lovelace",
            language="de",
            document_type="report",
            source_url="https://example.org/a?b=c&d=%20",
            tags=("red", "Blue sky"),
            authoritative=True,
            created_time=NOON,
            updated_time=NOON + timedelta(days=1),
            labels={"n": 1, "s": "1", "b": True, ODD_KEY: "x y", "empty": "", "big": 2**53 + 1},
        ),
        12,
    ),
    "half_report.pdf": (
        DocumentMetadata(
            title="中文检索系统 2024年",
            tags=("blue",),
            created_time=NOON - timedelta(microseconds=1),
            labels={"n": 1.0, "s": "One two", "b": False, "f": -0.5, "big": 2**53},
        ),
        0,
    ),
    "bare.txt": (DocumentMetadata(labels={"n": 2, "b": 1}), None),
}
FULL, HALF, BARE = DOCUMENTS

CASES: list[tuple[Filter, set[str]]] = [
    (Equals(field="name", value="full.pdf"), {FULL}),
    (Equals(field="name", value="Full.pdf"), set()),
    (Equals(field="title", value=""), set()),
    (Equals(field="title", value="'; drop \u0000 \"\\"), set()),
    (Equals(field="source_url", value="https://example.org/a?b=c&d=%20"), {FULL}),
    (Equals(field="tags", value="red"), {FULL}),
    (Equals(field="tags", value="blue"), {HALF}),
    (Equals(field="authoritative", value=True), {FULL}),
    (Equals(field="authoritative", value=False), {HALF, BARE}),
    (Equals(field="authoritative", value=1), set()),
    (Equals(field="authoritative", value="true"), set()),
    (Equals(field="page_count", value=12), {FULL}),
    (Equals(field="page_count", value=12.0), {FULL}),
    (Equals(field="page_count", value=12.5), set()),
    (Equals(field="page_count", value=0), {HALF}),
    (Equals(field="page_count", value=False), set()),
    (Equals(field="page_count", value=2**70), set()),
    (Equals(field="page_count", value=float("nan")), set()),
    (Equals(field="page_count", value="12"), set()),
    (Equals(field="created_time", value=NOON), {FULL}),
    (Equals(field="created_time", value=NOON.astimezone(timezone(timedelta(hours=5)))), {FULL}),
    (Equals(field="created_time", value=NOON.replace(tzinfo=None)), {FULL}),
    (Equals(field="created_time", value=NOON.isoformat()), set()),
    (Equals(field="labels.n", value=1), {FULL, HALF}),
    (Equals(field="labels.n", value=1.0), {FULL, HALF}),
    (Equals(field="labels.n", value="1"), set()),
    (Equals(field="labels.n", value=True), set()),
    (Equals(field="labels.s", value="1"), {FULL}),
    (Equals(field="labels.s", value=1), set()),
    (Equals(field="labels.b", value=True), {FULL}),
    (Equals(field="labels.b", value=1), {BARE}),
    (Equals(field="labels.f", value=-0.5), {HALF}),
    (Equals(field="labels.f", value=float("inf")), set()),
    (Equals(field="labels.big", value=2**53 + 1), {FULL}),
    (Equals(field="labels.big", value=2.0**53), {HALF}),
    (Equals(field="labels.n", value=NOON), set()),
    (Equals(field=f"labels.{ODD_KEY}", value="x y"), {FULL}),
    (Equals(field="labels.none", value=""), set()),
    (Equals(field="labels.empty", value=""), {FULL}),
    (In(field="name", values=()), set()),
    (In(field="name", values=("bare.txt", "full.pdf", "absent")), {FULL, BARE}),
    (In(field="name", values=(1, True)), set()),
    (In(field="page_count", values=(0, 12, "x", 3.5)), {FULL, HALF}),
    (In(field="authoritative", values=(True, False)), {FULL, HALF, BARE}),
    (In(field="created_time", values=(NOON, NOON - timedelta(microseconds=1))), {FULL, HALF}),
    (In(field="created_time", values=("2024",)), set()),
    (In(field="labels.s", values=("1", 2)), {FULL}),
    (In(field="labels.s", values=()), set()),
    (Range(field="page_count", gte=0, lt=12), {HALF}),
    (Range(field="page_count", gt=0.5), {FULL}),
    (Range(field="page_count"), {FULL, HALF}),
    (Range(field="page_count", lte=float("inf")), {FULL, HALF}),
    (Range(field="page_count", lte=float("nan")), set()),
    (Range(field="page_count", gt=12, lt=0), set()),
    (Range(field="created_time", gte=NOON), {FULL}),
    (Range(field="created_time", lt=NOON), {HALF}),
    (Range(field="updated_time", gt=NOON, lte=NOON + timedelta(days=1)), {FULL}),
    (Range(field="labels.n", gt=1), {BARE}),
    (Range(field="labels.n", lte=1), {FULL, HALF}),
    (Range(field="labels.s", gte=0), set()),
    (Range(field="labels.b", gte=0), {BARE}),
    (Range(field="labels.f", lt=0), {HALF}),
    (Range(field="labels.n"), {FULL, HALF, BARE}),
    (Exists(field="title"), {FULL, HALF}),
    (Exists(field="tags"), {FULL, HALF}),
    (Exists(field="page_count"), {FULL, HALF}),
    (Exists(field="updated_time"), {FULL}),
    (Exists(field="document_id"), {FULL, HALF, BARE}),
    (Exists(field="labels.s"), {FULL, HALF}),
    (Exists(field="labels.empty"), set()),
    (Exists(field=f"labels.{ODD_KEY}"), {FULL}),
    (Exists(field="labels.none"), set()),
    (TextMatch(field="title", text="straße DIE"), {FULL}),
    (TextMatch(field="title", text="große haus"), set()),
    (TextMatch(field="title", text="检索"), {HALF}),
    (TextMatch(field="title", text="索检"), set()),
    (TextMatch(field="title", text="年 2024 系"), {HALF}),
    (TextMatch(field="name", text="REPORT half"), {HALF}),
    (TextMatch(field="name", text="repor"), set()),
    (TextMatch(field="tags", text="sky blue"), {FULL}),
    (TextMatch(field="labels.s", text="TWO"), {HALF}),
    (TextMatch(field=f"labels.{ODD_KEY}", text="y, x!"), {FULL}),
    (TextMatch(field="labels.n", text="1"), set()),
    (And(filters=()), {FULL, HALF, BARE}),
    (And(filters=(Exists(field="title"), Equals(field="labels.b", value=False))), {HALF}),
    (Or(filters=()), set()),
    (Or(filters=(Equals(field="name", value="bare.txt"), Equals(field="authoritative", value=True))), {FULL, BARE}),
    (Not(filter=Not(filter=Exists(field="author"))), {FULL}),
    (And(filters=(Or(filters=(Exists(field="tags"),)), Not(filter=Equals(field="tags", value="red")))), {HALF}),
]


@pytest.fixture
async def shelf(world: World) -> tuple[World, list[IndexedDocument]]:
    """The documents above in a knowledge base, beside a neighbour that holds the same."""
    documents = []
    for place in (world, world.neighbour()):
        for name, (metadata, page_count) in DOCUMENTS.items():
            document = await place.write(place.document(name, metadata, page_count=page_count), f"text of {name}")
            documents.append(document)
    return world, documents[: len(DOCUMENTS)]


async def test_filter_when_asked_then_exactly_the_matching_documents_and_negated_the_others(
    shelf: tuple[World, list[IndexedDocument]],
) -> None:
    world, documents = shelf
    wrong = []
    for condition, expected in CASES:
        found = await world.names_matching(condition, documents)
        others = await world.names_matching(Not(filter=condition), documents)
        if (found, others) != (expected, set(DOCUMENTS) - expected):
            wrong.append((condition, found, others))
    assert wrong == []


@pytest.mark.parametrize(
    "condition",
    [
        Equals(field="colour", value="red"),
        Equals(field="", value="red"),
        Equals(field="labels.", value="red"),
        Range(field="name", gte=1),
        Range(field="authoritative", gte=0),
        Range(field="created_time", gte=5),
        Range(field="page_count", gte=NOON),
        Range(field="labels.n", gte=NOON),
        Range(field="page_count", gte=True),
        TextMatch(field="title", text="  ... "),
        TextMatch(field="page_count", text="12"),
        TextMatch(field="document_id", text="doc"),
        Not(filter=Exists(field="kb_id")),
    ],
)
async def test_filter_when_the_field_cannot_do_it_then_invalid_filter(world: World, condition: Filter) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await world.names_matching(And(filters=(condition,)), [])
    assert caught.value.error_reason is Reason.INVALID_FILTER


async def test_filter_on_document_id_when_asked_then_only_that_document(world: World) -> None:
    one = await world.write(world.document("one"), "alpha")
    await world.write(world.document("two"), "alpha")
    assert [
        hit.document_id
        for hit in await world.keyword("alpha", filters=(Equals(field="document_id", value=one.document_id),))
    ] == [one.document_id]
