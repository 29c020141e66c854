"""The text of candidates, and what is shown of their documents; the next one takes the place of what is gone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from services.catalog.types import DisplayedDocument
from services.common.clock import Deadline
from services.domain.ids import DocVersionId, TenantId
from services.index.types import StoredPassage
from services.retriever.concurrent import all_of, both
from services.retriever.plan import Member
from services.retriever.pool import Pool, Selection
from services.retriever.ports import DocumentPort, IndexPort

#: The first round finds everything unless documents were deleted between query and fetch.
_ROUNDS = 3
#: The call's own deadline ends first and says so; the index's time limit is for a hanging index.
_GRACE_S = 0.25


class Found(NamedTuple):
    stored: StoredPassage
    document: DisplayedDocument


@dataclass(slots=True, kw_only=True)
class FetchedPool:
    """A pool with the text of its first candidates; `gone` are points that were found and may not be shown."""

    pool: Pool
    selection: Selection
    texts: dict[str, Found]
    gone: set[str]

    @property
    def wanted(self) -> list[str]:
        """With reranking the whole selection is read, without it only what is returned."""
        return self.selection.kept if self.pool.group.rerank else self.selection.kept[: self.pool.group.top_k]

    @property
    def ready(self) -> list[str]:
        return [key for key in self.wanted if key in self.texts]

    @property
    def missing(self) -> list[str]:
        return [key for key in self.wanted if key not in self.texts]


class Fetching:
    def __init__(self, index: IndexPort, documents: DocumentPort, *, timeout_s: float) -> None:
        self._index = index
        self._documents = documents
        self._timeout_s = timeout_s

    async def fetch(
        self, tenant: TenantId, pools: Sequence[Pool], selections: Sequence[Selection], deadline: Deadline
    ) -> list[FetchedPool]:
        """Errors: INDEX_UNAVAILABLE, CATALOG_UNAVAILABLE."""
        fetched = [
            FetchedPool(pool=pool, selection=selection, texts={}, gone=set())
            for pool, selection in zip(pools, selections, strict=True)
        ]
        for _ in range(_ROUNDS):
            waiting = [(one, missing) for one in fetched if (missing := one.missing)]
            if not waiting:
                break
            await self._round(tenant, waiting, deadline)
        return fetched

    async def _round(
        self, tenant: TenantId, waiting: Sequence[tuple[FetchedPool, list[str]]], deadline: Deadline
    ) -> None:
        ids: dict[int, tuple[Member, list[str]]] = {}
        versions: set[DocVersionId] = set()
        for one, missing in waiting:
            for key in missing:
                number, hit = one.pool.hit(key)
                member = one.pool.group.members[number]
                ids.setdefault(id(member), (member, []))[1].append(key)
                versions.add(hit.doc_version)
        timeout_s = deadline.capped(self._timeout_s) + _GRACE_S
        reads = [
            self._index.fetch(member.schema, member.kb.id, keys, timeout_s=timeout_s) for member, keys in ids.values()
        ]
        stored, documents = await both(all_of(reads), self._documents.documents_by_version(tenant, sorted(versions)))
        passages = {key: passage for part in stored for key, passage in part.items()}
        for one, missing in waiting:
            _take(one, missing, passages, documents)


def _take(
    one: FetchedPool,
    missing: Sequence[str],
    passages: dict[str, StoredPassage],
    documents: dict[DocVersionId, DisplayedDocument],
) -> None:
    before = len(one.gone)
    for key in missing:
        stored = passages.get(key)
        document = documents.get(one.pool.hit(key)[1].doc_version)
        if stored is None or document is None:
            one.gone.add(key)
        else:
            one.texts[key] = Found(stored, document)
    if len(one.gone) > before:
        one.selection = one.pool.select(one.gone)
