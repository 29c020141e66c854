"""Every command of `pergamon` against a server that runs, as a script would use it: --json in, one JSON value out."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from services.launch.cli import cli
from services.launch.session import RunningServer, announce, withdraw
from tests.helpers.files import docx_file, pdf_file, zip_file
from tests.helpers.processes import ROOT
from tests.helpers.product import MODEL, Product, key_of

Run = Callable[..., Any]


@pytest.fixture
def pergamon(product: Product) -> Run:
    """Runs a command with --json; its parsed output. `status` is the exit status wanted."""

    def run(*arguments: str, status: int = 0) -> Any:
        common = ["--server", product.target, "--api-key", key_of("acme")]
        result = CliRunner().invoke(cli, [*common, *arguments, "--json"], standalone_mode=True)
        assert result.exit_code == status, result.output + repr(result.exception)
        return json.loads(result.stdout) if result.stdout.strip() else None

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = tmp_path / "files"
    (files / "deep").mkdir(parents=True)
    (files / "travel.md").write_text("# Rail\n\nThe company pays for rail travel in second class.")
    (files / "deep" / "hotel.docx").write_bytes(docx_file("Hotel rooms may cost up to 140 euros."))
    (files / "manual.pdf").write_bytes(pdf_file("Hold the green button for ten seconds to reset the pump."))
    (files / ".hidden").write_text("not for you")
    return files


@pytest.fixture
def kb(pergamon: Run, request: pytest.FixtureRequest) -> Iterator[str]:
    made = pergamon("kb", "create", request.node.name[:100], "--model", MODEL)
    yield made["id"]
    pergamon("kb", "delete", made["id"])


def test_kb_when_created_then_it_is_listed_shown_and_deleted(pergamon: Run) -> None:
    made = pergamon("kb", "create", "from the shell", "--description", "d", "--language", "en", "--chunk-size", "100")
    assert (made["name"], made["chunking"]["size"], made["chunking"]["overlap"]) == ("from the shell", 100, 10)
    assert made["id"] in [entry["id"] for entry in pergamon("kb", "list")]
    assert pergamon("kb", "get", "from the shell")["id"] == made["id"]
    assert pergamon("kb", "delete", "from the shell") == {"knowledge_base_id": made["id"]}
    assert made["id"] not in [entry["id"] for entry in pergamon("kb", "list")]


def test_ingest_when_given_a_folder_then_every_visible_file_is_done_and_a_second_run_changes_nothing(
    pergamon: Run, kb: str, folder: Path
) -> None:
    first = pergamon("ingest", str(folder), "--kb", kb)
    assert {entry["name"]: entry["state"] for entry in first} == {
        "travel.md": "DONE",
        "deep/hotel.docx": "DONE",
        "manual.pdf": "DONE",
    }
    assert all(entry["chunks"] == 1 for entry in first)
    second = pergamon("ingest", str(folder), "--kb", kb)
    assert {entry["state"] for entry in second} == {"UNCHANGED"}


def test_ingest_when_one_file_is_bad_then_the_others_are_done_and_the_status_is_1(
    pergamon: Run, kb: str, folder: Path
) -> None:
    (folder / "archive.zip").write_bytes(zip_file())
    (folder / "empty.txt").write_bytes(b"")
    (folder / "copy.md").write_bytes((folder / "travel.md").read_bytes())
    ended = pergamon("ingest", str(folder), "--kb", kb, status=1)
    states = sorted(entry["state"] for entry in ended)
    assert states == ["DONE", "DONE", "DONE", "DUPLICATE", "REFUSED", "REFUSED"]
    notes = " ".join(entry["note"] for entry in ended)
    assert "UNSUPPORTED_FORMAT" in notes
    assert "EMPTY_FILE" in notes


def test_ingest_when_told_to_create_then_the_knowledge_base_is_made_once(pergamon: Run, folder: Path) -> None:
    pergamon("ingest", str(folder / "travel.md"), "--kb", "made by ingest", "--create")
    pergamon("ingest", str(folder / "manual.pdf"), "--kb", "made by ingest", "--create")
    assert len(pergamon("docs", "list", "--kb", "made by ingest")) == 2
    pergamon("kb", "delete", "made by ingest")


def test_docs_and_jobs_when_a_file_was_ingested_then_they_show_it(pergamon: Run, kb: str, folder: Path) -> None:
    (ended,) = pergamon("ingest", str(folder / "travel.md"), "--kb", kb)
    (document,) = pergamon("docs", "list", "--kb", kb)
    assert (document["id"], document["name"], document["state"]) == (
        ended["document_id"],
        "travel.md",
        "DOCUMENT_STATE_DONE",
    )
    (job,) = pergamon("jobs", "list", "--kb", kb)
    assert (job["id"], job["kind"], job["state"]) == (ended["job_id"], "JOB_KIND_INGEST", "JOB_STATE_DONE")
    assert pergamon("jobs", "watch", job["id"])["state"] == "JOB_STATE_DONE"
    assert pergamon("docs", "delete", document["id"]) == {"document_id": document["id"]}
    assert pergamon("docs", "list", "--kb", kb) == []


def test_search_when_asked_in_each_mode_then_the_passage_comes_with_its_proof(
    pergamon: Run, kb: str, folder: Path
) -> None:
    pergamon("ingest", str(folder), "--kb", kb)
    for mode in ("hybrid", "semantic", "keyword"):
        reply = pergamon("search", "reset the pump", "--kb", kb, "--mode", mode, "--top-k", "1")
        (passage,) = reply["passages"]
        assert (passage["document_name"], passage["first_page"]) == ("manual.pdf", 1)
        assert reply["stages"][0]["stage"] == "plan"


def test_models_when_listed_then_the_installed_ones_are_there_and_pulling_them_again_is_quick(pergamon: Run) -> None:
    listed = pergamon("models", "list")
    assert MODEL in [card["name"] for card in listed["installed"]]
    assert all(card["size_bytes"] > 1_000_000 for card in listed["installed"])
    assert [card["name"] for card in pergamon("models", "pull", MODEL)] == [MODEL]


def test_models_when_loaded_then_the_list_says_so_and_the_default_ones_stay(pergamon: Run, product: Product) -> None:
    common = ["--server", product.target, "--api-key", key_of("acme")]
    for name in (MODEL, "ms-marco-minilm-l12"):
        loaded = pergamon("models", "load", name)
        assert (loaded["name"], loaded["loaded"]) == (name, True)
        assert CliRunner().invoke(cli, [*common, "models", "unload", name]).exit_code == 1
    states = {card["name"]: card["loaded"] for card in pergamon("models", "list")["installed"]}
    assert states[MODEL] is states["ms-marco-minilm-l12"] is True


def test_eval_retrieval_when_run_twice_then_the_second_run_only_searches(pergamon: Run, tmp_path: Path) -> None:
    topics = ["zeppelin", "harbour", "violin", "glacier", "espresso", "lighthouse"]
    collection = tmp_path / "tiny"
    collection.mkdir()
    corpus = [
        {"_id": f"d{n}", "title": "", "text": f"All about the {word} and its parts."} for n, word in enumerate(topics)
    ]
    queries = [{"_id": f"q{n}", "text": f"what is a {word}"} for n, word in enumerate(topics)]
    (collection / "corpus.jsonl").write_text("\n".join(json.dumps(entry) for entry in corpus))
    (collection / "queries.jsonl").write_text("\n".join(json.dumps(entry) for entry in queries))
    judged = [f"q{n}\td{n}\t1" for n in range(len(topics))]
    (collection / "qrels.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged]) + "\n")
    first = pergamon("eval", "retrieval", str(collection), "--model", MODEL)
    assert (first["ndcg_at_10"], first["recall_at_10"], first["mrr_at_10"]) == (1.0, 1.0, 1.0)
    assert (first["documents"], first["queries"], first["degraded"]) == (6, 6, 0)
    assert first["p50_ms"] > 0
    second = pergamon("eval", "retrieval", str(collection), "--model", MODEL, "--mode", "keyword", "--limit", "3")
    assert (second["ingest_s"], second["queries"], second["ndcg_at_10"]) == (0.0, 3, 1.0)


def test_commands_when_the_server_announced_itself_then_they_find_it_by_the_data_folder(product: Product) -> None:
    announce(product.data_dir, RunningServer(pid=os.getpid(), target=product.target))
    try:
        arguments = ["--data-dir", str(product.data_dir), "--api-key", key_of("acme"), "kb", "list", "--json"]
        result = CliRunner().invoke(cli, arguments)
    finally:
        withdraw(product.data_dir)
    assert result.exit_code == 0, result.output
    assert isinstance(json.loads(result.stdout), list)


def _shell(product: Product, *arguments: str, key: str = "acme") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from services.launch.cli import main; main()"]
    command += ["--server", product.target, "--api-key", key_of(key), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_main_when_a_document_is_refused_then_the_process_ends_with_1(product: Product, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_bytes(b"")
    ended = _shell(product, "ingest", str(tmp_path / "empty.txt"), "--kb", "refused", "--create", "--json")
    assert ended.returncode == 1, ended.stderr
    assert json.loads(ended.stdout)[0]["state"] == "REFUSED"


def test_main_when_the_key_may_not_write_then_one_line_says_so(product: Product) -> None:
    ended = _shell(product, "kb", "create", "no", key="acme-reader")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("PERMISSION_DENIED: ")
    assert "Traceback" not in ended.stderr
