# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false, reportMissingImports=false
"""OCR behind one call: rapidocr (Latin and Chinese; models in its wheel), else or beside it a system Tesseract."""

import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from services.ingestor.parsing.tesseract import Tesseract, find_tesseract

Image: TypeAlias = npt.NDArray[np.uint8]

_THREADS = 2
_GOOD = 0.82
#: Widths of lines whose kernels OpenVINO keeps. By default it keeps 5,000: 200 MB of reserved memory a page.
_KEPT_SHAPES = 16
#: Six lines at once, the default of the library, are no faster and take 140 MB more at the peak.
_LINES_AT_ONCE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognised:
    """A line of text found in a picture. `corners` [4, 2] in pixels: top left, top right, bottom right, bottom left as
    the text reads. `score` 0 to 1."""

    text: str
    corners: npt.NDArray[np.float64]
    score: float


class Engine(Protocol):
    def read(self, image: Image) -> list[Recognised]:
        """Lines of an RGB picture [height, width, 3], in no particular order."""
        ...


@cache
def engine() -> Engine | None:
    """The engine of this machine, loaded once a process; None when there is none."""
    tesseract = find_tesseract()
    if importlib.util.find_spec("rapidocr") is not None:
        return PreferredOcr(RapidOcr(), tesseract) if tesseract is not None else RapidOcr()
    return tesseract


def mean_score(lines: Sequence[Recognised]) -> float:
    """Confidence by character; 0 for no text."""
    chars = sum(len(line.text) for line in lines)
    return sum(line.score * len(line.text) for line in lines) / chars if chars else 0.0


class RapidOcr:
    def __init__(self) -> None:
        self._ocr: Any = None

    def read(self, image: Image) -> list[Recognised]:
        found = self._loaded()(np.ascontiguousarray(image[:, :, ::-1]), use_det=True, use_cls=True, use_rec=True)
        if found.boxes is None or found.txts is None:
            return []
        return [
            Recognised(text=text, corners=np.asarray(box, dtype=np.float64), score=float(score))
            for box, text, score in zip(found.boxes, found.txts, found.scores, strict=True)
            if text.strip()
        ]

    def lies_on_its_side(self, image: Image) -> bool:
        """Whether most of the text found is taller than wide: the page is turned by a quarter. Costs no recognition."""
        found = self._loaded()(np.ascontiguousarray(image[:, :, ::-1]), use_det=True, use_cls=False, use_rec=False)
        if found.boxes is None:
            return False
        sides = np.asarray(found.boxes).max(axis=1) - np.asarray(found.boxes).min(axis=1)
        long = sides.max(axis=1) > 2.5 * sides.min(axis=1)
        tall = sides[:, 1] > sides[:, 0]
        return bool(long.sum() > 2 and (tall & long).sum() > 0.6 * long.sum())

    def upright_score(self, crops: Sequence[Image]) -> float:
        """How well lines read as they stand, without turning them: mean score of the crops."""
        scores: list[float] = []
        for crop in crops:
            found = self._loaded()(np.ascontiguousarray(crop[:, :, ::-1]), use_det=False, use_cls=False, use_rec=True)
            scores.extend(float(score) for score in found.scores or ())
        return sum(scores) / len(scores) if scores else 0.0

    def _loaded(self) -> Any:
        if self._ocr is None:
            from rapidocr import EngineType, RapidOCR

            # OpenVINO reads lines in half the time of ONNX Runtime, which finds them in a quarter of the memory.
            onnx, fast = EngineType.ONNXRUNTIME, EngineType.OPENVINO
            reading = fast if importlib.util.find_spec("openvino") is not None else onnx
            finding = onnx if importlib.util.find_spec("onnxruntime") is not None else fast
            self._ocr = RapidOCR(
                params={
                    "Global.log_level": "error",
                    "Global.max_side_len": 1760,
                    "Det.engine_type": finding,
                    "Cls.engine_type": reading,
                    "Rec.engine_type": reading,
                    "Rec.rec_batch_num": _LINES_AT_ONCE,
                    "EngineConfig.openvino.num_streams": 1,
                    "EngineConfig.openvino.inference_num_threads": min(_THREADS, os.cpu_count() or 1),
                    "EngineConfig.onnxruntime.intra_op_num_threads": _THREADS,
                    "EngineConfig.onnxruntime.inter_op_num_threads": 1,
                }
            )
            if reading is fast:
                _forget_shapes(self._ocr)
        return self._ocr


def _forget_shapes(ocr: Any) -> None:
    """Compile the networks that see lines of every width once more, with few prepared shapes kept.

    rapidocr passes its own settings on to OpenVINO and no others; its networks are there after the first line.
    """
    from openvino import Core

    ocr(np.full((48, 320, 3), 255, dtype=np.uint8), use_det=False, use_cls=True, use_rec=True)
    options = {
        "CPU_RUNTIME_CACHE_CAPACITY": str(_KEPT_SHAPES),
        "NUM_STREAMS": "1",
        "INFERENCE_NUM_THREADS": str(min(_THREADS, os.cpu_count() or 1)),
    }
    core = Core()
    for part in (ocr.text_cls, ocr.text_rec):
        session = part.session
        session.session = core.compile_model(session.model, "CPU", options).create_infer_request()


class PreferredOcr:
    """The first engine where it is sure of what it read, else the surer of the two: other scripts are Tesseract's."""

    def __init__(self, first: RapidOcr, second: Tesseract) -> None:
        self._first = first
        self._second = second

    def read(self, image: Image) -> list[Recognised]:
        found = self._first.read(image)
        if mean_score(found) >= _GOOD:
            return found
        other = self._second.read(image)
        return other if mean_score(other) > mean_score(found) else found

    def lies_on_its_side(self, image: Image) -> bool:
        return self._first.lies_on_its_side(image)

    def upright_score(self, crops: Sequence[Image]) -> float:
        return self._first.upright_score(crops)
