"""A checkpoint survives its way through JSON; one of another format counts for nothing."""

import json
from datetime import UTC, datetime

import pytest

from services.domain.blocks import DocumentKind, DocumentMetadata, ParseWarning
from services.ingestor.checkpoint import Checkpoint

FULL = Checkpoint(
    next_page=None,
    parts=3,
    kind=DocumentKind.PDF,
    page_count=12,
    text_chars=99,
    metadata=DocumentMetadata(
        title="t", tags=("a", "b"), created_time=datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC), labels={"k": 1.5}
    ),
    warnings=(ParseWarning(code="c", message="m", page=2), ParseWarning(code="d", message="n")),
    chunks="abc",
    written=64,
    average_length=81.25,
    bm25_length=5200,
)


@pytest.mark.parametrize("checkpoint", [Checkpoint(), FULL])
def test_checkpoint_when_it_goes_through_json_then_it_is_the_same(checkpoint: Checkpoint) -> None:
    assert Checkpoint.from_json(json.loads(json.dumps(checkpoint.to_json()))) == checkpoint


@pytest.mark.parametrize("stored", [None, {}, {"format": 0, "parts": 7}, [], "x"])
def test_checkpoint_when_it_is_absent_or_foreign_then_work_starts_afresh(stored: object) -> None:
    assert Checkpoint.from_json(stored) == Checkpoint()


def test_checkpoint_when_warned_without_end_then_it_keeps_a_hundred() -> None:
    checkpoint = Checkpoint()
    for page in range(500):
        checkpoint = checkpoint.warned((ParseWarning(code="c", message="m", page=page),))
    assert len(checkpoint.warnings) == 100
    assert checkpoint.warnings[0].page == 0
