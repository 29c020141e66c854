"""Where the blobs of a document lie: originals by upload, parses by version. Prefixes are whole segments, without a
slash at the end."""

from services.catalog.types import DocumentVersion
from services.domain.ids import DocVersionId, KnowledgeBaseId, TenantId

#: A stored stretch of a document is far smaller; more is damage.
MAX_PART_BYTES = 256 << 20


def knowledge_base_prefix(tenant: TenantId, kb_id: KnowledgeBaseId) -> str:
    """Everything of a knowledge base."""
    return f"{tenant}/{kb_id}"


def uploads_prefix(tenant: TenantId, kb_id: KnowledgeBaseId) -> str:
    return f"{knowledge_base_prefix(tenant, kb_id)}/uploads"


def versions_prefix(tenant: TenantId, kb_id: KnowledgeBaseId) -> str:
    return f"{knowledge_base_prefix(tenant, kb_id)}/versions"


def version_prefix(tenant: TenantId, kb_id: KnowledgeBaseId, version: DocVersionId) -> str:
    """What was made of one version of a document."""
    return f"{versions_prefix(tenant, kb_id)}/{version}"


def part_key(version: DocumentVersion, number: int) -> str:
    """The parse of the stretch `number`, from 0."""
    return f"{version_prefix(version.tenant_id, version.knowledge_base_id, version.id)}/parts/{number:06}.json.gz"
