"""Knowledge bases: their defaults are resolved and stored when they are made."""

from collections.abc import Callable

from services.catalog.catalog import Catalog
from services.catalog.types import KnowledgeBase, KnowledgeBaseChange, KnowledgeBaseSpec, Page
from services.domain.ids import KnowledgeBaseId, TenantId
from services.index.schema import CollectionSchema
from services.ingestor.chunking import effective_size
from services.ingestor.ports import Embedder
from services.ingestor.runner import JobRunner
from services.ingestor.types import NewKnowledgeBase


class KnowledgeBases:
    def __init__(self, *, catalog: Catalog, embedder: Embedder, runner: JobRunner) -> None:
        self._catalog = catalog
        self._embedder = embedder
        self._runner = runner

    async def create(self, tenant: TenantId, new: NewKnowledgeBase) -> KnowledgeBase:
        """Errors: MODEL_NOT_FOUND, MODEL_NOT_AVAILABLE, WRONG_MODEL_KIND, REQUEST_ID_REUSED, EMBEDDER_UNAVAILABLE."""
        model = await self._embedder.dense_model(new.embedding_model)
        sparse_model = new.sparse_model or "bm25"
        tokenizer_version = await self._embedder.sparse_tokenizer_version(sparse_model)
        schema = CollectionSchema(model=model.name, dimensions=model.dimensions, tokenizer_version=tokenizer_version)
        spec = KnowledgeBaseSpec(
            name=new.name,
            description=new.description,
            chunking=new.chunking,
            effective_chunk_size=effective_size(new.chunking, model.max_tokens),
            retrieval=new.retrieval,
            labels=new.labels,
            language=new.language,
            embedding_model=model.name,
            sparse_model=sparse_model,
            collection=schema.collection,
            dimensions=model.dimensions,
            tokenizer_version=tokenizer_version,
            request_id=new.request_id,
        )
        return await self._catalog.knowledge_bases.create(tenant, spec)

    async def get(self, tenant: TenantId, kb_id: KnowledgeBaseId) -> KnowledgeBase:
        return await self._catalog.knowledge_bases.get(tenant, kb_id)

    async def require(self, tenant: TenantId, kb_id: KnowledgeBaseId) -> None:
        await self._catalog.knowledge_bases.get(tenant, kb_id)

    async def list(self, tenant: TenantId, page_size: int, page_token: str) -> Page[KnowledgeBase]:
        return await self._catalog.knowledge_bases.list(tenant, page_size=page_size, page_token=page_token)

    async def update(
        self, tenant: TenantId, kb_id: KnowledgeBaseId, change_of: Callable[[KnowledgeBase], KnowledgeBaseChange]
    ) -> KnowledgeBase:
        return await self._catalog.knowledge_bases.update(tenant, kb_id, change_of)

    async def delete(self, tenant: TenantId, kb_id: KnowledgeBaseId) -> None:
        """Nothing of it is found once this returns; a job removes what is stored."""
        await self._catalog.knowledge_bases.delete(tenant, kb_id)
        self._runner.wake()
