"""How far an ingestion is, as it is kept with its job: enough to go on where a killed worker stopped."""

from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from services.domain.blocks import DocumentKind, DocumentMetadata, ParseWarning

#: A change in how documents are parsed or cut makes older checkpoints worthless.
FORMAT = 1
_MAX_WARNINGS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """`parts` stored stretches, to go on at `next_page` (None: parsed); `written` chunks of the cut
    with digest `chunks` are in the index."""

    next_page: int | None = 1
    parts: int = 0
    kind: DocumentKind | None = None
    page_count: int = 0
    text_chars: int = 0
    metadata: DocumentMetadata = field(default_factory=DocumentMetadata)
    warnings: tuple[ParseWarning, ...] = ()
    chunks: str = ""
    written: int = 0
    average_length: float = 0.0
    bm25_length: int = 0

    def warned(self, more: tuple[ParseWarning, ...]) -> "Checkpoint":
        """With more warnings, the first hundred of them."""
        return replace(self, warnings=(*self.warnings, *more)[:_MAX_WARNINGS])

    def to_json(self) -> dict[str, Any]:
        content = asdict(self)
        metadata: dict[str, Any] = content["metadata"]
        for key in ("created_time", "updated_time"):
            moment: datetime | None = metadata[key]
            metadata[key] = moment.isoformat() if moment else None
        return {"format": FORMAT, **content}

    @classmethod
    def from_json(cls, stored: Any) -> "Checkpoint":
        """The checkpoint as stored; a fresh one where there is none, or one of another format."""
        if not isinstance(stored, dict) or stored.get("format") != FORMAT:  # pyright: ignore[reportUnknownMemberType]
            return cls()
        content: dict[str, Any] = {key: value for key, value in stored.items() if key != "format"}  # pyright: ignore[reportUnknownVariableType]
        metadata: dict[str, Any] = content["metadata"]
        for key in ("created_time", "updated_time"):
            metadata[key] = datetime.fromisoformat(metadata[key]) if metadata[key] else None
        metadata["tags"] = tuple(metadata["tags"])
        content["metadata"] = DocumentMetadata(**metadata)
        content["kind"] = DocumentKind(content["kind"]) if content["kind"] else None
        content["warnings"] = tuple(ParseWarning(**warning) for warning in content["warnings"])
        return cls(**content)
