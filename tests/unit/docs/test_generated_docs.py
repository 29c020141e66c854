"""The generated parts of the documentation say what the code says now."""

import re
from pathlib import Path

import pytest

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


def anchors(page: Path) -> set[str]:
    """Explicit ones, and those that are made of headings."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return made | set(re.findall(r'<a id="([^"]+)">', text))
