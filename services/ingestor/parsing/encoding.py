"""Bytes to text: byte-order mark, UTF-8, UTF-16/32 without a mark, what was declared, then the likeliest code page."""

import codecs
import re
from dataclasses import dataclass

from charset_normalizer import from_bytes

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
#: Encodings that files are really in, the commoner first: of two that fit equally the earlier one is taken.
_CANDIDATES = (
    "cp1252", "gb18030", "cp932", "euc_jp", "big5", "cp949", "cp1251", "koi8_r", "cp866", "cp1250", "iso8859_2",
    "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp874", "iso8859_5", "mac_cyrillic", "cp850", "cp437",
    "mac_roman", "johab", "cp500", "cp037", "cp1258", "cp862", "cp864",
)  # fmt: skip
_ALIASES = {"iso-8859-1": "cp1252", "latin-1": "cp1252", "latin1": "cp1252", "us-ascii": "cp1252", "ascii": "cp1252",
            "gb2312": "gb18030", "gbk": "gb18030", "x-gbk": "gb18030", "shift_jis": "cp932", "shift-jis": "cp932",
            "x-sjis": "cp932", "sjis": "cp932", "ks_c_5601-1987": "cp949", "euc-kr": "cp949", "iso-8859-9": "cp1254",
            "iso-8859-8": "cp1255", "big5": "big5hkscs", "iso-8859-8-i": "cp1255"}  # fmt: skip
