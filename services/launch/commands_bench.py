"""`pergamon bench`: load a deployment with calls, and see what it does with them."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from pergamon.client import AsyncClient, RetryPolicy, SearchOptions
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from services.common import logs
from services.launch.bench_calls import Mix, embed_calls, made_up_queries, rerank_calls, search_calls
from services.launch.bench_load import LoadPlan, Measured, Ticket, run_load
from services.launch.bench_report import report_of
from services.launch.bench_server import server_of
from services.launch.bench_texts import Span
from services.launch.commands_search import MODES
from services.launch.knowledge_base_ref import find_knowledge_base, only_knowledge_base
from services.launch.output import console, errors, print_json, print_table
from services.launch.session import Options

_MAX_CLIENTS = 256
_REFRESH_S = 0.2


class _SpanType(click.ParamType[Span]):
    name = "N|MIN-MAX"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Span:
        if isinstance(value, Span):
            return value
        try:
            return Span.parse(str(value))
        except ValueError:
            self.fail(f"{value!r} is neither a number above 0 nor a span as 20-300", param, ctx)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """What the options that all three commands share say."""

    plan: LoadPlan
    warm_up_s: float
    within_ms: float
    as_json: bool


Decorator = Callable[[Callable[..., None]], Callable[..., None]]


def register(cli: click.Group) -> None:
    cli.add_command(bench)


@click.group("bench")
def bench() -> None:
    """Load a deployment and measure rates, latency, refusals.

    A closed loop (--clients) waits for each answer before it sends the next call; an open one (--rate) sends at
    random moments at that rate, whatever the server does, and counts latency from the moment a call was due.
    Calls are never repeated. The generator uses one core at the most: where it says that it needed a whole one,
    run several on other machines.
    """


_SHARED: tuple[Decorator, ...] = (
    click.option("--clients", type=click.IntRange(1, _MAX_CLIENTS), default=8, show_default=True, help="Closed loop."),
    click.option("--rate", type=click.FloatRange(0, min_open=True), default=None, help="Calls a second: open loop."),
    click.option("--max-outstanding", type=click.IntRange(1, 65_536), default=1024, show_default=True,
                 help="Open loop: calls in the air; those beyond are counted as not sent."),
    click.option("--duration", type=click.FloatRange(0.1), default=10.0, show_default=True, help="Seconds."),
    click.option("--calls", type=click.IntRange(1, 10_000_000), default=None, help="So many calls, not a duration."),
    click.option("--warm-up", type=click.FloatRange(0), default=2.0, show_default=True, help="Seconds, not counted."),
    click.option("--timeout", type=click.FloatRange(0, min_open=True), default=30.0, show_default=True,
                 help="Deadline of a call in seconds."),
    click.option("--within", type=click.FloatRange(0), default=0.0, help="Goodput: answers within so many ms only."),
    click.option("--seed", type=int, default=0, help="Of texts and arrivals."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON."),
)  # fmt: skip


def _shared_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_SHARED):
        command = option(command)
    return command


@bench.command("embed")
@click.option("--texts", type=_SpanType(), default="1", show_default=True, help="Texts a call.")
@click.option("--words", type=_SpanType(), default="20-60", show_default=True, help="Words a text.")
@click.option("--bulk", "bulk_share", type=click.FloatRange(0, 1), default=0.0, help="Share of calls in the bulk lane.")
@click.option("--model", default="", help="Name or alias (default: the server's).")
@click.option("--sparse", is_flag=True, help="BM25 vectors too.")
@_shared_options
@click.pass_obj
def bench_embed(
    options: Options, texts: Span, words: Span, bulk_share: float, model: str, sparse: bool, **shared: Any
) -> None:
    """Embed made-up texts."""
    run = _run_of(**shared)
    mix = Mix(texts=texts, words=words, bulk_share=bulk_share, seed=run.plan.seed)

    async def calls(client: AsyncClient) -> Iterator[Ticket]:
        return embed_calls(client, mix, model=model, sparse=sparse, timeout_s=run.plan.timeout_s)

    _measure(options, run, calls)


@bench.command("rerank")
@click.option("--passages", type=_SpanType(), default="50", show_default=True, help="Passages a call.")
@click.option("--words", type=_SpanType(), default="60-120", show_default=True, help="Words a passage.")
@click.option("--model", default="", help="Name or alias (default: the server's).")
@_shared_options
@click.pass_obj
def bench_rerank(options: Options, passages: Span, words: Span, model: str, **shared: Any) -> None:
    """Rerank made-up passages."""
    run = _run_of(**shared)
    mix = Mix(texts=passages, words=words, seed=run.plan.seed)

    async def calls(client: AsyncClient) -> Iterator[Ticket]:
        return rerank_calls(client, mix, model=model, timeout_s=run.plan.timeout_s)

    _measure(options, run, calls)


@bench.command("search")
@click.option("--kb", "references", multiple=True, help="Knowledge base, an id or a name; may be repeated.")
@click.option("--queries", type=click.Path(exists=True, dir_okay=False, path_type=Path), default=None,
              help="A query a line, used in turn (default: made-up ones, which find little).")  # fmt: skip
@click.option("--mode", type=click.Choice(list(MODES)), default=None, help="Default: as the knowledge base says.")
@click.option("--top-k", type=click.IntRange(1, 100), default=None, help="Results wanted (default 5).")
@click.option("--rerank/--no-rerank", default=None, help="Judge the candidates with a cross-encoder.")
@_shared_options
@click.pass_obj
def bench_search(
    options: Options,
    references: tuple[str, ...],
    queries: Path | None,
    mode: str | None,
    top_k: int | None,
    rerank: bool | None,
    **shared: Any,
) -> None:
    """Search a knowledge base that is there."""
    run = _run_of(**shared)
    asked = _lines_of(queries) if queries else made_up_queries(run.plan.seed)
    how: SearchOptions = {"top_k": top_k, "rerank": rerank}
    if mode:
        how["mode"] = MODES[mode]

    async def calls(client: AsyncClient) -> Iterator[Ticket]:
        found = [await find_knowledge_base(client, reference) for reference in references]
        bases = [base.id for base in found or [await only_knowledge_base(client)]]
        return search_calls(client, asked, bases, how, timeout_s=run.plan.timeout_s)

    _measure(options, run, calls)


def _run_of(
    *, clients: int, rate: float | None, max_outstanding: int, duration: float, calls: int | None, warm_up: float,
    timeout: float, within: float, seed: int, as_json: bool,
) -> _Run:  # fmt: skip
    plan = LoadPlan(
        clients=clients,
        rate_per_s=rate or 0.0,
        duration_s=duration,
        calls=calls or 0,
        max_outstanding=max_outstanding,
        timeout_s=timeout,
        seed=seed,
    )
    return _Run(plan=plan, warm_up_s=warm_up, within_ms=within, as_json=as_json)


def _lines_of(path: Path) -> list[str]:
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    queries = [line for line in lines if line]
    if not queries:
        raise click.BadParameter("holds no query", param_hint="--queries")
    return queries


def _measure(options: Options, run: _Run, calls: Callable[[AsyncClient], Any]) -> None:
    logs.configure("WARNING", "text")

    async def work() -> Measured:
        async with server_of(options) as target:
            client = AsyncClient(
                target, api_key=options.api_key or None, timeout_s=run.plan.timeout_s, retry=RetryPolicy(max_attempts=1)
            )
            async with client:
                tickets = await calls(client)
                await _prove(next(tickets))
                if run.warm_up_s:
                    await run_load(replace(run.plan, duration_s=run.warm_up_s, calls=0), tickets, Measured())
                measured = Measured()
                async with _progress(run.plan, measured, shown=not run.as_json):
                    return await run_load(run.plan, tickets, measured)

    report = report_of(run.plan, asyncio.run(work()), within_ms=run.within_ms)
    if run.as_json:
        print_json(report)
    else:
        _print(report)


async def _prove(ticket: Ticket) -> None:
    """One call before all others, whose error ends the command: a wrong model or key is not a measurement."""
    await ticket.send()


@contextlib.asynccontextmanager
async def _progress(plan: LoadPlan, measured: Measured, *, shown: bool) -> AsyncGenerator[None]:
    """A bar on standard error, drawn a few times a second whatever the rate of calls."""
    if not shown:
        yield
        return
    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[ended]} calls ended"))
    with Progress(*columns, console=errors, auto_refresh=False, transient=True) as bar:
        task = bar.add_task("", total=plan.calls or plan.duration_s, ended=0)

        async def draw() -> None:
            loop = asyncio.get_running_loop()
            started = loop.time()
            while True:
                done = measured.ended if plan.calls else min(plan.duration_s, loop.time() - started)
                bar.update(task, completed=done, ended=measured.ended)
                bar.refresh()
                await asyncio.sleep(_REFRESH_S)

        drawing = asyncio.create_task(draw())
        try:
            yield
        finally:
            drawing.cancel()
            await asyncio.gather(drawing, return_exceptions=True)


def _print(report: dict[str, Any]) -> None:
    loop = f"open loop, {report['rate_per_s']:g} calls/s" if report["rate_per_s"] else f"{report['clients']} clients"
    console.print(
        f"{loop}, {report['seconds']:.1f} s: {report['calls_per_s']:.1f} calls/s, {report['texts_per_s']:.1f} texts/s"
        f" (goodput {report['goodput_texts_per_s']:.1f})"
    )
    rows = [_row(label, group["calls_per_s"], group["latency_ms"]) for label, group in report["by_label"].items()]
    rows += [_row(error["reason"], f"{error['calls']} in all", error["latency_ms"]) for error in report["errors"]]
    print_table(("calls", "calls/s", "p50 ms", "p95 ms", "p99 ms", "max ms"), rows, "no call has ended")
    for name, what in (("not_sent", "calls not sent, too many in the air"), ("hung", "calls without an answer"),
                       ("failed_texts", "texts failed in calls that were answered")):  # fmt: skip
        if report[name]:
            console.print(f"{report[name]} {what}")
    generator = report["generator"]
    lag = f", behind its schedule by {generator['lag_ms']['p99']:.1f} ms (p99)" if generator["lag_ms"] else ""
    console.print(f"the generator used {generator['cores']:.2f} of a core{lag}")


def _row(name: str, rate: object, latency: dict[str, float]) -> tuple[str, ...]:
    return (name, str(rate), *(f"{latency[key]:.1f}" for key in ("p50", "p95", "p99", "max")))
