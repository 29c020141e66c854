"""Write the tables of docs/operations.md: every setting of every server, and every metric.

The page is written by hand but for what stands between `<!-- generated: NAME -->` and `<!-- end: NAME -->`. `--check`
fails when a table is stale.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args, get_origin

from prometheus_client.metrics import MetricWrapperBase
from pydantic.fields import FieldInfo

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the services of this checkout, whatever is installed

from services.common.metrics import Metrics  # noqa: E402
from services.common.settings import ServerSettings  # noqa: E402
from services.embedder.settings import EmbedderSettings  # noqa: E402
from services.ingestor.settings import IngestorSettings  # noqa: E402
from services.launch.settings import UpSettings  # noqa: E402
from services.reranker.settings import RerankerSettings  # noqa: E402
from services.retriever.settings import RetrieverSettings  # noqa: E402

PAGE = ROOT / "docs" / "operations.md"

#: What may be set, in the order of the page: the common settings first.
SETTINGS: dict[str, type[ServerSettings]] = {
    "Every server": ServerSettings,
    "All-in-one (`pergamon up`)": UpSettings,
    "Embedder": EmbedderSettings,
    "Reranker": RerankerSettings,
    "Retriever": RetrieverSettings,
    "Ingestor": IngestorSettings,
}

_BOUNDS = (("ge", "at least {}"), ("gt", "above {}"), ("le", "at most {}"), ("lt", "below {}"))


def settings_tables() -> str:
    """A table for each server: its own settings, and the common ones that have another default there."""
    lines: list[str] = []
    for title, settings in SETTINGS.items():
        lines += [f"### {title}", "", "| variable | default | allowed | meaning |", "|---|---|---|---|"]
        for name, field in own_fields(settings):
            variable = f"{settings.model_config.get('env_prefix', '')}{name}".upper()
            lines.append(f"| `{variable}` | {_default(field)} | {_allowed(field)} | {field.description or ''} |")
        lines.append("")
    return "\n".join(lines).rstrip()


def own_fields(settings: type[ServerSettings]) -> Iterator[tuple[str, FieldInfo]]:
    """The fields that `settings` adds to the common ones, or gives another default."""
    common = ServerSettings.model_fields
    for name, field in settings.model_fields.items():
        if settings is ServerSettings or name not in common or common[name].default != field.default:
            yield name, field


def metrics_table() -> str:
    lines = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    collectors = [value for value in vars(Metrics()).values() if isinstance(value, MetricWrapperBase)]
    for collector in collectors:
        for family in collector.describe():
            name = f"{family.name}_total" if family.type == "counter" else family.name
            labels = ", ".join(f"`{label}`" for label in collector._labelnames)  # it has no public name
            lines.append(f"| `{name}` | {family.type} | {labels} | {family.documentation} |")
    return "\n".join(lines)


def filled(page: str) -> str:
    """`page` with fresh tables. Raises ValueError when a marker is missing."""
    for name, table in (("settings", settings_tables()), ("metrics", metrics_table())):
        marked = re.compile(rf"(<!-- generated: {name} -->\n).*?(\n<!-- end: {name} -->)", re.DOTALL)
        if not marked.search(page):
            raise ValueError(f"{PAGE.name} has no place for the generated part {name!r}")
        page = marked.sub(lambda found, table=table: f"{found[1]}\n{table}\n{found[2]}", page)
    return page


def _default(field: FieldInfo) -> str:
    if field.default_factory is not None:
        value = str(field.default_factory())  # type: ignore[call-arg]
        return f"`{value.replace(str(Path.home()), '~')}`"
    if field.default is None:
        return "unset"
    if field.default == "":
        return "empty"
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"


def _allowed(field: FieldInfo) -> str:
    if get_origin(field.annotation) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(field.annotation))
    if field.annotation is bool:
        return "`true`, `false`"
    found = [(text, getattr(bound, name)) for bound in field.metadata for name, text in _BOUNDS if hasattr(bound, name)]
    bounds = [text.format(value) for text, value in found]
    kinds = {int: "whole number", float: "number", str: "text", Path: "path", Path | None: "path"}
    return ", ".join([kinds.get(field.annotation, "text"), *bounds])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    page = PAGE.read_text(encoding="utf-8")
    fresh = filled(page)
    if not parser.parse_args().check:
        PAGE.write_text(fresh, encoding="utf-8")
        return 0
    if fresh == page:
        return 0
    print(f"stale: {PAGE.relative_to(ROOT)} (run `make proto`)", file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
