"""A picture of a page to blocks: turned the right way round, read, straightened, put in reading order."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from services.domain.blocks import Block, BlockKind, PageRoute, ParseWarning
from services.ingestor.parsing.fragments import Fragment
from services.ingestor.parsing.ocr import Engine, Image, PreferredOcr, RapidOcr, Recognised, engine, mean_score
from services.ingestor.parsing.pages import PageParse, box_of, joined_lists
from services.ingestor.parsing.paragraphs import FontProfile, column_blocks
from services.ingestor.parsing.reading_order import regions
from services.ingestor.parsing.unruled_tables import unruled_runs

_LOW_CONFIDENCE = 0.8
_MIN_SCORE = 0.5
_MIN_SIDE = 40
_UPSCALE_BELOW = 700
_SAMPLES = 6


def picture_page(image: Image, number: int, *, points_per_pixel: float) -> PageParse:
    """Blocks of an RGB picture [height, width, 3] as page `number`; boxes in points of the page as given."""
    reader = engine()
    if reader is None:
        message = "the page is an image and no OCR engine is installed (extra: ocr)"
        return PageParse(blocks=(), route=PageRoute.EMPTY, warnings=(_warning("NO_OCR_ENGINE", message, number),))
    if min(image.shape[:2]) < _MIN_SIDE // 4:
        return PageParse(blocks=(), route=PageRoute.EMPTY)
    scale = 2 if max(image.shape[:2]) < _UPSCALE_BELOW else 1
    lines, turns = _read_upright(
        reader, np.repeat(np.repeat(image, scale, axis=0), scale, axis=1) if scale > 1 else image
    )
    lines = [line for line in lines if line.score >= _MIN_SCORE]
    if not lines:
        message = "the page is an image in which no text was found"
        return PageParse(blocks=(), route=PageRoute.EMPTY, warnings=(_warning("NO_TEXT_FOUND", message, number),))
    height, width = image.shape[0] * scale, image.shape[1] * scale
    fragments = _fragments(lines, turns, (height, width), points_per_pixel / scale)
    blocks = _blocks(fragments, number)
    score = mean_score(lines)
    warnings: tuple[ParseWarning, ...] = ()
    if score < _LOW_CONFIDENCE:
        warnings = (_warning("LOW_OCR_CONFIDENCE", f"the text was read with a confidence of {score:.2f}", number),)
    return PageParse(blocks=tuple(joined_lists(blocks)), route=PageRoute.OCR, warnings=warnings)


def _blocks(fragments: Sequence[Fragment], number: int) -> list[Block]:
    blocks: list[Block] = []
    for lines in regions(fragments):
        for run, table in unruled_runs(lines, number):
            if table is not None:
                blocks.append(table)
            else:
                blocks.extend(
                    column_blocks(run, FontProfile(body_size=0.0), number, lambda group: box_of(group, number))
                )
    return [replace(block, kind=BlockKind.PARAGRAPH) if block.kind is BlockKind.CODE else block for block in blocks]


def _read_upright(reader: Engine, image: Image) -> tuple[list[Recognised], int]:
    """Lines, and how many quarter turns (counter-clockwise) the picture needed before it could be read."""
    turns = 0
    if isinstance(reader, RapidOcr | PreferredOcr) and reader.lies_on_its_side(image):
        image, turns = np.ascontiguousarray(np.rot90(image)), 1
    lines = reader.read(image)
    if lines and _is_upside_down(reader, image, lines):
        far_corner = np.array([image.shape[1], image.shape[0]], dtype=np.float64)
        lines = [replace(line, corners=(far_corner - line.corners)[[2, 3, 0, 1]]) for line in lines]
        turns += 2
    return lines, turns


def _is_upside_down(reader: Engine, image: Image, lines: Sequence[Recognised]) -> bool:
    """Engines turn single lines; whether the page as a whole stands on its head shows in how its longest lines read."""
    if not isinstance(reader, RapidOcr | PreferredOcr):
        return False
    longest = sorted(lines, key=lambda line: -len(line.text))[:_SAMPLES]
    crops: list[Image] = []
    for line in longest:
        (x0, y0), (x1, y1) = (
            np.floor(line.corners.min(axis=0)).astype(int),
            np.ceil(line.corners.max(axis=0)).astype(int),
        )
        crop = image[max(0, y0) : y1, max(0, x0) : x1]
        if crop.size and crop.shape[0] * 2 < crop.shape[1]:
            crops.append(crop)
    if not crops:
        return False
    return (
        reader.upright_score([np.ascontiguousarray(np.rot90(crop, 2)) for crop in crops])
        > reader.upright_score(crops) + 0.05
    )


def _fragments(
    lines: Sequence[Recognised], turns: int, shape: tuple[int, int], points_per_pixel: float
) -> list[Fragment]:
    """Lines with their place in a straightened page; `place` leads back to the picture as it was given."""
    angles = [np.arctan2(*(line.corners[1] - line.corners[0])[::-1]) for line in lines if len(line.text) >= 6]
    skew = float(np.median(angles)) if angles else 0.0
    skew = skew if abs(skew) < 0.35 else 0.0
    cos, sin = np.cos(-skew), np.sin(-skew)
    rotation = np.array([[cos, sin], [-sin, cos]])
    found: list[Fragment] = []
    for line in lines:
        straight = line.corners @ rotation
        (x0, y0), (x1, y1) = straight.min(axis=0), straight.max(axis=0)
        place = _back(line.corners, turns, shape) * points_per_pixel
        (px0, py0), (px1, py1) = place.min(axis=0), place.max(axis=0)
        scaled = [float(v) * points_per_pixel for v in (x0, y0, x1, y1)]
        found.append(
            Fragment(
                text=line.text.strip(),
                x0=scaled[0],
                y0=scaled[1],
                x1=scaled[2],
                y1=scaled[3],
                size=max(1.0, 0.75 * (scaled[3] - scaled[1])),
                place=(float(px0), float(py0), float(px1), float(py1)),
                confidence=line.score,
            )
        )
    return found


def _back(corners: npt.NDArray[np.float64], turns: int, shape: tuple[int, int]) -> npt.NDArray[np.float64]:
    """Corners in the picture that was turned `turns` quarters counter-clockwise, as places in the picture before."""
    height, width = shape
    points = corners
    if turns >= 2:
        turned_height, turned_width = (height, width) if turns % 2 == 0 else (width, height)
        points = np.array([turned_width, turned_height], dtype=np.float64) - points
    if turns % 2:
        points = np.stack([width - points[:, 1], points[:, 0]], axis=1)
    return points


def _warning(code: str, message: str, page: int) -> ParseWarning:
    return ParseWarning(code=code, message=message, page=page)
