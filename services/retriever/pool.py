"""The candidates of one group: the ranked lists of its knowledge bases fused, and one passage for each text."""

from collections.abc import Sequence, Set
from dataclasses import dataclass

from services.domain.ids import DocumentId, DocVersionId
from services.domain.scores import PassageScores, RankedScore
from services.index.schema import CollectionSchema
from services.index.types import Hit
from services.retriever.fusion import RankedList, fuse
from services.retriever.plan import Group
from services.retriever.types import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberHits:
    """The ranked lists of one member, best first; None where that list was not asked for."""

    dense: Sequence[Hit] | None = None
    bm25: Sequence[Hit] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Point ids in fused order: those that go on, those whose text is a better one's, and those after the last."""

    kept: list[str]
    duplicates: list[str]
    cut: list[str]


class Pool:
    """Scores of knowledge bases with one vector schema compare, so their lists become one list by score; lists of
    different schemas meet by rank only."""

    def __init__(self, group: Group, found: Sequence[MemberHits]) -> None:
        self.group = group
        self._hits: dict[str, tuple[int, Hit]] = {}
        self._dense, self._bm25 = _Scores(), _Scores()
        lists = self._ranked([hits.dense for hits in found], self._dense, is_dense=True)
        lists += self._ranked([hits.bm25 for hits in found], self._bm25, is_dense=False)
        self._fused = fuse(lists)
        self._ranks = dict(zip(self._fused, range(1, len(self._fused) + 1), strict=True))
        self._late = self._not_in_snapshot()

    def __len__(self) -> int:
        return len(self._fused)

    @property
    def late(self) -> Set[str]:
        """Points of document versions that came after the snapshot while an older version was live in it."""
        return self._late

    def select(self, gone: Set[str]) -> Selection:
        """Collapse the whole fused list without `gone`, then cut it to the group's candidates."""
        kept: list[str] = []
        duplicates: list[str] = []
        seen: set[str] = set()
        for key in self._fused:
            if key in gone or key in self._late:
                continue
            text = self._hits[key][1].content_hash or key
            if text in seen:
                duplicates.append(key)
            else:
                seen.add(text)
                kept.append(key)
        most = self.group.candidates
        return Selection(kept=kept[:most], duplicates=duplicates, cut=kept[most:])

    def hit(self, key: str) -> tuple[int, Hit]:
        """The member of the group that a point is of, and its hit."""
        return self._hits[key]

    def candidate(self, key: str) -> Candidate:
        member, hit = self._hits[key]
        scores = PassageScores(fused=self._fused[key], dense=self._dense.of(key), bm25=self._bm25.of(key))
        return Candidate(member=member, hit=hit, fused_rank=self._ranks[key], scores=scores)

    def _ranked(self, found: Sequence[Sequence[Hit] | None], scores: "_Scores", *, is_dense: bool) -> list[RankedList]:
        """One list for each vector schema (and weight, should they differ)."""
        same: dict[tuple[CollectionSchema, float], list[str]] = {}
        for number, hits in enumerate(found):
            if hits is None:
                continue
            member = self.group.members[number]
            weight = member.dense_weight if is_dense else member.bm25_weight
            ids = same.setdefault((member.schema, weight), [])
            for hit in hits:
                self._hits.setdefault(hit.point_id, (number, hit))
                scores.by_id[hit.point_id] = hit.score
                ids.append(hit.point_id)
        precedence = 0 if is_dense else 1
        lists: list[RankedList] = []
        for (_, weight), ids in same.items():
            scores.rank(ids)
            lists.append(RankedList(ids=ids, weight=weight, precedence=precedence))
        return lists

    def _not_in_snapshot(self) -> Set[str]:
        """Versions that were hidden at the snapshot are not found at all, so of two versions of a document the older
        one was live then, and the newer one was uploaded since."""
        first: dict[DocumentId, DocVersionId] = {}
        several = False
        for _, hit in self._hits.values():
            known = first.setdefault(hit.document_id, hit.doc_version)
            if known != hit.doc_version:
                several = True
                first[hit.document_id] = min(known, hit.doc_version)
        if not several:
            return frozenset()
        return {key for key, (_, hit) in self._hits.items() if hit.doc_version != first[hit.document_id]}


class _Scores:
    """What the lists of one kind say of the points in them."""

    def __init__(self) -> None:
        self.by_id: dict[str, float] = {}
        self._ranks: dict[str, int] = {}

    def rank(self, ids: list[str]) -> None:
        """Order `ids` by score. The engine orders equal scores as it likes; by id they are the same every time."""
        ids.sort()
        ids.sort(key=self.by_id.__getitem__, reverse=True)
        self._ranks.update(zip(ids, range(1, len(ids) + 1), strict=True))

    def of(self, key: str) -> RankedScore | None:
        rank = self._ranks.get(key)
        return None if rank is None else RankedScore(rank=rank, score=self.by_id[key])
