"""The candidates of one group: the ranked lists of its knowledge bases fused, and one passage for each text."""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from itertools import groupby

from services.domain.ids import DocumentId, DocVersionId
from services.domain.scores import PassageScores, RankedScore
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
        self._dense_ranks: dict[str, int] = {}
        self._bm25_ranks: dict[str, int] = {}
        self._scores: dict[str, tuple[float | None, float | None]] = {}
        dense = [(n, hits.dense) for n, hits in enumerate(found) if hits.dense is not None]
        bm25 = [(n, hits.bm25) for n, hits in enumerate(found) if hits.bm25 is not None]
        lists = self._ranked(dense, self._dense_ranks, is_dense=True)
        lists += self._ranked(bm25, self._bm25_ranks, is_dense=False)
        self._fused = {key: (rank, score) for rank, (key, score) in enumerate(fuse(lists), 1)}
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
        rank, fused = self._fused[key]
        dense, bm25 = self._scores[key]
        return Candidate(
            member=member,
            hit=hit,
            fused_rank=rank,
            scores=PassageScores(
                fused=fused,
                dense=None if dense is None else RankedScore(rank=self._dense_ranks[key], score=dense),
                bm25=None if bm25 is None else RankedScore(rank=self._bm25_ranks[key], score=bm25),
            ),
        )

    def _ranked(
        self, found: Sequence[tuple[int, Sequence[Hit]]], ranks: dict[str, int], *, is_dense: bool
    ) -> list[RankedList]:
        lists: list[RankedList] = []
        members = self.group.members

        def bucket(entry: tuple[int, Sequence[Hit]]) -> tuple[str, float]:
            member = members[entry[0]]
            return member.schema.collection, member.dense_weight if is_dense else member.bm25_weight

        entries = sorted(found, key=bucket) if len(found) > 1 else found
        for (_, weight), same in groupby(entries, key=bucket):
            ids = self._take(list(same), is_dense=is_dense)
            ranks.update(zip(ids, range(1, len(ids) + 1), strict=True))
            lists.append(RankedList(ids=ids, weight=weight, precedence=0 if is_dense else 1))
        return lists

    def _take(self, found: Sequence[tuple[int, Sequence[Hit]]], *, is_dense: bool) -> list[str]:
        """Remember hits and scores; returns their ids, best first."""
        scored: list[tuple[float, str]] = []
        for member, hits in found:
            for hit in hits:
                key = hit.point_id
                self._hits[key] = (member, hit)
                dense, bm25 = self._scores.get(key, (None, None))
                self._scores[key] = (hit.score, bm25) if is_dense else (dense, hit.score)
                scored.append((-hit.score, key))
        # The engine orders equal scores as it likes; by id they are the same every time.
        scored.sort()
        return [key for _, key in scored]

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
