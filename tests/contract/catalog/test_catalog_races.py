"""What must hold while several act at once, each with connections of its own."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from catalog_builders import TENANT, hidden, make_kb, put, stats

from services.catalog.catalog import Catalog, connect
from services.catalog.settings import CatalogSettings
from services.catalog.types import DocumentState, UploadResult
from services.common.errors import NotFound

ROUNDS = 15


@pytest.fixture
async def pair(url: str) -> AsyncIterator[tuple[Catalog, Catalog]]:
    settings = CatalogSettings(url=url, pool_size=2)
    first, second = await connect(settings), await connect(settings)
    yield first, second
    await first.aclose()
    await second.aclose()


async def test_snapshot_when_versions_are_switched_meanwhile_then_always_exactly_one_is_visible(
    pair: tuple[Catalog, Catalog],
) -> None:
    writer, reader = pair
    kb = await make_kb(writer)
    first = await put(writer, kb, "a", "0")
    await writer.versions.activate(first.version, stats(chunks=first.version))
    done = asyncio.Event()

    async def switch() -> None:
        for number in range(1, ROUNDS):
            outcome = await put(writer, kb, "a", str(number))
            # The number of chunks names the version, so that a snapshot tells which one it takes for live.
            assert await writer.versions.activate(outcome.version, stats(chunks=outcome.version))
        done.set()

    async def watch() -> int:
        seen = 0
        while not done.is_set():
            (searched,) = (await reader.snapshots.search_snapshot(TENANT, [kb.id])).knowledge_bases
            live, out_of_sight = searched.index.chunk_count, set(searched.hidden_doc_versions)
            assert live not in out_of_sight
            assert out_of_sight - {live + 1} == set(range(first.version, live))
            seen += 1
        return seen

    _, seen, _ = await asyncio.gather(switch(), watch(), watch())
    assert seen > ROUNDS // 3


async def test_delete_when_the_activation_comes_at_the_same_time_then_nothing_is_visible(
    pair: tuple[Catalog, Catalog],
) -> None:
    one, other = pair
    kb = await make_kb(one)
    for number in range(ROUNDS):
        outcome = await put(one, kb, f"{number}", f"{number}")
        await one.versions.start(outcome.version)
        await asyncio.gather(
            one.versions.activate(outcome.version, stats()), other.documents.delete(TENANT, outcome.document_id)
        )
        with pytest.raises(NotFound):
            await one.documents.get(TENANT, outcome.document_id)
        assert outcome.version in await hidden(one, kb.id)
        assert not await one.versions.activate(outcome.version, stats())
    index = (await one.knowledge_bases.get(TENANT, kb.id)).index
    assert (index.chunk_count, index.bm25_length_total) == (0, 0)


async def test_delete_when_the_knowledge_base_goes_during_activation_then_it_is_gone(
    pair: tuple[Catalog, Catalog],
) -> None:
    one, other = pair
    for _ in range(5):
        kb = await make_kb(one)
        outcome = await put(one, kb)
        await asyncio.gather(
            one.versions.activate(outcome.version, stats()), other.knowledge_bases.delete(TENANT, kb.id)
        )
        with pytest.raises(NotFound):
            await hidden(one, kb.id)
        assert await one.documents.documents_by_version(TENANT, [outcome.version]) == {}


async def test_upload_when_one_name_comes_twice_at_once_then_one_document_and_the_later_version(
    pair: tuple[Catalog, Catalog],
) -> None:
    one, other = pair
    kb = await make_kb(one)
    for number in range(ROUNDS):
        outcomes = await asyncio.gather(
            put(one, kb, f"{number}", f"x{number}"), put(other, kb, f"{number}", f"y{number}")
        )
        assert outcomes[0].document_id == outcomes[1].document_id
        assert {outcome.result for outcome in outcomes} == {UploadResult.NEW, UploadResult.REPLACEMENT}
        started = [await one.versions.start(outcome.version) for outcome in outcomes]
        assert sorted(started) == [False, True]


async def test_upload_when_a_request_id_comes_twice_at_once_then_one_version(pair: tuple[Catalog, Catalog]) -> None:
    one, other = pair
    kb = await make_kb(one)
    for number in range(ROUNDS):
        first, second = await asyncio.gather(
            put(one, kb, f"{number}", f"{number}", request_id=f"r{number}"),
            put(other, kb, f"{number}", f"{number}", request_id=f"r{number}"),
        )
        assert first == second


async def test_activate_when_a_newer_upload_comes_at_the_same_time_then_one_live_version_at_most(
    pair: tuple[Catalog, Catalog],
) -> None:
    one, other = pair
    kb = await make_kb(one)
    for number in range(ROUNDS):
        older = await put(one, kb, f"{number}", f"x{number}")
        activated, newer = await asyncio.gather(
            one.versions.activate(older.version, stats()), put(other, kb, f"{number}", f"y{number}")
        )
        document = await one.documents.get(TENANT, older.document_id)
        assert document.live_version == (older.version if activated else None)
        assert await one.versions.activate(newer.version, stats())
        document = await one.documents.get(TENANT, older.document_id)
        assert (document.live_version, document.state) == (newer.version, DocumentState.DONE)
    index = (await one.knowledge_bases.get(TENANT, kb.id)).index
    assert index.chunk_count == 4 * ROUNDS


async def test_change_metadata_when_two_change_other_fields_at_once_then_both_changes_are_kept(
    pair: tuple[Catalog, Catalog],
) -> None:
    kb = await make_kb(pair[0])
    document = (await put(pair[0], kb, "a", "0")).document_id

    async def change(catalog: Catalog, **named: str) -> None:
        await catalog.documents.change_metadata(TENANT, document, lambda known: replace(known, **named))

    for number in range(ROUNDS):
        await asyncio.gather(change(pair[0], title=f"t{number}"), change(pair[1], author=f"a{number}"))
        known = (await pair[0].documents.get(TENANT, document)).metadata
        assert (known.title, known.author) == (f"t{number}", f"a{number}")
