"""Weighted reciprocal rank fusion (Cormack, Clarke and Buettcher, 2009): ranked lists of ids into one."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import NamedTuple

#: Ranks count from 1.
RRF_K = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedList:
    """Ids, best first, each once. `weight` > 0. Between equal scores, lists of lower `precedence` win."""

    ids: Sequence[str]
    weight: float = 1.0
    precedence: int = 0


class Fused(NamedTuple):
    id: str
    score: float


def fuse(lists: Sequence[RankedList]) -> list[Fused]:
    """Every id of the lists, by the sum over lists of weight / (60 + rank), highest first.

    The order of the lists does not matter. Equal scores go by the precedence of the list that has the id, then by the
    rank there, then by id, so that the same lists always give the same order.
    """
    shares: dict[str, list[float]] = {}
    places: dict[str, tuple[int, int]] = {}
    for ranked in lists:
        for rank, key in enumerate(ranked.ids, 1):
            share, place = ranked.weight / (RRF_K + rank), (ranked.precedence, rank)
            known = shares.get(key)
            if known is None:
                shares[key] = [share]
                places[key] = place
            else:
                known.append(share)
                places[key] = min(place, places[key])
    # fsum rounds once, so that the sum does not depend on the order of the lists.
    scores = {key: parts[0] if len(parts) == 1 else fsum(parts) for key, parts in shares.items()}
    order = sorted(scores, key=lambda key: (-scores[key], places[key], key))
    return [Fused(key, scores[key]) for key in order]
