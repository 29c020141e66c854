"""`pergamon bench` against a server that runs, and against one that it has to start."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from services.launch.cli import cli
from services.launch.session import find_running
from tests.helpers.product import MODEL, QUICK, Product, key_of, make_kb, put, running_product

Run = Callable[..., Any]
QUICKLY = ("--warm-up", "0", "--json")


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    with running_product(tmp_path_factory.mktemp("bench")) as running:
        yield running


@pytest.fixture
def bench(product: Product) -> Run:
    """Runs `pergamon bench ...` with --json; its parsed output."""

    def run(*arguments: str) -> Any:
        common = ["--server", product.target, "--api-key", key_of("acme"), "bench"]
        result = CliRunner().invoke(cli, [*common, *arguments, *QUICKLY], standalone_mode=True)
        assert result.exit_code == 0, result.output + repr(result.exception)
        return json.loads(result.stdout)

    return run


def test_embed_when_given_a_number_of_calls_then_all_are_answered_and_told_apart_by_priority(bench: Run) -> None:
    report = bench("embed", "--calls", "40", "--clients", "4", "--texts", "1-3", "--words", "3-5", "--bulk", "0.5")
    assert (report["loop"], report["sent"], report["answered"], report["errors"]) == ("closed", 40, 40, [])
    assert report["failed_texts"] == report["hung"] == report["not_sent"] == 0
    assert set(report["by_label"]) == {"interactive", "bulk"}
    assert report["texts_per_s"] > report["calls_per_s"] > 0
    assert 0 < report["latency_ms"]["p50"] <= report["latency_ms"]["p99"] <= report["latency_ms"]["max"]


def test_embed_when_given_a_rate_then_an_open_loop_that_tells_how_late_it_was(bench: Run) -> None:
    report = bench("embed", "--rate", "50", "--calls", "20", "--words", "3")
    assert (report["loop"], report["clients"], report["sent"]) == ("open", None, 20)
    assert report["generator"]["lag_ms"]["max"] >= 0


def test_embed_when_the_first_call_fails_then_the_command_fails_with_its_error(product: Product) -> None:
    arguments = ["--server", product.target, "--api-key", "wrong", "bench", "embed", "--calls", "5", *QUICKLY]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code != 0
    assert "UNAUTHENTICATED" in repr(result.exception)


def test_rerank_when_run_then_every_passage_is_scored(bench: Run) -> None:
    report = bench("rerank", "--calls", "3", "--clients", "1", "--passages", "4", "--words", "5-9")
    assert (report["answered"], report["failed_texts"]) == (3, 0)
    assert set(report["by_label"]) == {"rerank"}


def test_search_when_given_queries_then_asks_the_knowledge_base(bench: Run, product: Product, tmp_path: Path) -> None:
    async def fill() -> None:
        async with product.client() as client:
            await put(client, await make_kb(client, "bench"), "a.md", "The pump is reset with the green button.")

    asyncio.run(fill())
    queries = tmp_path / "queries.txt"
    queries.write_text("how is the pump reset\n\ngreen button\n")
    report = bench("search", "--kb", "bench", "--queries", str(queries), "--calls", "6", "--clients", "2")
    assert (report["answered"], report["errors"]) == (6, [])


def test_embed_when_words_are_no_span_then_refused_with_what_is_allowed(product: Product) -> None:
    result = CliRunner().invoke(cli, ["--server", product.target, "bench", "embed", "--words", "9-3"])
    assert result.exit_code == 2
    assert "20-300" in result.stderr


def test_embed_when_no_server_runs_then_starts_one_for_it_and_stops_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in QUICK.items():
        monkeypatch.setenv(name, value)
    arguments = ["--data-dir", str(tmp_path), "bench", "embed", "--model", MODEL, "--calls", "4", *QUICKLY]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output + repr(result.exception)
    assert json.loads(result.stdout)["answered"] == 4
    assert asyncio.run(find_running(tmp_path)) is None
