"""The embedder as a server with real models: what small vectors still know, and what loading and unloading costs."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import numpy as np
import pytest
from pergamon.client import AsyncClient, DataType, Targets, as_numpy, sparse_rows

from services.common.settings import default_models_dir
from tests.helpers.servers import Server, settings_in

MODEL, OTHER, TERMS = "all-minilm-l6-v2", "bge-small-en-v1.5", "splade-tiny"
TEXTS = [
    "The Eiffel Tower in Paris was completed in 1889 and stands 330 meters tall.",
    "The tower of Paris was finished at the end of the 19th century.",
    "Bananas are rich in potassium and grow in the tropics.",
    "Tropical fruit holds many minerals.",
    "The central bank raised interest rates by half a percent.",
    "Borrowing money became more expensive in autumn.",
    "A decorator wraps a function and returns another one.",
    "Functions that return functions are common in this language.",
    "Ježek, žluťoučký kůň, příliš ďábelské ódy.",
    "x",
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    told = settings_in(
        tmp_path_factory.mktemp("embedder"),
        PERGAMON_MODELS_DIR=str(default_models_dir()),
        PERGAMON_PULL_MODELS="true",
        PERGAMON_EMBEDDING_MODELS=f"{MODEL},{OTHER}",
        PERGAMON_BACKEND="openvino",
        PERGAMON_THREADS="2",
    )
    started = Server("embedder", told)
    try:
        started.wait_until_ready()
        yield started
    finally:
        started.kill()


@pytest.fixture
async def client(server: Server) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server.target, targets=Targets(embedder=server.target), timeout_s=60) as opened:
        yield opened


def cosines(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    return (found * expected).sum(axis=1) / np.linalg.norm(found, axis=1) / np.linalg.norm(expected, axis=1)


def pairs(similarity: np.ndarray) -> np.ndarray:
    """The similarity of each text with each other one, once."""
    return similarity[np.triu_indices(len(similarity), 1)]


@pytest.mark.parametrize(
    ("data_type", "least"),
    [
        (DataType.DATA_TYPE_FLOAT16, 0.999999),
        (DataType.DATA_TYPE_BFLOAT16, 0.99999),
        (DataType.DATA_TYPE_INT8, 0.999),
    ],
)
async def test_embed_when_elements_are_small_then_the_vectors_point_the_same_way(
    client: AsyncClient, data_type: DataType.ValueType, least: float
) -> None:
    whole = as_numpy((await client.embed(TEXTS)).dense)
    found = as_numpy((await client.embed(TEXTS, data_type=data_type)).dense)
    assert cosines(found, whole).min() >= least


async def test_embed_when_elements_are_bits_then_near_texts_stay_near(client: AsyncClient) -> None:
    whole = as_numpy((await client.embed(TEXTS)).dense)
    reply = await client.embed(TEXTS, data_type=DataType.DATA_TYPE_UBINARY)
    bits = np.unpackbits(np.frombuffer(reply.dense.data, np.uint8).reshape(len(TEXTS), -1), axis=1)
    agreeing = -(bits[:, None, :] != bits[None, :, :]).sum(axis=2).astype(float)
    assert np.corrcoef(pairs(whole @ whole.T), pairs(agreeing))[0, 1] > 0.9
    np.fill_diagonal(agreeing, -np.inf)
    assert agreeing[:8].argmax(axis=1).tolist() == [1, 0, 3, 2, 5, 4, 7, 6]


async def test_embed_when_dimensions_are_cut_then_rows_have_unit_length_and_the_order_mostly_stands(
    client: AsyncClient,
) -> None:
    whole = as_numpy((await client.embed(TEXTS)).dense)
    reply = await client.embed(TEXTS, dimensions=192)
    found = as_numpy(reply.dense)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
    assert np.corrcoef(pairs(whole @ whole.T), pairs(found @ found.T))[0, 1] > 0.9
    assert len(reply.warnings) == 1  # its card claims none


async def test_embed_when_dense_and_learned_sparse_are_asked_for_then_both_find_the_same_neighbour(
    client: AsyncClient,
) -> None:
    await client.load_embedding_model(TERMS)
    reply = await client.embed(TEXTS, sparse=True, sparse_model=TERMS)
    terms = [dict(zip(indices, values, strict=True)) for indices, values in sparse_rows(reply.sparse)]
    assert all(list(row) == sorted(row) and min(row.values()) > 0 for row in terms)

    def shared(one: int, other: int) -> float:
        return sum(value * terms[other].get(index, 0.0) for index, value in terms[one].items())

    assert max(range(1, 8), key=lambda other: shared(0, other)) == 1
    dense = as_numpy(reply.dense)
    assert (dense[1:8] @ dense[0]).argmax() + 1 == 1
    await client.unload_embedding_model(TERMS)


async def test_model_when_it_is_unloaded_then_its_memory_comes_back_every_time(
    server: Server, client: AsyncClient
) -> None:
    async def loaded_then_unloaded() -> tuple[int, int]:
        model = await client.load_embedding_model(OTHER)
        assert (await client.embed(TEXTS, dense_model=OTHER)).dense.dimensions == model.dimensions
        most = resident_mib(server)
        await client.unload_embedding_model(OTHER)
        return most, resident_mib(server)

    for _ in range(2):
        most, least = await loaded_then_unloaded()
        assert most - least > 100, f"{most} MiB with the model, {least} MiB without"  # its file has 67 MB
    assert (await client.embed(TEXTS)).dense_model == MODEL


def resident_mib(server: Server) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) >> 10
