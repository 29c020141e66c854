"""What every backend promises, whatever computes behind it; and that ours agree with transformers."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from services.inference.backend import Backend
from services.inference.backends.fake import FakeBackend
from services.inference.backends.openvino import OpenVinoBackend
from services.inference.cards import ModelCard, ModelKind, Pooling
from services.inference.errors import ModelInvalid
from services.inference.types import BatchOutput, Encoded
from services.inference.worker import pad
from tests.helpers.inference import HIDDEN, VOCABULARY, card, of_length, write_tiny_model

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="the torch extra is not installed")

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
]


def _torch(folder: Path, model: ModelCard) -> Backend:
    from services.inference.backends.torch import TorchBackend

    return TorchBackend.load(folder, model, device="cpu", precision="f32", threads=1)


def _openvino(folder: Path, model: ModelCard) -> Backend:
    return OpenVinoBackend.load(folder, model, precision="f32", threads=1)


BACKENDS = [
    pytest.param(lambda folder, model: FakeBackend(model), id="fake"),
    pytest.param(_openvino, id="openvino-f32"),
    pytest.param(lambda f, m: OpenVinoBackend.load(f, m, precision="auto", threads=1), id="openvino-auto"),
    pytest.param(_torch, id="torch-f32", marks=needs_torch),
]


@pytest.fixture(params=CARDS, ids=lambda c: f"{c.kind}-{c.architecture}-{c.pooling}")
def model(request: pytest.FixtureRequest) -> ModelCard:
    return request.param


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, model: ModelCard, tmp_path: Path) -> Backend:
    return request.param(tmp_path, write_tiny_model(tmp_path, model))


def _rows(output: BatchOutput) -> np.ndarray:
    """Whatever the kind, a matrix with one row a text."""
    if output.dense is not None:
        return output.dense
    if output.logits is not None:
        return output.logits[:, None]
    assert output.sparse is not None
    rows = np.zeros((len(output.sparse), VOCABULARY), np.float32)
    for row, vector in zip(rows, output.sparse, strict=True):
        row[vector.indices] = vector.values
    return rows


def _cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def _close(a: np.ndarray, b: np.ndarray, model: ModelCard) -> bool:
    if model.kind is ModelKind.RERANKER:  # a cosine of scalars says nothing
        return np.allclose(a, b, atol=0.01)
    return bool((_cosines(a, b) >= 0.9999).all())


def test_run_when_given_texts_of_many_lengths_then_rows_have_the_promised_form(backend: Backend, model: ModelCard):
    output = backend.run(pad(TEXTS, model.outputs))
    rows = _rows(output)
    assert np.isfinite(rows).all()
    assert rows.dtype == np.float32
    if output.dense is not None:
        assert rows.shape == (len(TEXTS), HIDDEN)
        assert np.allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-5)
    if output.sparse is not None:
        for vector in output.sparse:
            assert len(vector.indices) == len(vector.values) > 0
            assert (np.diff(vector.indices.astype(np.int64)) > 0).all()
            assert (vector.values > 0).all()


def test_run_when_a_text_is_alone_or_in_a_batch_then_its_row_is_the_same(backend: Backend, model: ModelCard):
    together = _rows(backend.run(pad(TEXTS, model.outputs)))
    alone = np.concatenate([_rows(backend.run(pad([text], model.outputs))) for text in TEXTS])
    assert _close(together, alone, model)


def test_run_when_the_batch_is_reversed_then_so_are_the_rows(backend: Backend, model: ModelCard):
    forward = _rows(backend.run(pad(TEXTS, model.outputs)))
    backward = _rows(backend.run(pad(TEXTS[::-1], model.outputs)))
    assert _close(forward, backward[::-1], model)
    if model.kind is not ModelKind.RERANKER:
        assert _cosines(forward, backward).min() < 0.9999  # the texts do differ


@needs_torch
def test_openvino_when_run_in_f32_then_agrees_with_transformers(model: ModelCard, tmp_path: Path):
    write_tiny_model(tmp_path, model)
    typed = [Encoded(ids=t.ids, type_ids=(np.arange(t.token_count) > 4).astype(np.int32)) for t in TEXTS]
    ours = _rows(_openvino(tmp_path, model).run(pad(typed, model.outputs)))
    theirs = _rows(_torch(tmp_path, model).run(pad(typed, model.outputs)))
    assert np.allclose(ours, theirs, atol=2e-5)


@pytest.mark.parametrize("load", [_openvino, pytest.param(_torch, marks=needs_torch)])
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
