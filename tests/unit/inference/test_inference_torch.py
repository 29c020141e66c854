"""Recorded passes for small batches: as on a GPU, but that a replay runs the encoder again over the recorded inputs."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from services.inference.backends.packing import Packed, Run
from services.inference.checkpoint import EncoderConfig, Weights
from services.inference.types import Output
from services.inference.worker import pad
from tests.helpers.inference import card, of_length, write_tiny_model

torch = pytest.importorskip("torch", reason="the torch extra is not installed")

from services.inference.backends.torch_encoder import PackedEncoder, Tensors, Texts  # noqa: E402
from services.inference.backends.torch_graphs import SIZES, Encode, Replay, SmallBatches, proven  # noqa: E402
from services.inference.backends.torch_transfer import Uploader  # noqa: E402

CPU = torch.device("cpu")


class Recorder:
    """Remembers the sizes it recorded; `scale` spoils what is replayed."""

    def __init__(self, scale: float = 1.0) -> None:
        self.sizes: list[int] = []
        self._scale = scale

    def __call__(self, encode: Encode, inputs: Texts) -> Replay:
        self.sizes.append(len(inputs.ids))

        def replay() -> torch.Tensor:
            widths, starts = np.diff(inputs.bounds.numpy()).tolist(), inputs.bounds.tolist()
            runs = [Run(starts[i], i, 1, width) for i, width in enumerate(widths) if width]
            return encode(replace(inputs, runs=runs)) * self._scale

        return replay


def _encoder(folder: Path, *, first_only: bool) -> PackedEncoder:
    write_tiny_model(folder, card())
    config = EncoderConfig.of_folder(folder, "tiny")
    return PackedEncoder(Tensors(Weights(folder), config, CPU, torch.float32), first_only=first_only)


def _example(folder: Path, seed: int = 0) -> Callable[..., Texts]:
    config = EncoderConfig.of_folder(folder, "tiny")

    def make(*lengths: int) -> Texts:
        batch = pad([of_length(n, seed) for n in lengths], frozenset({Output.DENSE}))
        return Uploader(CPU).texts(Packed.of(batch), config)

    return make


@pytest.mark.parametrize("first_only", [False, True])
@pytest.mark.parametrize("lengths", [(5,), (3, 3, 9), (40, 20, 4), (2,) * 16])
def test_small_batches_when_filled_up_to_a_recorded_size_then_the_texts_come_out_as_without(
    lengths: tuple[int, ...], first_only: bool, tmp_path: Path
):
    encoder, record = _encoder(tmp_path, first_only=first_only), Recorder()
    small = SmallBatches(encoder, record)
    for seed in range(2):
        texts = _example(tmp_path, seed)(*lengths)
        assert torch.allclose(small(texts), encoder(texts), atol=1e-5)
    assert record.sizes == [next(size for size in SIZES if size > sum(lengths))]


@pytest.mark.parametrize("lengths", [(2,) * 17, (60,) * 9])
def test_small_batches_when_the_batch_is_not_small_then_nothing_is_recorded(lengths: tuple[int, ...], tmp_path: Path):
    encoder, record = _encoder(tmp_path, first_only=False), Recorder()
    texts = _example(tmp_path)(*lengths)
    assert torch.equal(SmallBatches(encoder, record)(texts), encoder(texts))
    assert record.sizes == []


def _equal_texts(folder: Path) -> Callable[[int], Texts]:
    make = _example(folder)
    return lambda tokens: make(*(len(part) for part in np.array_split(np.zeros(tokens), 14)))


def test_proven_when_replays_give_the_same_then_every_size_is_recorded_at_once(tmp_path: Path):
    encoder, record = _encoder(tmp_path, first_only=False), Recorder()
    assert proven(encoder, record, _equal_texts(tmp_path)) is not None
    assert record.sizes == list(SIZES)


def test_proven_when_a_replay_gives_something_else_or_fails_then_there_is_none(tmp_path: Path):
    def fail(encode: Encode, inputs: Texts) -> Replay:
        raise RuntimeError("operation not permitted when stream is capturing")

    encoder = _encoder(tmp_path, first_only=False)
    assert proven(encoder, Recorder(scale=-1.0), _equal_texts(tmp_path)) is None
    assert proven(encoder, fail, _equal_texts(tmp_path)) is None
