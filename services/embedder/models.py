"""What the embedder tells of its models, BM25 among them, which has no weights."""

from dataclasses import dataclass

from services.embedder.bm25 import TOKENIZER_VERSION
from services.inference.cards import ModelCard, ModelKind

BM25 = "bm25"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """A card and what only a server knows. `passage_overhead_tokens`: markers and prefix of a passage."""

    card: ModelCard
    loaded: bool
    max_tokens: int
    passage_overhead_tokens: int = 0
    tokenizer_version: str = ""


def bm25_info() -> ModelInfo:
    card = ModelCard(
        name=BM25,
        kind=ModelKind.SPARSE,
        architecture="bm25",
        dimensions=2**32,
        licence="Apache-2.0",
        source="built in",
        notes="Term statistics; the engine multiplies with the inverse document frequency.",
    )
    return ModelInfo(card=card, loaded=True, max_tokens=0, tokenizer_version=TOKENIZER_VERSION)
