"""Builds what is said of a document from plain Python values."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from pergamon.client.filters import timestamp
from pergamon.ingestor.v1 import document_pb2 as pb


def document_metadata(
    *,
    title: str = "",
    author: str = "",
    language: str = "",
    document_type: str = "",
    source_url: str = "",
    tags: Sequence[str] = (),
    authoritative: bool = False,
    created_time: datetime | None = None,
    updated_time: datetime | None = None,
    labels: Mapping[str, str | int | float | bool] | None = None,
) -> pb.DocumentMetadata:
    """Metadata for an upload or an update; what is left out is taken from the file. Times need a time zone.

    >>> document_metadata(title="Travel policy", labels={"year": 2026}).labels["year"].int_value
    2026
    """
    if isinstance(tags, str):
        raise TypeError("tags is one string; pass a list of strings")
    return pb.DocumentMetadata(
        title=title,
        author=author,
        language=language,
        document_type=document_type,
        source_url=source_url,
        tags=tags,
        authoritative=authoritative,
        created_time=timestamp(created_time) if created_time else None,
        updated_time=timestamp(updated_time) if updated_time else None,
        labels={key: _label(value) for key, value in (labels or {}).items()},
    )


def _label(value: str | int | float | bool) -> pb.LabelValue:
    match value:
        case bool():  # before int: True is an int
            return pb.LabelValue(bool_value=value)
        case int():
            return pb.LabelValue(int_value=value)
        case float():
            return pb.LabelValue(double_value=value)
        case str():
            return pb.LabelValue(string_value=value)
    raise TypeError(f"a label cannot be {type(value).__name__}; use str, int, float or bool")
