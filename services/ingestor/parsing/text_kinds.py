"""Which kind of text a text is: a web page, Markdown, CSV, program code, or just text."""

import csv
import io
import re
from pathlib import PurePath

from services.domain.blocks import DocumentKind

#: Languages, in the names that code fences use, with the endings of their files.
_ENDINGS = (
    "python=py,pyi javascript=js,mjs,cjs jsx=jsx typescript=ts tsx=tsx java=java kotlin=kt,kts "
    "scala=scala go=go rust=rs c=c,h cpp=cc,cpp,cxx,hpp,hh csharp=cs ruby=rb php=php swift=swift "
    "objectivec=m bash=sh,bash,zsh powershell=ps1 sql=sql r=r julia=jl lua=lua perl=pl,pm dart=dart "
    "elixir=ex,exs erlang=erl haskell=hs ocaml=ml clojure=clj groovy=groovy,gradle protobuf=proto hcl=tf "
    "yaml=yaml,yml toml=toml json=json xml=xml css=css scss=scss vue=vue dockerfile=dockerfile "
    "makefile=makefile cmake=cmake ini=ini vb=vb fortran=f90 asm=asm solidity=sol zig=zig "
)
CODE_LANGUAGES = {
    end: language
    for language, _, ends in (entry.partition("=") for entry in _ENDINGS.split())
    for end in ends.split(",")
}
_SHEBANG = re.compile(r"#!\s*\S*?(?:/|\benv\s+(?:-S\s+)?)(python|bash|sh|zsh|node|ruby|perl|php|lua|Rscript)[\d.]*\b")
_SHEBANG_LANGUAGES = {"sh": "bash", "zsh": "bash", "node": "javascript", "Rscript": "r"}
_HTML_START = re.compile(r"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body)\b", re.I | re.S)
_HTML_TAGS = re.compile(
    r"</?(?:p|div|span|table|tr|td|th|ul|ol|li|h[1-6]|a|br|img|b|i|em|strong|font|body|head|title|meta)\b[^>]*>", re.I
)
_MARKDOWN = (
    re.compile(r"^#{1,6} +\S", re.M),
    re.compile(r"^(?:```|~~~)\w*\s*$", re.M),
    re.compile(r"\[[^\]\n]+\]\([^)\s]+\)"),
    re.compile(r"^\|.*\|\s*\n\|[\s:|-]+\|\s*$", re.M),
    re.compile(r"^(?:=+|-{3,})\s*$", re.M),
    re.compile(r"(?:^|\s)\*\*[^*\n]+\*\*", re.M),
    re.compile(r"^\s*[-*+] +\S", re.M),
)


def ending(filename: str) -> str:
    """The ending of a name in lower case without the dot; the whole name of a Makefile or Dockerfile."""
    path = PurePath(filename.lower())
    return path.suffix.lstrip(".") or path.name


def text_kind(text: str, filename: str) -> DocumentKind:  # noqa: PLR0911  one line a rule
    """The kind of a beginning of a text. A web page is one under any name; between the others the name decides."""
    name = ending(filename)
    if _is_html(text, name):
        return DocumentKind.HTML
    if name in ("md", "markdown", "mdown", "mkd", "mdx", "qmd", "rmd"):
        return DocumentKind.MARKDOWN
    if name in ("csv", "tsv", "tab"):
        return DocumentKind.CSV
    if code_language(text, filename):
        return DocumentKind.CODE
    if name in ("txt", "text", "log", "rst", "tex", "srt", "vtt"):
        return DocumentKind.TEXT
    if _is_csv(text):
        return DocumentKind.CSV
    return DocumentKind.MARKDOWN if _is_markdown(text) else DocumentKind.TEXT


def code_language(text: str, filename: str) -> str:
    """The programming language by ending or shebang; empty for anything else."""
    found = CODE_LANGUAGES.get(ending(filename))
    if found:
        return found
    match = _SHEBANG.match(text)
    return _SHEBANG_LANGUAGES.get(match[1], match[1]) if match else ""


def _is_html(text: str, name: str) -> bool:
    if name in (
        "md",
        "markdown",
        "py",
        "js",
        "ts",
        "jsx",
        "tsx",
        "php",
        "vue",
        "java",
        "go",
        "rb",
    ) and not text.lstrip()[:15].lower().startswith("<!doctype html"):
        return False
    head = text[:20_000]
    if _HTML_START.match(head):
        return True
    tags = len(_HTML_TAGS.findall(head))
    if name in ("html", "htm", "xhtml", "shtml"):
        return tags >= 1
    return tags >= 6 and tags * 120 > len(head) and head.lstrip().startswith("<")


def _is_markdown(text: str) -> bool:
    return sum(1 for pattern in _MARKDOWN if pattern.search(text[:40_000])) >= 3


def _is_csv(text: str) -> bool:
    """Several rows with the same number of short fields, two or more, by one of the usual delimiters."""
    lines = text[:20_000].splitlines()[:-1][:30] if len(text) > 20_000 else text.splitlines()[:30]
    if len(lines) < 3:
        return False
    for delimiter in (",", ";", "\t", "|"):
        try:
            rows = [row for row in csv.reader(io.StringIO("\n".join(lines)), delimiter=delimiter) if row]
        except csv.Error:
            continue
        widths = {len(row) for row in rows}
        if (
            len(rows) >= 3
            and len(widths) == 1
            and widths.pop() >= 3
            and all(len(cell) < 80 and not cell.startswith(" ") for row in rows for cell in row)
        ):
            return True
    return False
