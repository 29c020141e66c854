"""Weighted reciprocal rank fusion (Cormack, Clarke and Buettcher, 2009): ranked lists of ids into one."""

from collections.abc import Sequence
from dataclasses import dataclass

#: Ranks count from 1.
RRF_K = 60
#: Shares are added as whole numbers of this fraction: exact, so the order of the lists cannot matter.
_ONE = 1 << 50
_MAX_RANK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedList:
    """Ids, best first, each once. `weight` > 0. Between equal scores, lists of lower `precedence` win."""

    ids: Sequence[str]
    weight: float = 1.0
    precedence: int = 0


def fuse(lists: Sequence[RankedList]) -> dict[str, float]:
    """Every id of the lists with the sum over lists of weight / (60 + rank), highest first.

    The order of the lists does not matter. Equal scores go by the precedence of the list that has the id, then by the
    rank there, then by id, so that the same lists always give the same order.
    """
    shares: dict[str, int] = {}
    places: dict[str, int] = {}
    for ranked in lists:
        scaled, offset = ranked.weight * _ONE, ranked.precedence * _MAX_RANK
        for rank, key in enumerate(ranked.ids, 1):
            share, place = int(scaled / (RRF_K + rank)), offset + rank
            known = shares.get(key)
            if known is None:
                shares[key] = share
                places[key] = place
            else:
                shares[key] = known + share
                places[key] = min(places[key], place)
    order = sorted(shares)  # sorts are stable: the last key first
    order.sort(key=places.__getitem__)
    order.sort(key=shares.__getitem__, reverse=True)
    return {key: shares[key] / _ONE for key in order}