_SAMPLE_BYTES = 256 << 10
_FEW_BYTES = 64
_BINARY = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f]")
_ISO_2022 = (
    (b"\x1b$B", "iso2022_jp"),
    (b"\x1b$@", "iso2022_jp"),
    (b"\x1b(J", "iso2022_jp"),
    (b"\x1b$)C", "iso2022_kr"),
)
_HZ = re.compile(rb"~\{[\x21-\x7e]{2,}?~\}")
_HAN_COMMON = frozenset(
    "的一是不了人我在有他这这為为之大来來以个個中上们們到说說国國和地也子时時道出而要于於就下得可你年生自会會那后後能对對着著事其里裡所"
    "去行过過家十用发發天如然作方成者多日都三小军軍二无無同么麼经經法当當起与與好看学學进進种種将將还還分此心前面又定见見只主没沒公从從"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """`guessed`: nothing in the bytes proves the encoding. The text has no byte-order mark."""

    text: str
    encoding: str
    guessed: bool = False


def decode(data: bytes, declared: str = "") -> Decoded:  # noqa: PLR0911  one step after the other
    """The text of `data`. Bytes that no encoding explains become U+FFFD; see `looks_binary` for what is no text."""
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return Decoded(text=_lenient(data[len(mark) :], encoding), encoding=encoding)
    wide = _wide(data)
    if wide:
        return Decoded(text=_lenient(data, wide), encoding=wide)
    escaped = _escaped(data)
    if escaped:
        return Decoded(text=_lenient(data, escaped), encoding=escaped)
    try:
        return Decoded(text=data.decode("utf-8"), encoding="utf-8")
    except UnicodeDecodeError as error:
        if error.start > len(data) - 4 or _nearly_utf8(data):
            return Decoded(text=_lenient(data, "utf-8"), encoding="utf-8")
    named = _declared(data, declared)
    if named:
        return Decoded(text=_lenient(data, named), encoding=named)
    found = _likeliest(data)
    return Decoded(text=_lenient(data, found), encoding=found, guessed=True)


def looks_binary(data: bytes) -> bool:
    """Whether `data` (a beginning of a file) cannot be text in any encoding that `decode` knows."""
    sample = data[: 64 << 10]
    if not sample or any(sample.startswith(mark) for mark, _ in _BOMS) or _wide(sample) or _escaped(sample):
        return False
    controls = len(_BINARY.findall(sample))
    return b"\x00" in sample or (controls > max(2, len(sample) // 100) and not _ebcdic(sample))


def _lenient(data: bytes, encoding: str) -> str:
    return data.decode(encoding, errors="replace")


def _nearly_utf8(data: bytes) -> bool:
    """A long UTF-8 text with a few broken bytes stays UTF-8: many good sequences against few bad ones."""
    text = data[:_SAMPLE_BYTES].decode("utf-8", errors="replace")
    bad = text.count("\ufffd")
    good = sum(1 for char in text if char > "\x7f") - bad
    return good > 20 * bad


def _wide(data: bytes) -> str:
    """UTF-16 or UTF-32 without a mark: zero bytes (or the high bytes of one block) in one column only."""
    sample = data[: 4096 - len(data) % 4] if len(data) > 4096 else data[: len(data) // 2 * 2]
    zeros = sample.count(0)
    if len(sample) < 4 or not zeros:
        return ""
    columns = [sample[i::4].count(0) * 4 / len(sample) for i in range(4)]
    if len(data) % 4 == 0 and min(columns[0], columns[1]) > 0.9 and columns[3] < 0.1:
        return "utf-32-be"
    if len(data) % 4 == 0 and min(columns[2], columns[3]) > 0.9 and columns[0] < 0.1:
        return "utf-32-le"
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    order = "utf-16-be" if even > odd else "utf-16-le"
    if min(even, odd) * 10 > max(even, odd):
        return ""
    try:
        text = codecs.getincrementaldecoder(order)("strict").decode(sample)
    except UnicodeDecodeError:
        return ""
    strange = sum(1 for char in text if not char.isprintable() and char not in "\t\r\n\f")
    return order if strange * 50 <= len(text) else ""


def _escaped(data: bytes) -> str:
    head = data[:_SAMPLE_BYTES]
    if max(head, default=0) > 0x7F:
        return ""
    for escape, encoding in _ISO_2022:
        if escape in head:
            return encoding
    return "hz" if len(_HZ.findall(head)) >= 2 else ""


def _declared(data: bytes, declared: str) -> str:
    """The declared encoding, when the bytes fit it and the text that comes out looks like text."""
    name = _ALIASES.get(declared.strip().lower(), declared.strip().lower())
    try:
        info = codecs.lookup(name) if name else None
    except LookupError:
        return ""
    if info is None or info.name.startswith(("utf-8", "utf-16", "utf-32")):
        return ""
    try:
        text = data.decode(info.name)
    except (UnicodeDecodeError, ValueError):
        return ""
    if info.name == "cp1252" and _multibyte(data):
        return ""
    return info.name if _plausible(text) else ""


def _plausible(text: str) -> bool:
    sample = [char for char in text[:20_000] if char > "\x7f"]
    odd = sum(
        1 for char in sample if "\x80" <= char <= "\x9f" or "\ue000" <= char <= "\uf8ff" or "\u2500" <= char <= "\u259f"
    )
    return odd * 5 <= len(sample)


def _likeliest(data: bytes) -> str:
    sample = _sample(data)
    if _ebcdic(sample):
        return "cp500"
    multibyte = _multibyte(sample)
    if multibyte:
        return multibyte
    matches = from_bytes(sample, cp_isolation=list(_CANDIDATES), threshold=0.35, enable_fallback=False)
    if not matches:
        return "cp1252"
    best = matches[0]
    equal = {m.encoding for m in matches if m.chaos <= best.chaos + 0.01 and m.coherence >= best.coherence - 0.1}
    short = sum(1 for byte in sample if byte > 0x7F) < _FEW_BYTES
    if short and "cp1252" in equal | {
        m.encoding for m in matches if m.chaos <= best.chaos + 0.02 and best.encoding == "cp1250"
    }:
        return "cp1252"
    return next((name for name in _CANDIDATES if name in equal), best.encoding)


def _sample(data: bytes) -> bytes:
    """The beginning, cut at a line end so that no character is cut; of a long file the part with foreign bytes."""
    if len(data) <= _SAMPLE_BYTES:
        return data
    first = next((i for i in range(0, len(data), 4096) if max(data[i : i + 4096]) > 0x7F), 0)
    start = data.rfind(b"\n", 0, first) + 1
    end = data.rfind(b"\n", start, start + _SAMPLE_BYTES)
    return data[start : end if end > start else start + _SAMPLE_BYTES]


def _multibyte(data: bytes) -> str:
    """An East Asian multi-byte encoding that explains every foreign byte, by how common its characters are."""
    foreign = sum(1 for byte in data if byte > 0x7F)
    best, best_score = "", 0.0
    for encoding in ("gb18030", "big5hkscs", "cp932", "euc_jp", "cp949"):
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        chars = [char for char in text if char > "\x7f"]
        if not chars or len(chars) > foreign * 0.7 + 1:
            continue
        score = sum(_east_asian_weight(char, encoding) for char in chars) / len(chars)
        if score > best_score:
            best, best_score = encoding, score
    return best if best_score > 0.22 else ""


def _east_asian_weight(char: str, encoding: str) -> float:  # noqa: PLR0911  one line a script
    if char in _HAN_COMMON:
        return 2.0
    if "\u3040" <= char <= "\u30ff":
        return 1.2 if encoding in ("cp932", "euc_jp") else 0.1
    if "\uac00" <= char <= "\ud7a3":
        return 1.0 if encoding == "cp949" else 0.0
    if "\uff61" <= char <= "\uff9f":  # half-width katakana: what other encodings look like in Shift-JIS
        return -1.0
    if char in "、。，「」！？：；（）《》":
        return 1.0
    if "\u4e00" <= char <= "\u9fff":
        return 0.2
    return -0.5


def _ebcdic(data: bytes) -> bool:
    """EBCDIC text: 0x40 is the blank, letters and digits lie above 0x80, hardly anything in the letters of ASCII."""
    if len(data) < 16:
        return False
    letters = sum(1 for b in data if 0x81 <= b <= 0xA9 or 0xC1 <= b <= 0xE9 or 0xF0 <= b <= 0xF9)
    ascii_letters = sum(1 for b in data if 0x61 <= b <= 0x7A and b not in (0x61, 0x6B, 0x6C, 0x6D, 0x6E, 0x6F, 0x7A))
    return (
        letters > 0.6 * len(data)
        and data.count(0x40) > 0.05 * len(data)
        and data.count(0x20) < 0.01 * len(data)
        and ascii_letters < 0.05 * len(data)
    )
