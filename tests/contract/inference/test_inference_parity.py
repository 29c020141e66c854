"""Our backends give what the libraries of the models' authors give on the same weights: tiny models, made here."""

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from services.inference.backend import Backend
from services.inference.backends.openvino import OpenVinoBackend
from services.inference.cards import ModelCard, ModelKind, Pooling
from services.inference.pull import pull
from services.inference.store import ModelStore
from services.inference.types import BatchOutput, Encoded
from services.inference.worker import pad
from tests.helpers.inference import WORDS, card, m3_card, word_tokenizer, write_published_m3, write_tiny_model

torch = pytest.importorskip("torch", reason="the torch extra is not installed")
needs_flag = pytest.mark.skipif(
    find_spec("FlagEmbedding") is None, reason="the flag extra is not installed (490 MB, 6 s to import: not in dev)"
)
needs_sentence_transformers = pytest.mark.skipif(
    find_spec("sentence_transformers") is None,
    reason="sentence-transformers is not installed (it comes with the flag extra, not in dev)",
)

Load = Callable[[Path, ModelCard], Backend]
TEXTS = [" ".join(WORDS[(7 * i + j * j) % len(WORDS)] for j in range(n)) for i, n in enumerate((1, 38, 7, 7, 60, 15))]
PAIRS = [("w1 w2 w3", text) for text in TEXTS[:4]]


def _torch(**options: Any) -> Load:
    from services.inference.backends.torch import TorchBackend

    return lambda folder, model: TorchBackend.load(folder, model, device="cpu", threads=1, **options)


#: How far from one a cosine may be, by the precision.
F32, BF16 = 1e-4, 1e-3
#: Hidden states with 8 bits of mantissa, in a model whose random weights are larger than trained ones.
LOGIT_BF16 = 0.1
OURS = [
    pytest.param(lambda f, m: OpenVinoBackend.load(f, m, precision="f32", threads=1), F32, id="openvino-f32"),
    pytest.param(lambda f, m: OpenVinoBackend.load(f, m, precision="auto", threads=1), BF16, id="openvino-auto"),
    pytest.param(_torch(precision="f32"), F32, id="torch-f32"),
    pytest.param(_torch(precision="bf16"), BF16, id="torch-bf16"),
    pytest.param(_torch(precision="f32", packed=False), F32, id="torch-padded-f32"),
]
ENCODERS = [
    card(architecture=architecture, pooling=pooling)
    for architecture in ("bert", "xlm-roberta")
    for pooling in (Pooling.MEAN, Pooling.CLS)
]


def _encoded(*texts: str | tuple[str, str]) -> list[Encoded]:
    tokenizer = word_tokenizer()
    found = [tokenizer.encode(*text) if isinstance(text, tuple) else tokenizer.encode(text) for text in texts]
    return [Encoded(ids=np.array(e.ids, np.int32), type_ids=np.array(e.type_ids, np.int32)) for e in found]


def _run(load: Load, folder: Path, model: ModelCard, texts: Sequence[str | tuple[str, str]]) -> BatchOutput:
    return load(folder, model).run(pad(_encoded(*texts), model.outputs))


def _cosine(ours: np.ndarray, theirs: np.ndarray) -> float:
    products = (ours * theirs).sum(axis=1) / np.linalg.norm(ours, axis=1) / np.linalg.norm(theirs, axis=1)
    return float(products.min())


@pytest.mark.parametrize("model", ENCODERS, ids=lambda m: f"{m.architecture}-{m.pooling}")
@pytest.mark.parametrize(("load", "tolerance"), OURS)
def test_dense_when_compared_with_transformers_then_the_vectors_agree(
    load: Load, tolerance: float, model: ModelCard, tmp_path: Path
):
    from transformers import AutoModel

    write_tiny_model(tmp_path, model)
    ours = _run(load, tmp_path, model, TEXTS).dense
    reference = AutoModel.from_pretrained(str(tmp_path), dtype=torch.float32).eval()
    with torch.inference_mode():
        hidden = [
            reference(input_ids=torch.tensor(e.ids[None].astype(np.int64))).last_hidden_state[0].numpy()
            for e in _encoded(*TEXTS)
        ]
    theirs = np.stack([h[0] if model.pooling is Pooling.CLS else h.mean(axis=0) for h in hidden])
    assert ours is not None
    assert _cosine(ours, theirs) >= 1 - tolerance


@needs_sentence_transformers
@pytest.mark.parametrize("model", ENCODERS, ids=lambda m: f"{m.architecture}-{m.pooling}")
@pytest.mark.parametrize(("load", "tolerance"), OURS)
def test_dense_when_compared_with_sentence_transformers_then_the_vectors_agree(
    load: Load, tolerance: float, model: ModelCard, tmp_path: Path
):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling as TheirPooling

    write_tiny_model(tmp_path, model, named_specials=True)
    encoder = Transformer(str(tmp_path), max_seq_length=64)
    pooling = TheirPooling(encoder.get_embedding_dimension(), pooling_mode=model.pooling.lower())
    theirs = SentenceTransformer(modules=[encoder, pooling, Normalize()], device="cpu").encode(TEXTS)
    ours = _run(load, tmp_path, model, TEXTS).dense
    assert ours is not None
    assert _cosine(ours, theirs) >= 1 - tolerance


