# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""multilingual-e5-small in the "E5S1" file: four-bit blocks for matrices, f32 vectors, and the vocabulary.

Layout, little endian: magic, version; hidden, layers, heads, inner, rows, positions, types (i32); layer-norm epsilon
(f32); block size (i32); vocabulary: count, bos, eos, pad, unk (i32), bytes of text (u64), offsets (u32), scores (f32),
text; a table of character normalisations; a directory of tensors: name, kind (u8), count (u32), offset, bytes (u64).
A block of 32 values is an f16 scale and 16 bytes: the low half-bytes are the first 16 values, the high ones the rest,
each minus 8 times the scale.
"""

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from services.inference.converters.converted import Converted, FloatTensor, bert_config

_MAGIC = b"E5S1"
_BLOCK = np.dtype([("scale", "<f2"), ("halves", "u1", 16)])
_MATRICES = (
    ("q", "attention.self.query", False), ("k", "attention.self.key", False), ("v", "attention.self.value", False),
    ("ao", "attention.output.dense", False), ("fi", "intermediate.dense", False), ("fo", "output.dense", True),
)  # fmt: skip
_NORMS = (("aln", "attention.output.LayerNorm"), ("oln", "output.LayerNorm"))


class MalformedE5(ValueError):
    """The bytes are not an E5S1 file."""


class _Reader:
    def __init__(self, content: bytes) -> None:
        self.content = content
        self.at = 0

    def take(self, layout: str) -> tuple[int | float, ...]:
        values = struct.unpack_from("<" + layout, self.content, self.at)
        self.at += struct.calcsize("<" + layout)
        return values

    def integer(self, layout: str) -> int:
        return int(self.take(layout)[0])

    def bytes_(self, size: int) -> bytes:
        chunk = self.content[self.at : self.at + size]
        if len(chunk) != size:
            raise MalformedE5("the file ends early")
        self.at += size
        return chunk

    def array(self, dtype: str, count: int) -> npt.NDArray[np.generic]:
        return np.frombuffer(self.bytes_(np.dtype(dtype).itemsize * count), dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Vocabulary:
    pieces: tuple[str, ...]
    scores: tuple[float, ...]
    bos: int
    eos: int
    pad: int
    unk: int


def convert_e5_q4(content: bytes) -> Converted:
    """Raises `MalformedE5` where the bytes are not such a file."""
    try:
        return _convert(_Reader(content))
    except (struct.error, KeyError, UnicodeDecodeError, IndexError) as error:
        raise MalformedE5(f"not a readable E5S1 file: {error}") from error


def _convert(reader: _Reader) -> Converted:
    if reader.bytes_(4) != _MAGIC:
        raise MalformedE5("the file does not begin with E5S1")
    reader.take("I")
    hidden, layers, heads, inner, rows, positions, types = (int(v) for v in reader.take("7i"))
    epsilon = float(reader.take("f")[0])
    reader.take("i")
    vocabulary = _vocabulary(reader)
    reader.take("i")
    reader.bytes_(reader.integer("I"))
    directory: dict[str, tuple[int, int, int]] = {}
    for _ in range(reader.integer("i")):
        name = reader.bytes_(reader.integer("H")).decode("utf-8")
        _, count, offset, size = (int(v) for v in reader.take("BIQQ"))
        directory[name] = (count, offset, size)
    tensors = _tensors(_TensorFile(reader.content, directory), hidden, layers, inner)
    config = bert_config(
        layers=layers, heads=heads, hidden=hidden, inner=inner, vocabulary=rows, positions=positions, types=types,
        layer_norm_eps=float(f"{epsilon:.3g}"),
    )  # fmt: skip
    # The file keeps only the row of type 0, the only one the model is fed; the config promises more.
    kinds = tensors["embeddings.token_type_embeddings.weight"]
    tensors["embeddings.token_type_embeddings.weight"] = np.repeat(kinds[:1], types, axis=0)
    return Converted(tensors=tensors, config=config, tokenizer_json=_tokenizer(vocabulary).to_str().encode("utf-8"))


def _vocabulary(reader: _Reader) -> _Vocabulary:
    count = reader.integer("i")
    bos, eos, pad, unk = (int(v) for v in reader.take("4i"))
    text_bytes = reader.integer("Q")
    offsets = [int(v) for v in reader.array("<u4", count + 1)]
    scores = tuple(float(v) for v in reader.array("<f4", count))
    text = reader.bytes_(text_bytes)
    pieces = tuple(text[offsets[i] : offsets[i + 1]].decode("utf-8", "replace") for i in range(count))
    return _Vocabulary(pieces=pieces, scores=scores, bos=bos, eos=eos, pad=pad, unk=unk)


@dataclass(frozen=True, slots=True)
class _TensorFile:
    content: bytes
    directory: dict[str, tuple[int, int, int]]

    def floats(self, name: str) -> npt.NDArray[np.float32]:
        count, offset, _ = self.directory[name]
        return np.frombuffer(self.content, "<f4", count, offset)

    def matrix(self, name: str, columns: int) -> npt.NDArray[np.float32]:
        _, offset, size = self.directory[name]
        blocks = np.frombuffer(self.content, _BLOCK, size // _BLOCK.itemsize, offset)
        values = np.concatenate([blocks["halves"] & 15, blocks["halves"] >> 4], axis=1).astype(np.float32) - 8
        return (values * blocks["scale"].astype(np.float32)[:, None]).reshape(-1, columns)


def _tensors(file: _TensorFile, hidden: int, layers: int, inner: int) -> dict[str, FloatTensor]:
    out: dict[str, FloatTensor] = {
        "embeddings.word_embeddings.weight": file.matrix("emb.word", hidden),
        "embeddings.position_embeddings.weight": file.floats("emb.pos").reshape(-1, hidden),
        "embeddings.token_type_embeddings.weight": file.floats("emb.type").reshape(-1, hidden),
        "embeddings.LayerNorm.weight": file.floats("emb.ln.w"),
        "embeddings.LayerNorm.bias": file.floats("emb.ln.b"),
    }
    for layer in range(layers):
        at = f"encoder.layer.{layer}"
        for short, name, wide in _MATRICES:
            out[f"{at}.{name}.weight"] = file.matrix(f"l{layer}.{short}.w", inner if wide else hidden)
            out[f"{at}.{name}.bias"] = file.floats(f"l{layer}.{short}.b")
        for short, name in _NORMS:
            out[f"{at}.{name}.weight"] = file.floats(f"l{layer}.{short}.w")
            out[f"{at}.{name}.bias"] = file.floats(f"l{layer}.{short}.b")
    return out


def _tokenizer(vocabulary: _Vocabulary) -> Tokenizer:
    """The SentencePiece unigram tokenizer of XLM-R: NFKC, spaces as U+2581, <s> ... </s>."""
    pieces = vocabulary.pieces
    scored = list(zip(pieces, vocabulary.scores, strict=True))
    tokenizer = Tokenizer(models.Unigram(scored, unk_id=vocabulary.unk, byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(replacement="▁")
    begin, end = pieces[vocabulary.bos], pieces[vocabulary.eos]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}",
        pair=f"{begin} $A {end} {end} $B {end}",
        special_tokens=[(begin, vocabulary.bos), (end, vocabulary.eos)],
    )
    special = (vocabulary.bos, vocabulary.pad, vocabulary.eos, vocabulary.unk)
    tokenizer.add_special_tokens([AddedToken(pieces[i], special=True, normalized=False) for i in special])
    return tokenizer
