"""`pergamon eval extract` on a small folder with known facts, against a server that runs."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from services.launch.cli import cli
from tests.fixtures.documents import encrypted_pdf
from tests.helpers.product import Product, key_of, running_product

Run = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    with running_product(tmp_path_factory.mktemp("extract")) as running:
        yield running


@pytest.fixture
def extract(product: Product) -> Run:
    """Runs `pergamon eval extract ...`; its exit status and what it printed."""

    def run(*arguments: str) -> tuple[int, str]:
        common = ["--server", product.target, "--api-key", key_of("acme"), "eval", "extract"]
        result = CliRunner(env={"COLUMNS": "160"}).invoke(cli, [*common, *arguments], standalone_mode=True)
        assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
        return result.exit_code, result.stdout if result.exit_code < 2 else result.output

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rail.txt").write_text("The company pays for rail travel in second class.")
    (tmp_path / "prices.csv").write_text("item,price\nrye,12\nsalt,3\n")
    (tmp_path / "torn.docx").write_bytes(b"PK\x03\x04 the rest of it was lost")
    encrypted_pdf(tmp_path / "sealed.pdf", user="open sesame")
    files: list[dict[str, Any]] = [
        {"path": "rail.txt", "facts": ["rail travel in second class", "NOT: first class"], "hard": ""},
        {"path": "prices.csv", "facts": ["r2c1=rye", "r3c2=3"], "hard": ""},
        {"path": "torn.docx", "facts": ["ERR: cut off"], "hard": "cut off"},
        {
            "path": "sealed.pdf",
            "facts": ["p1: A secret kept", "ERR without password: PASSWORD_REQUIRED"],
            "hard": 'password "open sesame"',
        },
    ]
    write(tmp_path, files)
    return tmp_path


def write(folder: Path, files: list[dict[str, Any]]) -> None:
    (folder / "files.jsonl").write_text("\n".join(json.dumps(file) for file in files))


def test_facts_when_all_hold_then_counts_them_and_ends_with_0(extract: Run, folder: Path) -> None:
    status, printed = extract(str(folder), "--json")
    assert json.loads(printed) == {"files": 4, "facts": 7, "failed_facts": []}
    assert status == 0


def test_facts_when_some_fail_then_tells_which_and_why_and_ends_with_1(extract: Run, folder: Path) -> None:
    write(
        folder,
        [
            {"path": "rail.txt", "facts": ["second class", "air travel", "ERR: broken"], "hard": ""},
            {"path": "prices.csv", "facts": ["r2c2=13", "NOT: salt"], "hard": ""},
            {"path": "torn.docx", "facts": ["its text"], "hard": ""},
            {"path": "sealed.pdf", "facts": ["p1: A secret kept"], "hard": ""},
        ],
    )
    status, printed = extract(str(folder), "--json")
    report = json.loads(printed)
    assert (status, report["files"], report["facts"]) == (1, 4, 7)
    assert {(failed["file"], failed["fact"]): failed["why"] for failed in report["failed_facts"]} == {
        ("rail.txt", "air travel"): "it was not found in what was read",
        ("rail.txt", "ERR: broken"): "it was read without an error",
        ("prices.csv", "r2c2=13"): "it was not found in what was read",
        ("prices.csv", "NOT: salt"): "it is there",
        ("torn.docx", "its text"): "ended with UNSUPPORTED_FORMAT",
        ("sealed.pdf", "p1: A secret kept"): "ended with PASSWORD_REQUIRED",
    }


def test_table_when_printed_then_shows_each_file_that_was_asked_for(extract: Run, folder: Path) -> None:
    status, printed = extract(str(folder), "--only", "rail", "--only", "torn")
    assert status == 0
    assert "2 files, 3 facts, 0 failed" in printed
    lines = {line.split()[1]: line.split() for line in printed.splitlines() if line.startswith("pass")}
    assert sorted(lines) == ["rail.txt", "torn.docx"]
    _, _, outcome, parse_s, total_s = lines["rail.txt"]
    assert outcome == "DONE"
    assert 0 < float(total_s) >= float(parse_s)
    assert lines["torn.docx"][2] == "UNSUPPORTED_FORMAT"


def test_folder_when_a_file_is_missing_then_names_it(extract: Run, folder: Path) -> None:
    write(folder, [{"path": "gone.txt", "facts": ["x"], "hard": ""}])
    status, printed = extract(str(folder))
    assert status == 2
    assert "gone.txt is in files.jsonl and not in the folder" in printed


def test_knowledge_base_when_the_run_is_over_then_is_deleted(extract: Run, folder: Path, product: Product) -> None:
    extract(str(folder), "--only", "rail", "--json")
    listed = CliRunner().invoke(cli, ["--server", product.target, "--api-key", key_of("acme"), "kb", "list", "--json"])
    assert "eval extraction" not in listed.stdout
