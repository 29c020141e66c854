"""Models appear whole or not at all; damaged ones are seen; cards say what they must."""

import json
import threading
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from services.common.errors import NotFound
from services.inference.cards import ModelCard, ModelKind, Pooling, load_card, save_card
from services.inference.errors import ModelInvalid, ModelNotAvailable
from services.inference.pull import pull
from services.inference.sources import STARTER_MODELS
from services.inference.store import ModelStore
from services.inference.types import Output
from tests.helpers.inference import HIDDEN, card, write_published_m3, write_tiny_model

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="the torch extra is not installed")


def _build(folder: Path) -> ModelCard:
    return write_tiny_model(folder, card(aliases=("little",)))


def test_add_when_built_then_found_by_name_and_alias_with_its_hashes(tmp_path: Path):
    store = ModelStore(tmp_path / "models")
    made = store.add("tiny", _build)
    assert len(made.sha256) == len(made.tokenizer_sha256) == 64
    assert store.verified("LITTLE") == (made, tmp_path / "models" / "tiny")
    assert store.installed() == (made,)


def test_add_when_the_build_fails_halfway_then_nothing_is_left(tmp_path: Path):
    def fail(folder: Path) -> ModelCard:
        _build(folder)
        raise OSError("disk full")

    store = ModelStore(tmp_path)
    with pytest.raises(OSError, match="disk full"):
        store.add("tiny", fail)
    assert store.installed() == ()
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def test_add_when_a_file_is_missing_then_model_invalid(tmp_path: Path):
    def forget(folder: Path) -> ModelCard:
        made = _build(folder)
        (folder / "tokenizer.json").unlink()
        return made

    with pytest.raises(ModelInvalid, match="tokenizer"):
        ModelStore(tmp_path).add("tiny", forget)


