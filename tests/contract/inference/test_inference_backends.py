"""What every backend promises, whatever computes behind it."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from services.inference.backend import Backend, OutOfMemory
from services.inference.backends.fake import FakeBackend
from services.inference.backends.openvino import OpenVinoBackend
from services.inference.cards import ModelCard, ModelKind, Pooling
from services.inference.errors import ModelInvalid
from services.inference.types import BatchOutput, Output, TokenBatch
from services.inference.worker import pad
from tests.helpers.inference import (
    HIDDEN,
    MULTI,
    VOCABULARY,
    card,
    damage_tensor,
    m3_card,
    of_length,
    write_tiny_model,
)  # fmt: skip

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="the torch extra is not installed")
needs_flag = pytest.mark.skipif(find_spec("FlagEmbedding") is None, reason="the flag extra is not installed")

Load = Callable[[Path, ModelCard], Backend]
TEXTS = [of_length(tokens, seed=1) for tokens in (3, 40, 9, 9, 64, 17)]
CARDS = [
    card(architecture="bert", pooling=Pooling.MEAN),
    card(architecture="bert", pooling=Pooling.CLS),
    card(architecture="xlm-roberta", pooling=Pooling.MEAN),
    card(architecture="xlm-roberta", pooling=Pooling.CLS),
    card(ModelKind.RERANKER, architecture="bert"),
    card(ModelKind.RERANKER, architecture="xlm-roberta"),
    card(ModelKind.SPARSE, architecture="bert"),
    card(ModelKind.SPARSE, architecture="xlm-roberta"),
    m3_card(),
]
FLAG_RUNS = [model for model in CARDS if model.kind is ModelKind.RERANKER or model.extra_outputs]


def _torch(folder: Path, model: ModelCard, *, packed: bool = True) -> Backend:
    from services.inference.backends.torch import TorchBackend

    return TorchBackend.load(folder, model, device="cpu", precision="f32", threads=1, packed=packed)


def _flag(folder: Path, model: ModelCard) -> Backend:
    from services.inference.backends.flag import FlagBackend

    return FlagBackend.load(folder, model, device="cpu", precision="f32")


def _openvino(folder: Path, model: ModelCard) -> Backend:
    return OpenVinoBackend.load(folder, model, precision="f32", threads=1)


BACKENDS = [
    pytest.param(lambda folder, model: FakeBackend(model), id="fake"),
    pytest.param(_openvino, id="openvino-f32"),
    pytest.param(lambda f, m: OpenVinoBackend.load(f, m, precision="auto", threads=1), id="openvino-auto"),
    pytest.param(_torch, id="torch-f32", marks=needs_torch),
    pytest.param(lambda f, m: _torch(f, m, packed=False), id="torch-padded-f32", marks=needs_torch),
    pytest.param(_flag, id="flag-f32", marks=needs_flag),
]


def _pairs() -> list[Any]:
    """Every backend with every model that it runs."""
    return [
        pytest.param((model, *backend.values), id=f"{backend.id}-{_shown(model)}", marks=backend.marks)
        for backend in BACKENDS
        for model in (FLAG_RUNS if _flag in backend.values else CARDS)
    ]


def _shown(model: ModelCard) -> str:
    extras = "".join(f"+{output}" for output in model.extra_outputs)
    return f"{model.kind}{extras}-{model.architecture}-{model.pooling}"


@pytest.fixture(params=_pairs())
def loaded(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[ModelCard, Backend]:
    model, load = request.param
    return model, load(tmp_path, write_tiny_model(tmp_path, model))


@pytest.fixture
def model(loaded: tuple[ModelCard, Backend]) -> ModelCard:
    return loaded[0]


@pytest.fixture
def backend(loaded: tuple[ModelCard, Backend]) -> Backend:
    return loaded[1]


def _rows(output: BatchOutput) -> dict[Output, np.ndarray]:
    """Each output that is there as a matrix: one row a text, or a token for MULTI_VECTOR."""
    out: dict[Output, np.ndarray] = {}
    if output.dense is not None:
        out[Output.DENSE] = output.dense
    if output.logits is not None:
        out[Output.LOGIT] = output.logits[:, None]
    if output.multi_vector is not None:
        out[Output.MULTI_VECTOR] = np.concatenate(output.multi_vector)
    if output.sparse is not None:
        rows = out[Output.SPARSE] = np.zeros((len(output.sparse), VOCABULARY), np.float32)
        for row, vector in zip(rows, output.sparse, strict=True):
            row[vector.indices] = vector.values
    return out


def _cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def _assert_close(ours: dict[Output, np.ndarray], theirs: dict[Output, np.ndarray]) -> None:
    assert ours.keys() == theirs.keys()
    for output, rows in ours.items():
        if output in (Output.LOGIT, Output.SPARSE):  # a cosine of scalars, or of no terms at all, says nothing
            assert np.allclose(rows, theirs[output], rtol=0.01, atol=0.01), output
        else:
            assert (_cosines(rows, theirs[output]) >= 0.9999).all(), output


def test_run_when_given_texts_of_many_lengths_then_rows_have_the_promised_form(backend: Backend, model: ModelCard):
    output = backend.run(pad(TEXTS, model.outputs))
    rows = _rows(output)
    assert rows.keys() == model.outputs
    for matrix in rows.values():
        assert np.isfinite(matrix).all()
        assert matrix.dtype == np.float32
    if output.dense is not None:
        assert output.dense.shape == (len(TEXTS), HIDDEN)
        assert np.allclose(np.linalg.norm(output.dense, axis=1), 1.0, atol=1e-5)
    for vector in output.sparse or ():
        assert len(vector.indices) == len(vector.values)
        assert (np.diff(vector.indices.astype(np.int64)) > 0).all()
        assert (vector.values > 0).all()
    if output.multi_vector is not None and not isinstance(backend, FakeBackend):
        assert [matrix.shape for matrix in output.multi_vector] == [(t.token_count - 1, MULTI) for t in TEXTS]
        assert np.allclose(np.linalg.norm(rows[Output.MULTI_VECTOR], axis=1), 1.0, atol=1e-5)


def test_run_when_a_text_is_alone_or_in_a_batch_then_its_rows_are_the_same(backend: Backend, model: ModelCard):
    together = _rows(backend.run(pad(TEXTS, model.outputs)))
    alone = [_rows(backend.run(pad([text], model.outputs))) for text in TEXTS]
    _assert_close(together, {output: np.concatenate([rows[output] for rows in alone]) for output in together})


def test_run_when_the_batch_is_reversed_then_so_are_the_rows(backend: Backend, model: ModelCard):
    forward = backend.run(pad(TEXTS, model.outputs))
    backward = backend.run(pad(TEXTS[::-1], model.outputs))
    turned = BatchOutput(
        dense=None if backward.dense is None else backward.dense[::-1],
        sparse=None if backward.sparse is None else backward.sparse[::-1],
        multi_vector=None if backward.multi_vector is None else backward.multi_vector[::-1],
        logits=None if backward.logits is None else backward.logits[::-1],
    )
    _assert_close(_rows(forward), _rows(turned))
    if forward.dense is not None and backward.dense is not None:
        assert _cosines(forward.dense, backward.dense).min() < 0.9999  # the texts do differ


def test_run_when_the_memory_was_released_then_it_answers_the_same(backend: Backend, model: ModelCard):
    before = _rows(backend.run(pad(TEXTS, model.outputs)))
    backend.release_memory()
    _assert_close(before, _rows(backend.run(pad(TEXTS, model.outputs))))


@pytest.mark.parametrize(
    "wanted",
    [{Output.DENSE}, {Output.SPARSE}, {Output.MULTI_VECTOR, Output.DENSE}],
    ids=lambda outputs: "+".join(sorted(outputs)),
)
@pytest.mark.parametrize("load", BACKENDS)
def test_run_when_some_outputs_are_wanted_then_those_alone_are_computed(
    load: Load, wanted: set[Output], tmp_path: Path
):
    backend = load(tmp_path, write_tiny_model(tmp_path, m3_card()))
    assert _rows(backend.run(pad(TEXTS, frozenset(wanted)))).keys() == wanted


@needs_torch
@pytest.mark.parametrize("failure", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: ...")])
def test_torch_when_the_device_has_no_memory_then_out_of_memory(failure: Exception, tmp_path: Path):
    from services.inference.backends.torch import TorchBackend

    class Exhausted:
        padding_free = True

        def run(self, batch: TokenBatch) -> BatchOutput:
            raise failure

        def release_memory(self) -> None: ...

    import torch

    backend = TorchBackend(card(), Exhausted(), torch.device("cpu"), "f32")
    with pytest.raises(OutOfMemory):
        backend.run(pad(TEXTS, card().outputs))


BROKEN_HEADS: list[tuple[ModelCard, str]] = [
    (card(ModelKind.RERANKER), "classifier.weight"),
    (card(ModelKind.RERANKER, architecture="xlm-roberta"), "classifier.out_proj.weight"),
    (card(ModelKind.SPARSE), "cls.predictions.transform.dense.weight"),
    (m3_card(), "sparse_linear.weight"),
    (m3_card(), "colbert_linear.weight"),
    (m3_card(), "colbert_linear.bias"),
    (card(), "encoder.layer.1.output.dense.weight"),
]
DAMAGES: dict[str, Callable[[np.ndarray], np.ndarray | None]] = {
    "missing": lambda tensor: None,
    "misshapen": lambda tensor: np.concatenate([tensor, tensor]),
    "not finite": lambda tensor: np.where(tensor == tensor.max(), np.nan, tensor).astype(np.float32),
    "zeros": np.zeros_like,
}
LOADS = [
    pytest.param(_openvino, id="openvino"),
    pytest.param(_torch, id="torch", marks=needs_torch),
    pytest.param(_flag, id="flag", marks=needs_flag),
]


def _damaged() -> list[Any]:
    """Every loader with every damage to what it reads; zeros are a value like others but in the matrix of a head."""
    return [
        pytest.param(*load.values, model, tensor, damage, id=f"{load.id}-{tensor}-{damage}", marks=load.marks)
        for load in LOADS
        for model, tensor in BROKEN_HEADS
        for damage in DAMAGES
        if (_flag not in load.values or model in FLAG_RUNS)
        and (damage != "zeros" or (tensor.endswith("weight") and not tensor.startswith(("encoder", "cls"))))
    ]


@pytest.mark.parametrize(("load", "model", "tensor", "damage"), _damaged())
def test_load_when_a_tensor_is_damaged_then_model_invalid_names_it(
    load: Load, model: ModelCard, tensor: str, damage: str, tmp_path: Path
):
    write_tiny_model(tmp_path, model)
    damage_tensor(tmp_path, tensor, DAMAGES[damage])
    with pytest.raises(ModelInvalid, match=tensor):
        load(tmp_path, model)


@pytest.mark.parametrize("load", LOADS)
def test_load_when_a_tensor_is_missing_then_model_invalid(load: Load, tmp_path: Path):
    write_tiny_model(tmp_path, card(ModelKind.DENSE))  # an encoder without the head that is asked for
    with pytest.raises(ModelInvalid):
        load(tmp_path, card(ModelKind.RERANKER))


def test_openvino_when_the_architecture_is_unknown_then_says_which_backend_to_use(tmp_path: Path):
    write_tiny_model(tmp_path, card())
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"bert"', '"modernbert"'))
    with pytest.raises(ModelInvalid, match="torch backend"):
        _openvino(tmp_path, card(architecture="modernbert"))
