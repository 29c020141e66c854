"""What housekeeping asks the catalogue: which knowledge bases live, and of what nothing should be stored any more."""

from catalog_builders import OTHER, TENANT, lease, make_kb, put, put_live

from services.catalog.catalog import Catalog
from services.catalog.job_types import JobKind
from services.domain.ids import DocVersionId, KnowledgeBaseId, new_id


async def test_living_when_paged_then_every_tenant_is_there_and_the_deleted_are_not(catalog: Catalog) -> None:
    kbs = [await make_kb(catalog, tenant) for tenant in (TENANT, OTHER, TENANT, OTHER)]
    await catalog.knowledge_bases.delete(TENANT, kbs[2].id)
    wanted = sorted((kb.tenant_id, kb.id) for kb in kbs if kb is not kbs[2])
    found: list[tuple[str, KnowledgeBaseId]] = []
    after: KnowledgeBaseId | None = None
    while page := await catalog.cleanup.living(after=after, limit=2):
        found += page
        after = page[-1][1]
    assert sorted(found) == wanted
    assert [kb_id for _, kb_id in found] == sorted(kb_id for _, kb_id in found)


async def test_unknown_knowledge_bases_when_asked_then_a_deleted_one_is_still_known_until_it_is_purged(
    catalog: Catalog,
) -> None:
    alive, deleted, never = await make_kb(catalog), await make_kb(catalog), KnowledgeBaseId(new_id("kb"))
    await catalog.knowledge_bases.delete(TENANT, deleted.id)
    asked = (alive.id, deleted.id, never)
    assert await catalog.cleanup.unknown_knowledge_bases(asked) == (never,)
    await catalog.knowledge_bases.purge_done(deleted.id)
    assert await catalog.cleanup.unknown_knowledge_bases(asked) == (deleted.id, never)


async def test_spent_versions_when_versions_are_at_every_stage_then_only_cleaned_and_unknown_ones_are_spent(
    catalog: Catalog,
) -> None:
    kb = await make_kb(catalog)
    live = await put_live(catalog, kb, "live.txt", "live")
    waiting = await put(catalog, kb, "waiting.txt", "waiting")
    failed = await put(catalog, kb, "failed.txt", "failed")
    assert await catalog.versions.start(failed.version)
    await catalog.versions.fail(failed.version, "NO_TEXT", "no text")
    unknown = DocVersionId(10**9)
    asked = (live.version, waiting.version, failed.version, unknown)
    assert await catalog.cleanup.spent_versions(kb.id, asked) == (unknown,), "its clean-up is still to come"
    assert await catalog.versions.retire_done(failed.version)
    assert await catalog.cleanup.spent_versions(kb.id, asked) == (failed.version, unknown)


async def test_spent_versions_when_asked_of_another_knowledge_base_then_they_are_unknown_there(
    catalog: Catalog,
) -> None:
    first, second = await make_kb(catalog), await make_kb(catalog)
    live = await put_live(catalog, first)
    assert await catalog.cleanup.spent_versions(second.id, (live.version,)) == (live.version,)
    assert await lease(catalog, kinds=(JobKind.RETIRE,)) == ()
