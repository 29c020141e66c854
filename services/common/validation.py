"""Collecting what is wrong with a request, so that a client learns all of it at once."""

from services.common.errors import FieldViolation, InvalidRequest, Reason, ServiceError
from services.domain.ids import IdKind, is_id

MAX_PAGE_SIZE = 1000
#: Violations that are kept; a status has room for fewer, and a request of a million entries may have as many faults.
_MAX_KEPT = 100


class Violations:
    """Gathers violations; `raise_if_any` turns them into one InvalidRequest."""

    def __init__(self) -> None:
        self._found: list[FieldViolation] = []

    @property
    def found(self) -> list[FieldViolation]:
        """What was gathered so far, in order."""
        return list(self._found)

    def add(self, field: str, description: str) -> None:
        if len(self._found) < _MAX_KEPT:
            self._found.append(FieldViolation(field=field, description=description))

    def check(self, fine: bool, field: str, description: str) -> None:
        if not fine:
            self.add(field, description)

    def length(self, field: str, text: str, most: int, *, least: int = 0) -> None:
        size = len(text)
        if not least <= size <= most:
            allowed = f"{least} to {most} characters" if least else f"at most {most} characters"
            self.add(field, f"has {size} characters, allowed are {allowed}")

    def request_id(self, field: str, text: str) -> None:
        self.length(field, text, 128)

    def extend(self, violations: list[FieldViolation], prefix: str = "") -> None:
        for violation in violations:
            self.add(prefix + violation.field, violation.description)

    def raise_if_any(self, reason: Reason | None = None) -> None:
        if self._found:
            raise InvalidRequest.of(*self._found, reason=reason)


def page_size(value: int, *, default: int = 50, most: int = MAX_PAGE_SIZE) -> int:
    """The size to use. Raises InvalidRequest above `most`; 0 means the default."""
    if value > most:
        raise InvalidRequest.of(FieldViolation(field="page_size", description=f"is {value}, at most {most} is allowed"))
    return value or default


def required(field: str, value: str) -> str:
    """`value`, unless it is empty."""
    if not value:
        raise InvalidRequest.of(FieldViolation(field=field, description="is required"))
    return value


def looks_like(kind: IdKind, value: str) -> bool:
    """Whether it is worth asking the catalogue for `value`; anything else cannot exist."""
    return is_id(value, kind)


def require_room(size_bytes: int, most_bytes: int) -> None:
    """Raise MESSAGE_TOO_LARGE where a reply could not be sent."""
    if size_bytes > most_bytes:
        raise ServiceError(
            f"the reply would have {size_bytes} bytes, at most {most_bytes} are allowed: send less in a call",
            reason=Reason.MESSAGE_TOO_LARGE,
        )
