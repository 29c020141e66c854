"""Makes the documents of the example company from `sources/`: `python -m examples.company.make_documents`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from examples.company.writers.pdf import write_pdf
from examples.company.writers.source import read_source
from examples.company.writers.word import write_docx

HERE = Path(__file__).parent
SOURCES = HERE / "sources"
DOCUMENTS = HERE / "documents"
AS_THEY_ARE = {".html", ".txt", ".md"}
GB18030 = "-gb18030"


def make_documents(folder: Path) -> list[Path]:
    """Write every document into the folder and return the paths; the same sources give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = list[Path]()
    for name, content in _documents():
        paths.append(folder / name)
        paths[-1].write_bytes(content)
    return paths


def _documents() -> Iterator[tuple[str, bytes]]:
    """File names and contents; `x.pdf.md` becomes `x.pdf`, `x.docx.md` becomes `x.docx`, others stay as they are."""
    for source in sorted(SOURCES.iterdir()):
        name = source.name
        if name.endswith(".pdf.md"):
            yield name.removesuffix(".md"), write_pdf(read_source(source))
        elif name.endswith(".docx.md"):
            yield name.removesuffix(".md"), write_docx(read_source(source))
        elif source.suffix in AS_THEY_ARE:
            encoding = "gb18030" if GB18030 in name else "utf-8"
            yield name, source.read_text(encoding="utf-8").encode(encoding)


if __name__ == "__main__":
    for path in make_documents(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCUMENTS):
        print(f"{path.stat().st_size:>9,} bytes  {path}")
