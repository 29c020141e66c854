"""Remembers which chunk a point is, so that a search need not ask the engine for payloads: reading 300 of them takes
the engine three times as long as finding the points."""

from collections.abc import Mapping, Sequence

from services.index.payload import Identity

DEFAULT_CAPACITY = 100_000
#: Evicted at once when full: the oldest.
_EVICTED_SHARE = 10


class IdentityCache:
    """Identities by point id and version. A write gives a point another version, so that an entry is never stale.

    Bounded by `capacity` entries of about 400 bytes.
    """

    def __init__(self, capacity: int = DEFAULT_CAPACITY) -> None:
        self._capacity = max(capacity, 1)
        self._entries: dict[str, tuple[int, Identity]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def lookup(self, versions: Mapping[str, int]) -> tuple[dict[str, Identity], list[str]]:
        """The identities kept for these points (versions by id), and the ids of those that are not kept."""
        known: dict[str, Identity] = {}
        unknown: list[str] = []
        entries = self._entries
        for point_id, version in versions.items():
            entry = entries.get(point_id)
            if entry is not None and entry[0] == version:
                known[point_id] = entry[1]
            else:
                unknown.append(point_id)
        return known, unknown

    def keep(self, found: Sequence[tuple[str, int, Identity]]) -> None:
        for point_id, version, identity in found:
            self._entries.pop(point_id, None)
            self._entries[point_id] = (version, identity)
        if len(self._entries) > self._capacity:
            surplus = len(self._entries) - self._capacity + self._capacity // _EVICTED_SHARE
            for point_id in list(self._entries)[:surplus]:
                del self._entries[point_id]
