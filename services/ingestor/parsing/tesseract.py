"""A system Tesseract, run as a program with a time limit."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from services.ingestor.parsing.ocr import Image, Recognised

_TIMEOUT_SECONDS = 50.0
_SKIPPED_LANGUAGES = frozenset({"osd", "equ", "snum"})
_MAX_LANGUAGES = 4


class Tesseract:
    def __init__(self, program: str, languages: tuple[str, ...]) -> None:
        self._program = program
        self._languages = languages

    def read(self, image: Image) -> list[Recognised]:
        """Lines of an RGB picture; none when the program fails or takes too long."""
        height, width = image.shape[:2]
        picture = b"P6 %d %d 255\n" % (width, height) + np.ascontiguousarray(image).tobytes()
        command = [self._program, "stdin", "stdout", "-l", "+".join(self._languages), "--psm", "3", "tsv"]
        try:
            done = subprocess.run(command, input=picture, capture_output=True, timeout=_TIMEOUT_SECONDS, check=True)  # noqa: S603
        except (subprocess.SubprocessError, OSError):
            return []
        return lines_of(done.stdout.decode("utf-8", "replace"))


@cache
def find_tesseract() -> Tesseract | None:
    """The installed program with its languages, English first; None when there is none."""
    program = shutil.which("tesseract")
    if program is None:
        return None
    try:
        listed = subprocess.run([program, "--list-langs"], capture_output=True, timeout=10, check=True, text=True)  # noqa: S603
    except (subprocess.SubprocessError, OSError):
        return None
    names = [
        name for name in listed.stdout.splitlines()[1:] if name and name not in _SKIPPED_LANGUAGES and "/" not in name
    ]
    names.sort(key=lambda name: (name != "eng", name))
    return Tesseract(program, tuple(names[:_MAX_LANGUAGES])) if names else None


def lines_of(tsv: str) -> list[Recognised]:
    """Lines out of Tesseract's TSV: its words joined by block, paragraph and line."""
    from services.ingestor.parsing.ocr import Recognised

    words: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for row in csv.DictReader(io.StringIO(tsv), delimiter="\t", quoting=csv.QUOTE_NONE):
        if row.get("level") == "5" and (row.get("text") or "").strip():
            words.setdefault((row["page_num"], row["block_num"], row["par_num"], row["line_num"]), []).append(row)
    found: list[Recognised] = []
    for line in words.values():
        x0 = min(int(word["left"]) for word in line)
        y0 = min(int(word["top"]) for word in line)
        x1 = max(int(word["left"]) + int(word["width"]) for word in line)
        y1 = max(int(word["top"]) + int(word["height"]) for word in line)
        score = sum(max(0.0, float(word["conf"])) for word in line) / len(line) / 100
        corners = np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1]], dtype=np.float64)
        found.append(Recognised(text=" ".join(word["text"] for word in line), corners=corners, score=score))
    return found
