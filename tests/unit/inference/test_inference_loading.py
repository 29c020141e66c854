"""A model that does not fit its card or computes nonsense is refused at load; and which backends are loaded."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from services.inference.backend import Backend
from services.inference.backends.fake import FakeBackend
from services.inference.cards import ModelCard, ModelKind
from services.inference.errors import ModelInvalid
from services.inference.loading import check_card, load_backends, probe
from services.inference.settings import InferenceSettings
from services.inference.tokenizer import TextTokenizer
from services.inference.types import BatchOutput, SparseVector, TokenBatch
from services.inference.worker import pad
from tests.helpers.inference import HIDDEN, card, m3_card, of_length, word_tokenizer, write_tiny_model

CARDS = [card(), card(ModelKind.RERANKER), card(ModelKind.SPARSE), m3_card()]
NO_TERMS = SparseVector(indices=np.zeros(0, np.uint32), values=np.zeros(0, np.float32))


class SpoiltBackend(FakeBackend):
    """A fake whose answers are changed on their way out."""

    def __init__(self, model: ModelCard, spoil: Callable[[BatchOutput], BatchOutput]) -> None:
        super().__init__(model)
        self._spoil = spoil

    def run(self, batch: TokenBatch) -> BatchOutput:
        return self._spoil(super().run(batch))


def _tokenizer() -> TextTokenizer:
    return TextTokenizer(word_tokenizer(), max_tokens=64)


def _nan(array: np.ndarray | None) -> np.ndarray | None:
    return None if array is None else np.full_like(array, np.nan)


def _all_nan(output: BatchOutput) -> BatchOutput:
    return BatchOutput(
        dense=_nan(output.dense),
        logits=_nan(output.logits),
        sparse=None if output.sparse is None else tuple(
            replace(vector, values=np.full_like(vector.values, np.nan)) for vector in output.sparse
        ),
        multi_vector=output.multi_vector,
    )  # fmt: skip


@pytest.mark.parametrize("model", CARDS, ids=lambda m: f"{m.kind}-{m.architecture}")
def test_probe_when_the_model_answers_as_its_card_says_then_passes(model: ModelCard):
    probe(FakeBackend(model), _tokenizer())


@pytest.mark.parametrize("model", CARDS, ids=lambda m: f"{m.kind}-{m.architecture}")
@pytest.mark.parametrize(
    ("spoil", "said"), [(_all_nan, "no finite value"), (lambda output: BatchOutput(), "fails on a probe text")]
)
def test_probe_when_the_answer_is_not_a_number_or_none_then_refused(
    model: ModelCard, spoil: Callable[[BatchOutput], BatchOutput], said: str
):
    with pytest.raises(ModelInvalid, match=said):
        probe(SpoiltBackend(model, spoil), _tokenizer())


@pytest.mark.parametrize(
    ("model", "spoil", "said"),
    [
        (card(), lambda o: replace(o, dense=o.dense[:, :-1]), "31 values, its card says 32"),
        (card(), lambda o: replace(o, dense=o.dense * 2), "unit length"),
        (card(), lambda o: replace(o, dense=np.zeros_like(o.dense)), "no finite"),
        (card(ModelKind.SPARSE), lambda o: replace(o, sparse=(NO_TERMS,)), "no terms"),
        (m3_card(), lambda o: replace(o, sparse=(NO_TERMS,)), "no terms"),
        (m3_card(), lambda o: replace(o, sparse=None), "no SPARSE"),
        (m3_card(), lambda o: replace(o, multi_vector=None), "no MULTI_VECTOR"),
        (m3_card(), lambda o: replace(o, multi_vector=tuple(m[:, :-1] for m in o.multi_vector)), "values"),
        (m3_card(), lambda o: replace(o, multi_vector=tuple(m * np.nan for m in o.multi_vector)), "no finite"),
    ],
)
def test_probe_when_an_output_does_not_fit_the_card_then_refused(
    model: ModelCard, spoil: Callable[[BatchOutput], BatchOutput], said: str
):
    with pytest.raises(ModelInvalid, match=said):
        probe(SpoiltBackend(model, spoil), _tokenizer())


@pytest.mark.parametrize("model", CARDS, ids=lambda m: f"{m.kind}-{m.architecture}")
def test_check_card_when_the_config_agrees_then_passes(model: ModelCard, tmp_path: Path):
    check_card(write_tiny_model(tmp_path, model), tmp_path, _tokenizer())


@pytest.mark.parametrize("model", CARDS, ids=lambda m: f"{m.kind}-{m.architecture}")
@pytest.mark.parametrize(
    ("change", "said"),
    [({"dimensions": 999}, "999 dimensions"), ({"max_tokens": 999}, "999 tokens"), ({"architecture": "gpt"}, "gpt")],
)
def test_check_card_when_card_and_config_contradict_each_other_then_refused(
    model: ModelCard, change: dict[str, object], said: str, tmp_path: Path
):
    write_tiny_model(tmp_path, model)
    with pytest.raises(ModelInvalid, match=said):
        check_card(replace(model, **change), tmp_path, _tokenizer())


def test_load_backends_when_several_devices_are_named_then_each_has_one(tmp_path: Path):
    pytest.importorskip("torch", reason="the torch extra is not installed")
    model = write_tiny_model(tmp_path, card())
    settings = InferenceSettings(backend="torch", device="cpu, cpu", precision="f32", threads=1)
    assert [backend.device for backend in load_backends(settings, model, tmp_path)] == ["cpu", "cpu"]


def test_load_backends_when_there_are_two_streams_then_both_run_at_once_and_agree(tmp_path: Path):
    model = write_tiny_model(tmp_path, card())
    settings = InferenceSettings(threads=2, precision="f32")
    backends = load_backends(settings, model, tmp_path, cpu_streams=2)
    batches = [pad([of_length(n, seed) for n in (5, 9, 30)], model.outputs) for seed in range(8)]

    def run(backend: Backend) -> list[np.ndarray]:
        rows = [backend.run(batch).dense for batch in batches]
        backend.release_memory()
        return [row for row in rows if row is not None]

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(run, backends)
    assert all(np.allclose(one, other, atol=1e-5) for one, other in zip(first, second, strict=True))
    assert len(load_backends(settings, model, tmp_path, cpu_streams=9)) == 2  # as many as there are threads


def test_load_backends_when_openvino_runs_then_there_is_one_whatever_the_device_says(tmp_path: Path):
    model = write_tiny_model(tmp_path, card())
    (backend,) = load_backends(InferenceSettings(device="cuda:0,cuda:1", threads=1), model, tmp_path)
    assert (backend.device, backend.card.dimensions) == ("cpu", HIDDEN)
