"""What a search will probably need, from the last snapshot of its knowledge bases: the embedding starts before the plan
is certain. A wrong guess costs one embedding, never a wrong result."""

from collections import OrderedDict

from services.catalog.types import SearchedKnowledgeBase, SearchSnapshot
from services.common.errors import InvalidRequest
from services.domain.ids import KnowledgeBaseId, TenantId
from services.retriever.plan import plan_search
from services.retriever.types import EmbeddingNeed, SearchCall

_MOST = 4_096


class Guesses:
    """Remembers the knowledge bases that were searched last."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[TenantId, KnowledgeBaseId], SearchedKnowledgeBase] = OrderedDict()

    def needs(self, call: SearchCall) -> frozenset[EmbeddingNeed]:
        """What the search will need if nothing changed; nothing while one of its knowledge bases is unknown here."""
        known = [self._known.get((call.tenant_id, kb_id)) for kb_id in call.knowledge_base_ids]
        bases = tuple(kb for kb in known if kb is not None)
        if len(bases) < len(known):
            return frozenset()
        try:
            return plan_search(call, SearchSnapshot(knowledge_bases=bases)).needs
        except InvalidRequest:
            return frozenset()

    def learn(self, tenant_id: TenantId, snapshot: SearchSnapshot) -> None:
        for kb in snapshot.knowledge_bases:
            self._known[tenant_id, kb.id] = kb
            self._known.move_to_end((tenant_id, kb.id))
        while len(self._known) > _MOST:
            self._known.popitem(last=False)
