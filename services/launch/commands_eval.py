"""`pergamon eval`: measure retrieval and extraction on collections with known answers."""

from dataclasses import asdict
from pathlib import Path

import click
from pergamon.client import AsyncClient

from services.launch.commands_search import MODES
from services.launch.eval_extract import evaluate_files, load_files
from services.launch.eval_retrieval import EvalOptions, EvalResult, evaluate, load_collection
from services.launch.output import console, print_json, print_table
from services.launch.session import Options, with_client


def register(cli: click.Group) -> None:
    cli.add_command(evaluation)


@click.group("eval")
def evaluation() -> None:
    """Measure quality on collections with known answers."""


@evaluation.command("retrieval")
@click.argument("folders", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--mode", type=click.Choice(list(MODES)), default="hybrid", show_default=True)
@click.option("--rerank", is_flag=True, help="Judge the candidates with a cross-encoder.")
@click.option("--model", default="", help="Embedding model (default: the server's).")
@click.option("--weights", default=None, metavar="DENSE,BM25", help="Weights of fusion, as 0.7,0.3.")
@click.option("--limit", type=click.IntRange(0), default=0, help="Only the first so many queries.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def eval_retrieval(
    options: Options,
    folders: tuple[Path, ...],
    mode: str,
    rerank: bool,
    model: str,
    weights: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Run the judged queries of FOLDERS (corpus.jsonl, queries.jsonl, qrels.tsv) and print ranking metrics.

    The corpus is ingested into a knowledge base that is kept, so that another run only searches.
    """
    chosen = EvalOptions(
        mode=MODES[mode],
        rerank=rerank,
        model=model,
        weights=_weights(weights),
        limit=limit,
        progress=not as_json,
    )
    collections = [load_collection(folder) for folder in folders]

    async def work(client: AsyncClient) -> list[EvalResult]:
        return [await evaluate(client, collection, chosen) for collection in collections]

    results = with_client(options, work)
    if as_json:
        values = [result.as_dict() for result in results]
        print_json(values[0] if len(values) == 1 else values)
        return
    rows = [
        (
            result.collection,
            result.queries,
            f"{result.ndcg_at_10:.4f}",
            f"{result.recall_at_10:.4f}",
            f"{result.mrr_at_10:.4f}",
            f"{result.p50_ms:.1f}",
            f"{result.p95_ms:.1f}",
            result.degraded or "",
        )
        for result in results
    ]
    print_table(("collection", "queries", "nDCG@10", "Recall@10", "MRR@10", "p50 ms", "p95 ms", "degraded"), rows, "")


@evaluation.command("extract")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--only", multiple=True, metavar="PART", help="Only files whose path holds PART; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def eval_extract(options: Options, folder: Path, only: tuple[str, ...], as_json: bool) -> None:
    """Check the facts of hard files in FOLDER (files.jsonl) through the API. Ends with status 1 when one fails."""
    try:
        known = load_files(folder)
    except (OSError, ValueError, KeyError) as error:
        raise click.BadParameter(f"files.jsonl cannot be read: {error}", param_hint="FOLDER") from error
    files = [file for file in known if not only or any(part in file.name for part in only)]
    results = with_client(options, lambda client: evaluate_files(client, files, progress=not as_json))
    failed = [fact for result in results for fact in result.failed]
    facts = sum(len(file.facts) for file in files)
    if as_json:
        print_json({"files": len(files), "facts": facts, "failed_facts": [asdict(fact) for fact in failed]})
    else:
        rows = (
            (
                "FAIL" if result.failed else "pass",
                result.file.name,
                result.outcome,
                f"{result.parse_seconds:.1f}",
                f"{result.seconds:.1f}",
            )
            for result in results
        )
        print_table(("facts", "file", "outcome", "parse s", "total s"), rows, "no files")
        for fact in failed:
            console.print(f"{fact.file}: {fact.fact!r}: {fact.why}", markup=False)
        console.print(f"{len(files)} files, {facts} facts, {len(failed)} failed")
    if failed:
        raise click.exceptions.Exit(1)


def _weights(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        dense, bm25 = (float(part) for part in text.split(","))
    except ValueError as error:
        raise click.BadParameter("must be two numbers, as 0.7,0.3", param_hint="--weights") from error
    return dense, bm25
