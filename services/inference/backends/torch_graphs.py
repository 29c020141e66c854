# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingImports=false, reportPrivateImportUsage=false
"""Recorded passes for small batches, where a GPU would spend more time being told what to do than doing it.

A CUDA graph replays one recorded sequence of kernels over the same memory, so a batch is filled up to one of a few
sizes: the missing tokens become a text of their own behind the others, which nobody reads.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch

from services.inference.backends.torch_encoder import Tensor, Texts


class Encode(Protocol):
    """`first_only`: there is a row a text, else one a token."""

    first_only: bool

    def __call__(self, texts: Texts, /) -> Tensor: ...


#: Replays what was recorded over the inputs that it was recorded with.
Replay: TypeAlias = Callable[[], Tensor]
Record: TypeAlias = Callable[[Encode, Texts], Replay]

#: Tokens of a recorded pass, filler included; as many graphs are kept at the most.
SIZES = (32, 64, 128, 256, 512)
MAX_TEXTS = 16
_WARM_UPS = 3
#: Cosine of a replayed to a computed state; kernels may differ with the number of tokens, and so may the last bits.
_LIKENESS_MIN = 0.999


@dataclass(frozen=True, slots=True, eq=False)
class _Recorded:
    inputs: Texts
    replay: Replay


class SmallBatches:
    """Runs an encoder over batches of up to `SIZES[-1] - 1` tokens and `MAX_TEXTS` texts by replaying recordings.

    A size is recorded when it is first needed. What does not fit goes to the encoder as it is.
    """

    def __init__(self, encode: Encode, record: Record) -> None:
        self.first_only = encode.first_only
        self._encode = encode
        self._record = record
        self._kept: dict[int, _Recorded] = {}

    def __call__(self, texts: Texts) -> Tensor:
        tokens, count = len(texts.ids), len(texts.bounds) - 1
        size = next((size for size in SIZES if tokens < size), 0)
        if not size or count > MAX_TEXTS:
            return self._encode(texts)
        recorded = self._kept.get(size)
        if recorded is None:
            inputs = _filler(size, texts)
            _fill(inputs, texts)
            recorded = self._kept[size] = _Recorded(inputs, self._record(self._encode, inputs))
        _fill(recorded.inputs, texts)
        return recorded.replay()[: count if self._encode.first_only else tokens]

    def forget(self) -> None:
        """Drop all recordings and the memory that they hold."""
        self._kept.clear()


def proven(encode: Encode, record: Record, example: Callable[[int], Texts]) -> SmallBatches | None:
    """`SmallBatches` with every size recorded; None where that fails, or a replay gives other states than `encode`.

    `example` makes texts of so many tokens together.
    """
    small = SmallBatches(encode, record)
    try:
        for size in SIZES:
            texts = example(size - 1)
            small(texts)
            likeness = torch.cosine_similarity(small(texts).float(), encode(texts).float(), dim=-1)
            if not bool((likeness >= _LIKENESS_MIN).all()):
                return None
    except (RuntimeError, AssertionError):  # a driver or a kernel that cannot be recorded: slower, but it works
        return None
    return small


def record_on_cuda(encode: Encode, inputs: Texts) -> Replay:
    """Record `encode` on the current stream's device; what it returns is overwritten by each replay."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(_WARM_UPS):  # libraries choose kernels and reserve memory in their first calls
            encode(inputs)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    # Other models of this process go on meanwhile, in other threads.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        output = encode(inputs)

    def replay() -> Tensor:
        graph.replay()
        return output

    return replay


def _filler(size: int, like: Texts) -> Texts:
    """Room for `size` tokens in `MAX_TEXTS` texts and the one that is filler; `longest` covers any of them."""
    ids, positions, type_ids = (like.ids.new_zeros(size) for _ in range(3))
    bounds = like.bounds.new_zeros(MAX_TEXTS + 2)
    return Texts(ids=ids, positions=positions, type_ids=type_ids, bounds=bounds, runs=[], longest=size)


def _fill(inputs: Texts, texts: Texts) -> None:
    tokens, count = len(texts.ids), len(texts.bounds) - 1
    for whole, part in (
        (inputs.ids, texts.ids), (inputs.positions, texts.positions), (inputs.type_ids, texts.type_ids)
    ):  # fmt: skip
        whole[:tokens].copy_(part)
        whole[tokens:].zero_()
    inputs.bounds[: count + 1].copy_(texts.bounds)
    inputs.bounds[count + 1 : -1].fill_(tokens)  # texts of no tokens
    inputs.bounds[-1:].fill_(len(inputs.ids))
