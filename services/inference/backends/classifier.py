"""The classification head of a cross-encoder, in f32 on the CPU: a few thousand operations a pair."""

from dataclasses import dataclass

import numpy as np

from services.inference.checkpoint import Weights
from services.inference.types import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class ClassifierHead:
    """`logit = out . tanh(dense . h) + bias`, h the last hidden state of the first token.

    Kept out of the reduced precision of the encoder: in bf16 logits near 11 come in steps of 0.06, and passages that
    differ would tie.
    """

    dense_weight: FloatArray
    dense_bias: FloatArray
    out_weight: FloatArray
    out_bias: FloatArray

    @classmethod
    def of(cls, weights: Weights, hidden: int) -> "ClassifierHead":
        """BERT's pooler and classifier, or XLM-RoBERTa's classifier. Raises `ModelInvalid` where neither is there, or
        one is all zeros."""
        roberta = "classifier.dense.weight" in weights or "classifier.out_proj.weight" in weights
        dense, out = ("classifier.dense", "classifier.out_proj") if roberta else ("pooler.dense", "classifier")
        return cls(
            weights.head(f"{dense}.weight", (hidden, hidden)).astype(np.float32),
            weights.get(f"{dense}.bias", (hidden,)).astype(np.float32),
            weights.head(f"{out}.weight", (1, hidden)).astype(np.float32),
            weights.get(f"{out}.bias", (1,)).astype(np.float32),
        )

    def logits(self, first: FloatArray) -> FloatArray:
        """float32 [n] from the first tokens' states, float32 [n, hidden]."""
        pooled = np.tanh(first @ self.dense_weight.T + self.dense_bias)
        return (pooled @ self.out_weight.T + self.out_bias)[:, 0]
