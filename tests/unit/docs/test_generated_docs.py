"""The generated parts of the documentation say what the code says now."""

import re
from functools import cache
from pathlib import Path

import pytest
from prometheus_client.metrics import MetricWrapperBase

from scripts import generate_api_docs, generate_operations_docs
from services.common.errors import Reason
from services.common.metrics import Metrics

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
#: Pages with links, wherever they are.
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])


def test_api_page_when_protos_and_reasons_are_as_they_are_then_fresh():
    fresh = generate_api_docs.render(generate_api_docs.load_protos())
    assert (DOCS / "api.md").read_text(encoding="utf-8") == fresh, "run `make proto`"


def test_operations_page_when_settings_and_metrics_are_as_they_are_then_fresh():
    page = (DOCS / "operations.md").read_text(encoding="utf-8")
    assert generate_operations_docs.filled(page) == page, "run `make proto`"


def test_operations_page_when_a_marker_is_missing_then_the_generator_says_which():
    with pytest.raises(ValueError, match="'settings'"):
        generate_operations_docs.filled("# Operations\n")


def test_protos_when_read_then_everything_has_a_comment():
    silent = {where for file in generate_api_docs.load_protos() for where, comment in file.comments() if not comment}
    assert silent == set()


def test_protos_when_read_then_each_has_its_place_on_the_page():
    names = {file.name for file in generate_api_docs.load_protos()}
    assert names == {f"pergamon/{name}.proto" for name in generate_api_docs.ORDER}


def test_methods_when_listed_then_each_asks_for_a_role():
    roles = generate_api_docs.roles()
    methods = {
        (service.name, method.name)
        for file in generate_api_docs.load_protos()
        for service in file.services
        for method in service.methods
    }
    assert methods - roles.keys() == set()


@pytest.mark.parametrize("title", generate_operations_docs.SETTINGS)
def test_settings_when_declared_then_each_has_a_meaning(title: str):
    fields = generate_operations_docs.own_fields(generate_operations_docs.SETTINGS[title])
    assert [name for name, field in fields if not field.description] == []


def test_metrics_when_declared_then_each_is_on_the_page():
    page = (DOCS / "operations.md").read_text(encoding="utf-8")
    families = {family.name for family in Metrics().registry.collect()}
    assert {name for name in families if f"`{name}" not in page} == set()


def test_settings_when_declared_then_some_code_reads_them():
    """Not by its own module: a setting that nothing reads is a promise that nobody keeps."""
    code = "".join(text for path, text in sources().items() if path.name != "settings.py")
    settings = generate_operations_docs.SETTINGS.values()
    names = {name for one in settings for name, _ in generate_operations_docs.own_fields(one)}
    # Read through a method of the settings, which knows what to do when it is unset.
    own = {"service_token_file", "catalog_url_file", "qdrant_api_key_file", "embedding_models", "reranker_models"}
    assert {name for name in names - own if not re.search(rf"\.{name}\b", code)} == set()


def test_metrics_when_declared_then_some_code_records_them():
    code = "".join(text for path, text in sources().items() if path.name != "metrics.py")
    names = {name for name, value in vars(Metrics()).items() if isinstance(value, MetricWrapperBase)}
    assert {name for name in names if not re.search(rf"\.{name}\b", code)} == set()


def test_troubleshooting_when_it_names_reasons_then_they_are_declared():
    page = (DOCS / "operations.md").read_text(encoding="utf-8")
    section = page.split("## Troubleshooting", 1)[1].split("\n## ", 1)[0]
    named = set(re.findall(r"^\| `([A-Z_]+)`", section, re.MULTILINE))
    assert len(named) > 15
    assert named - Reason.__members__.keys() == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_when_they_point_into_the_repository_then_the_target_exists(page: Path):
    text = page.read_text(encoding="utf-8")
    broken: list[str] = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path) if path else page
        if not found.exists() or (anchor and found.suffix == ".md" and anchor not in anchors(found)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_when_named_in_code_spans_then_they_exist(page: Path):
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"`((?:services|clients|protos|tests|scripts|examples|docs|k8s|bench)/[\w./-]*\w/?)`", text)
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_when_placed_in_a_file_then_the_file_has_them(page: Path):
    """As in "`Pool.select` in `services/retriever/pool.py`"."""
    wrong: list[str] = []
    placed = re.findall(r"((?:`\.?[\w.]+`,? )+)\(?in `(services/[\w/]+\.py)`", page.read_text(encoding="utf-8"))
    for names, path in placed:
        text = (ROOT / path).read_text(encoding="utf-8")
        parts = {part for name in re.findall(r"`([^`]+)`", names) for part in name.split(".") if part}
        wrong += [f"{part} in {path}" for part in parts if not re.search(rf"\b{part}\b", text)]
    assert wrong == []


@cache
def sources() -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for path in (ROOT / "services").rglob("*.py")}


def anchors(page: Path) -> set[str]:
    """Explicit ones, and those that are made of headings."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return made | set(re.findall(r'<a id="([^"]+)">', text))