def test_add_when_two_pull_at_once_then_it_is_built_once(tmp_path: Path):
    store, builds, inside = ModelStore(tmp_path), [], threading.Event()

    def build(folder: Path) -> ModelCard:
        builds.append(folder)
        inside.wait(0.1)  # gives the other time to run into the lock
        return _build(folder)

    threads = [threading.Thread(target=store.add, args=("tiny", build)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(builds) == 1
    assert store.verified("tiny")


def test_add_when_a_killed_pull_left_its_folder_then_it_is_swept(tmp_path: Path):
    (tmp_path / ".partial-tiny-abc").mkdir()
    ModelStore(tmp_path).add("tiny", _build)
    assert not list(tmp_path.glob(".partial-*"))


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json"])
def test_verified_when_a_file_was_changed_then_model_invalid_and_a_new_pull_repairs_it(tmp_path: Path, file: str):
    store = ModelStore(tmp_path)
    store.add("tiny", _build)
    with (tmp_path / "tiny" / file).open("ab") as damaged:
        damaged.write(b" ")
    with pytest.raises(ModelInvalid, match=file):
        store.verified("tiny")
    store.add("tiny", _build)
    assert store.verified("tiny")


def test_card_when_a_starter_model_is_absent_then_says_how_to_get_it(tmp_path: Path):
    with pytest.raises(ModelNotAvailable, match="pergamon models pull all-minilm-l6-v2"):
        ModelStore(tmp_path).card("all-MiniLM-L6-v2")


def test_card_when_the_name_is_unknown_then_not_found_with_the_names_there_are(tmp_path: Path):
    with pytest.raises(NotFound) as caught:
        ModelStore(tmp_path).card("nope")
    assert "multilingual-e5-small" in caught.value.metadata["allowed"]


def test_pull_when_given_a_folder_then_adopts_it_and_reads_its_card_off_the_configs(tmp_path: Path):
    write_tiny_model(tmp_path / "My Model", card())
    (tmp_path / "My Model" / "1_Pooling").mkdir()
    (tmp_path / "My Model" / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    (tmp_path / "My Model" / "sentence_bert_config.json").write_text('{"max_seq_length": 48}')
    (tmp_path / "My Model" / "config_sentence_transformers.json").write_text('{"prompts": {"query": "q: "}}')
    store = ModelStore(tmp_path / "models")
    made = pull(store, f"file:{tmp_path / 'My Model'}")
    assert (made.name, made.kind, made.pooling, made.max_tokens) == ("my-model", ModelKind.DENSE, Pooling.CLS, 48)
    assert made.query_prefix == "q: "
    assert store.verified("my-model")


@needs_torch
def test_pull_when_the_folder_is_a_published_bge_m3_then_its_heads_come_along(tmp_path: Path):
    origin = write_published_m3(tmp_path / "BGE-M3")
    (origin / "config_sentence_transformers.json").write_text('{"matryoshka_dimensions": [16, 24, 32, 999]}')
    store = ModelStore(tmp_path / "models")
    made = pull(store, f"file:{origin}")
    assert (made.name, made.kind, made.pooling, made.dimensions) == ("bge-m3", ModelKind.DENSE, Pooling.CLS, HIDDEN)
    assert made.extra_outputs == (Output.SPARSE, Output.MULTI_VECTOR)
    assert made.multi_vector_dimensions == HIDDEN
    assert made.matryoshka_dimensions == (24, 16)
    stored = load_file(str(store.folder(made) / "model.safetensors"))
    assert stored["sparse_linear.weight"].shape == (1, HIDDEN)
    assert stored["colbert_linear.weight"].shape == (HIDDEN, HIDDEN)


def test_pull_when_a_head_is_safetensors_then_it_is_taken_without_torch(tmp_path: Path):
    write_tiny_model(tmp_path / "m", card())
    head = {"weight": np.ones((1, HIDDEN), np.float32), "bias": np.zeros(1, np.float32)}
    save_file(head, str(tmp_path / "m" / "sparse_linear.safetensors"))
    assert pull(ModelStore(tmp_path / "models"), f"file:{tmp_path / 'm'}").extra_outputs == (Output.SPARSE,)


def test_pull_when_the_weights_are_damaged_then_model_invalid(tmp_path: Path):
    write_tiny_model(tmp_path / "m", card())
    (tmp_path / "m" / "model.safetensors").write_bytes(b"nothing of use")
    with pytest.raises(ModelInvalid, match=r"model\.safetensors"):
        pull(ModelStore(tmp_path / "models"), f"file:{tmp_path / 'm'}")


@needs_torch
@pytest.mark.parametrize("damage", ["not a pickle", "no bias", "zeros", "code"])
def test_pull_when_a_head_is_damaged_then_refused_by_name_and_nothing_is_stored(tmp_path: Path, damage: str):
    import torch

    origin = write_published_m3(tmp_path / "m")
    contents: dict[str, object] = {
        "no bias": {"weight": torch.ones(1, HIDDEN)},
        "zeros": {"weight": torch.zeros(1, HIDDEN), "bias": torch.zeros(1)},
        "code": {"weight": Path("/tmp"), "bias": torch.zeros(1)},  # an object that only running code could make
    }
    if damage == "not a pickle":
        (origin / "sparse_linear.pt").write_bytes(b"nothing of use")
    else:
        torch.save(contents[damage], origin / "sparse_linear.pt")
    store = ModelStore(tmp_path / "models")
    with pytest.raises(ModelInvalid, match="sparse_linear"):
        pull(store, f"file:{origin}")
    assert store.installed() == ()


@pytest.mark.parametrize("kind", ModelKind)
def test_pull_when_the_config_names_a_head_then_the_kind_follows(tmp_path: Path, kind: ModelKind):
    write_tiny_model(tmp_path / "m", card(kind))
    assert pull(ModelStore(tmp_path / "models"), f"file:{tmp_path / 'm'}").kind is kind


def test_pull_when_the_name_is_unknown_then_not_found(tmp_path: Path):
    with pytest.raises(NotFound):
        pull(ModelStore(tmp_path), "no-such-model")


def test_card_when_saved_and_loaded_then_equal(tmp_path: Path):
    for starter in STARTER_MODELS:
        save_card(starter.card, tmp_path / "card.json")
        assert load_card(tmp_path / "card.json") == starter.card


@pytest.mark.parametrize(
    "change",
    [{"dimensions": 0}, {"dimensions": "many"}, {"kind": "OTHER"}, {"pooling": "NONE"}, {"name": "../x"},
     {"surprise": 1}, {"sha256": "zz"}, {"medium_logit": 9.0}],
)  # fmt: skip
def test_load_card_when_a_field_is_wrong_then_model_invalid(tmp_path: Path, change: dict[str, object]):
    path = tmp_path / "card.json"
    save_card(card(), path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ModelInvalid):
        load_card(path)


def test_speaks_when_the_card_lists_languages_then_claims_those_alone():
    english = card(languages=("en",))
    assert (english.speaks("en"), english.speaks("zh"), english.speaks("")) == (True, False, True)
    assert card().speaks("zh")
