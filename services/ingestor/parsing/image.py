# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Pictures: every frame is a page, read by OCR."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from services.common.errors import DocumentError, Reason
from services.domain.blocks import DocumentKind, DocumentMetadata, ParsedPart
from services.ingestor.parsing.language import detect_language
from services.ingestor.parsing.pages import PageParse
from services.ingestor.parsing.parser import ParseOptions
from services.ingestor.parsing.picture import picture_page
from services.ingestor.parsing.unlocking import as_document_errors

_MAX_PIXELS = 120_000_000
_MAX_SIDE = 2400
_MAX_FRAMES = 2000
_STRETCH_PAGES = 8
_DEFAULT_DPI = 96.0


class ImageParser:
    def open(self, path: Path, options: ParseOptions) -> "ImageSource":
        try:
            image = Image.open(path)
        except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError) as error:
            raise DocumentError("the image is damaged", reason=Reason.UNREADABLE_DOCUMENT) from error
        if image.width * image.height > _MAX_PIXELS:
            raise DocumentError(
                f"the image has {image.width} x {image.height} pixels; the limit is {_MAX_PIXELS} in all",
                reason=Reason.DOCUMENT_LIMIT,
            )
        return ImageSource(image, options)


class ImageSource:
    kind = DocumentKind.IMAGE

    def __init__(self, image: Image.Image, options: ParseOptions) -> None:
        self._image = image
        self._options = options
        self.page_count = min(_MAX_FRAMES, int(getattr(image, "n_frames", 1)))
        if image.format in ("GIF", "WEBP", "PNG"):  # an animation: one picture of it is enough
            self.page_count = 1
        self.metadata = DocumentMetadata(document_type="image")

    def parts(self, first_page: int = 1) -> Iterator[ParsedPart]:
        page = first_page
        while page <= self.page_count:
            with as_document_errors():
                part = self._stretch(page)
            if page == 1 and part.last_page == self.page_count and not part.blocks:
                why = "; ".join(dict.fromkeys(warning.message for warning in part.warnings)) or "it is blank"
                raise DocumentError(f"the image holds no text: {why}", reason=Reason.NO_TEXT)
            yield part
            page = part.last_page + 1

    def close(self) -> None:
        self._image.close()

    def _stretch(self, first: int) -> ParsedPart:
        started = time.monotonic()
        parses: list[PageParse] = []
        for number in range(first, min(self.page_count, first + _STRETCH_PAGES - 1) + 1):
            parses.append(self._page(number))
            if time.monotonic() - started > self._options.stretch_seconds:
                break
        blocks = tuple(block for parse in parses for block in parse.blocks)
        if first == 1:
            language = detect_language("\n".join(block.text for block in blocks[:50]))
            self.metadata = replace(self.metadata, language=language)
        return ParsedPart(
            blocks=blocks,
            first_page=first,
            last_page=first + len(parses) - 1,
            routes=tuple(parse.route for parse in parses),
            warnings=tuple(warning for parse in parses for warning in parse.warnings),
        )

    def _page(self, number: int) -> PageParse:
        try:
            self._image.seek(number - 1)
            frame = ImageOps.exif_transpose(self._image) or self._image
            dpi = _dpi(frame)
            if frame.mode in ("RGBA", "LA", "PA") or "transparency" in frame.info:
                frame = Image.alpha_composite(Image.new("RGBA", frame.size, "white"), frame.convert("RGBA"))
            frame = frame.convert("RGB")
        except (OSError, ValueError, EOFError, SyntaxError) as error:
            raise DocumentError(f"frame {number} of the image is damaged", reason=Reason.UNREADABLE_DOCUMENT) from error
        width = frame.width
        frame.thumbnail((_MAX_SIDE, _MAX_SIDE))
        return picture_page(np.asarray(frame), number, points_per_pixel=72 / dpi * width / frame.width)


def _dpi(image: Image.Image) -> float:
    declared = image.info.get("dpi", (0.0, 0.0))[0]
    return float(declared) if 30 <= float(declared) <= 2400 else _DEFAULT_DPI
