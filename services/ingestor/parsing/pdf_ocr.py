# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false
"""A PDF page as a picture, for OCR."""

from typing import Any

from services.domain.blocks import PageRoute, ParseWarning
from services.ingestor.parsing.ocr import engine
from services.ingestor.parsing.pages import PageParse
from services.ingestor.parsing.parser import ParseOptions
from services.ingestor.parsing.picture import picture_page

_DPI = 150
_MAX_PIXELS = 12_000_000


def ocr_page(page: Any, number: int, options: ParseOptions) -> PageParse:
    """The page read by the OCR engine; EMPTY with a warning where there is none."""
    if not options.ocr or engine() is None:
        warning = ParseWarning(
            code="NO_OCR_ENGINE",
            message="the page is an image and no OCR engine is installed (extra: ocr)",
            page=number,
        )
        return PageParse(blocks=(), route=PageRoute.EMPTY, warnings=(warning,))
    import numpy as np
    import pymupdf

    inches = page.rect.width * page.rect.height / 72**2
    dpi = min(_DPI, (_MAX_PIXELS / max(inches, 0.01)) ** 0.5)
    pixmap = page.get_pixmap(dpi=int(dpi), colorspace=pymupdf.csRGB, alpha=False)
    image = np.frombuffer(pixmap.samples, dtype=np.uint8).reshape(pixmap.height, pixmap.width, 3)
    return picture_page(image, number, points_per_pixel=page.rect.width / pixmap.width)