@pytest.mark.parametrize("architecture", ["bert", "xlm-roberta"])
@pytest.mark.parametrize(("load", "tolerance"), OURS)
def test_logits_when_compared_with_transformers_then_they_agree(
    load: Load, tolerance: float, architecture: str, tmp_path: Path
):
    from transformers import AutoModelForSequenceClassification

    model = write_tiny_model(tmp_path, card(ModelKind.RERANKER, architecture=architecture))
    reference = AutoModelForSequenceClassification.from_pretrained(str(tmp_path), dtype=torch.float32).eval()
    theirs: list[float] = []
    with torch.inference_mode():
        for e in _encoded(*PAIRS):
            types = (
                {} if architecture != "bert" else {"token_type_ids": torch.tensor(e.type_ids[None].astype(np.int64))}
            )
            theirs.append(reference(input_ids=torch.tensor(e.ids[None].astype(np.int64)), **types).logits.item())
    ours = _run(load, tmp_path, model, PAIRS).logits
    assert np.allclose(ours, theirs, atol=LOGIT_BF16 if tolerance == BF16 else 1e-4)


@needs_flag
@pytest.mark.parametrize(("load", "tolerance"), OURS)
def test_logits_when_compared_with_flagembedding_then_they_agree(load: Load, tolerance: float, tmp_path: Path):
    from FlagEmbedding import FlagReranker

    model = write_tiny_model(tmp_path, card(ModelKind.RERANKER, architecture="xlm-roberta"), named_specials=True)
    theirs = FlagReranker(str(tmp_path), use_fp16=False, devices=["cpu"]).compute_score(PAIRS, max_length=64)
    ours = _run(load, tmp_path, model, PAIRS).logits
    assert np.allclose(ours, theirs, atol=LOGIT_BF16 if tolerance == BF16 else 1e-4)


@needs_flag
@pytest.mark.parametrize(("load", "tolerance"), OURS)
def test_all_three_outputs_when_compared_with_flagembedding_then_they_agree(
    load: Load, tolerance: float, tmp_path: Path
):
    from FlagEmbedding import BGEM3FlagModel

    theirs = BGEM3FlagModel(
        str(write_published_m3(tmp_path / "published")), use_fp16=False, devices=["cpu"]
    ).encode(TEXTS, max_length=64, return_dense=True, return_sparse=True, return_colbert_vecs=True)  # fmt: skip
    model = m3_card(multi_vector_dimensions=32)
    write_tiny_model(tmp_path / "stored", model)
    ours = _run(load, tmp_path / "stored", model, TEXTS)
    assert ours.dense is not None
    assert ours.sparse is not None
    assert ours.multi_vector is not None
    assert _cosine(ours.dense, theirs["dense_vecs"]) >= 1 - tolerance
    scale = max(float(vector.values.max(initial=0.0)) for vector in ours.sparse)
    for vector, expected in zip(ours.sparse, theirs["lexical_weights"], strict=True):
        found = dict(zip(vector.indices.tolist(), vector.values.tolist(), strict=True))
        wanted = {int(token): float(weight) for token, weight in expected.items()}
        if tolerance == F32:
            assert found.keys() == wanted.keys()
        for token in found.keys() | wanted.keys():
            assert abs(found.get(token, 0.0) - wanted.get(token, 0.0)) <= (1e-3 if tolerance == F32 else 0.02 * scale)
    for matrix, expected in zip(ours.multi_vector, theirs["colbert_vecs"], strict=True):
        assert matrix.shape == expected.shape
        assert _cosine(matrix, expected) >= 1 - tolerance


OTHERS: dict[str, dict[str, Any]] = {
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "pad_token_id": 0},
    "modernbert": {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "pad_token_id": 0,
        "cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3,
    },
    "mpnet": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48},
    "electra": {"hidden_size": 32, "embedding_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4},
}  # fmt: skip


@pytest.mark.parametrize("architecture", OTHERS)
def test_dense_when_the_architecture_is_another_then_transformers_runs_it_and_padding_changes_nothing(
    architecture: str, tmp_path: Path
):
    from transformers import AutoConfig, AutoModel

    torch.manual_seed(3)
    shape = OTHERS[architecture] | {"vocab_size": len(WORDS) + 4, "max_position_embeddings": 80}
    reference = AutoModel.from_config(AutoConfig.for_model(architecture, **shape)).eval()
    reference.save_pretrained(str(tmp_path / "published"))
    (tmp_path / "published" / "tokenizer.json").write_text(word_tokenizer().to_str())
    store = ModelStore(tmp_path / "models")
    model = pull(store, f"file:{tmp_path / 'published'}", kind=ModelKind.DENSE)
    assert (model.architecture, model.dimensions) == (architecture, 32)
    ours = _run(_torch(precision="f32"), store.folder(model), model, TEXTS).dense
    assert ours is not None
    with torch.inference_mode():
        theirs = [
            reference(input_ids=torch.tensor(e.ids[None].astype(np.int64))).last_hidden_state[0].mean(dim=0).numpy()
            for e in _encoded(*TEXTS)
        ]
    assert _cosine(ours, np.stack(theirs)) >= 1 - F32
