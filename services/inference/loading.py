"""From a folder of the store to a backend that is known to work."""

import time
from pathlib import Path
from typing import Literal, assert_never

import numpy as np

from services.inference.backend import Backend
from services.inference.backends.fake import FakeBackend
from services.inference.cards import ModelCard, ModelKind
from services.inference.checkpoint import EncoderConfig, read_config
from services.inference.errors import ExtraNotInstalled, ModelInvalid
from services.inference.settings import InferenceSettings
from services.inference.tokenizer import TextTokenizer
from services.inference.types import Encoded, ItemOutput, Truncation
from services.inference.worker import pad, split

#: Backends that heed `InferenceSettings.device`.
_ON_DEVICES = ("torch", "flag")
_PROBE = "The quick brown fox jumps over the lazy dog."
_PROBE_TOLERANCE = 1e-3


def load_backends(settings: InferenceSettings, card: ModelCard, folder: Path, *, cpu_streams: int = 1) -> list[Backend]:
    """One backend for each device of `settings.device`, as in `cuda:0,cuda:1`; a device named twice holds two.

    OpenVINO gives one for each of `cpu_streams`, over one model in memory. If one cannot be loaded, those before are
    closed.
    """
    if settings.backend == "openvino":
        from services.inference.backends.openvino import OpenVinoBackend

        return list(
            OpenVinoBackend.load_streams(
                folder, card, precision=_not_f16(settings), threads=settings.threads, streams=cpu_streams
            )
        )
    devices = settings.device.split(",") if settings.backend in _ON_DEVICES else [settings.device]
    loaded: list[Backend] = []
    try:
        for device in devices:
            loaded.append(load_backend(settings, card, folder, device=device.strip()))
    except BaseException:
        for backend in loaded:
            backend.close()
        raise
    return loaded


def load_backend(settings: InferenceSettings, card: ModelCard, folder: Path, *, device: str | None = None) -> Backend:
    """The backend of `settings` with the model loaded. Imports the heavy library of that backend and no other."""
    where = device or settings.device
    match settings.backend:
        case "openvino":
            from services.inference.backends.openvino import OpenVinoBackend

            return OpenVinoBackend.load(folder, card, precision=_not_f16(settings), threads=settings.threads)
        case "torch":
            try:
                from services.inference.backends.torch import TorchBackend
            except ImportError as error:
                raise _extra_missing("torch") from error
            return TorchBackend.load(folder, card, device=where, precision=settings.precision, threads=settings.threads)
        case "flag":
            try:
                from services.inference.backends.flag import FlagBackend
            except ImportError as error:
                raise _extra_missing("flag") from error
            return FlagBackend.load(folder, card, device=where, precision=_not_f16(settings))
        case "fake":
            return FakeBackend(card)
    assert_never(settings.backend)


def _not_f16(settings: InferenceSettings) -> Literal["auto", "bf16", "f32"]:
    if settings.precision == "f16":
        raise ValueError(f"precision f16 is for the torch backend on CUDA; {settings.backend} takes auto, bf16 or f32")
    return settings.precision


def _extra_missing(extra: str) -> ExtraNotInstalled:
    return ExtraNotInstalled(f"the {extra} backend needs the {extra} extra: pip install 'pergamon-server[{extra}]'")


def check_card(card: ModelCard, folder: Path, tokenizer: TextTokenizer) -> None:
    """Raise `ModelInvalid` where card, config and tokenizer contradict each other."""
    config = EncoderConfig.of(read_config(folder), card.name)
    promised = {ModelKind.DENSE: config.hidden, ModelKind.RERANKER: 1, ModelKind.SPARSE: config.vocabulary}[card.kind]
    problems: list[str] = []
    if card.dimensions != promised:
        problems.append(f"the card says {card.dimensions} dimensions, the config {promised}")
    if card.max_tokens > config.max_tokens:
        problems.append(f"the card says {card.max_tokens} tokens, the config {config.max_tokens}")
    if card.architecture != config.model_type:
        problems.append(f"the card says {card.architecture}, the config {config.model_type}")
    if tokenizer.vocabulary_size > config.vocabulary:
        problems.append(f"the tokenizer has {tokenizer.vocabulary_size} pieces, the model {config.vocabulary}")
    if problems:
        raise ModelInvalid(f"model {card.name!r}: {'; '.join(problems)}; pull it again")


def probe(backend: Backend, tokenizer: TextTokenizer) -> None:
    """Run one text. Raises `ModelInvalid` unless the answer is finite, not zero, and of the card's shape."""
    card = backend.card
    encoded = _probe_input(tokenizer, card.kind)
    try:
        output = backend.run(pad([encoded], card.outputs))
        outcome = split(output, 1)[0]
    except Exception as error:
        raise ModelInvalid(f"model {card.name!r} fails on a probe text ({type(error).__name__})") from error
    if isinstance(outcome, Exception):
        raise ModelInvalid(f"model {card.name!r} computes no finite value for a probe text; pull it again")
    if problem := _misfit(card, outcome, encoded.token_count):
        raise ModelInvalid(f"model {card.name!r} {problem}; pull it again")


def _misfit(card: ModelCard, outcome: ItemOutput, tokens: int) -> str:
    """What of the answer does not fit the card; empty if everything does."""
    values = outcome._asdict()
    for output in sorted(card.outputs):
        if values[output.lower()] is None:
            return f"gives no {output}, which its card promises"
    dense, multi = outcome.dense, outcome.multi_vector
    if dense is not None and dense.shape != (card.dimensions,):
        return f"gives {dense.shape[0]} values, its card says {card.dimensions}"
    if dense is not None and abs(float(np.linalg.norm(dense)) - 1.0) > _PROBE_TOLERANCE:
        return "gives a dense vector that is not of unit length"
    if multi is not None and (multi.shape[1] != card.multi_vector_dimensions or not 0 < multi.shape[0] <= tokens):
        return f"gives vectors {multi.shape} for {tokens} tokens, its card says {card.multi_vector_dimensions} values"
    if outcome.sparse is not None and not len(outcome.sparse.indices):
        return "gives no terms for a probe text"
    return ""


def warm_up(backend: Backend, tokenizer: TextTokenizer, budget_tokens: int) -> list[tuple[int, float]]:
    """Run passes of several sizes, twice each; the (padded tokens, seconds) of the second are returned.

    The first pass of a size pays for memory and kernels; a server should have paid before its first caller comes.
    """
    encoded = _probe_input(tokenizer, backend.card.kind)
    measured: list[tuple[int, float]] = []
    for share in (64, 8, 2):
        size = max(1, budget_tokens // share // encoded.token_count)
        batch = pad([encoded] * size, backend.card.outputs)
        backend.run(batch)
        started = time.perf_counter()
        backend.run(batch)
        measured.append((batch.padded_tokens, time.perf_counter() - started))
    return measured


def _probe_input(tokenizer: TextTokenizer, kind: ModelKind) -> Encoded:
    if kind is ModelKind.RERANKER:
        encoded = tokenizer.encode_pairs(_PROBE, [_PROBE], truncation=Truncation.RIGHT)[0]
    else:
        encoded = tokenizer.encode([_PROBE], truncation=Truncation.RIGHT)[0]
    if not isinstance(encoded, Encoded):
        raise ModelInvalid(f"the tokenizer fails on a probe text: {encoded}")
    return encoded
