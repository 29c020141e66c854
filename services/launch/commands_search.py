"""`pergamon search`: ask, and see the passages with the proof where they are from."""

import click
from pergamon.client import AsyncClient
from pergamon.retriever.v1 import retriever_pb2 as pb

from services.launch.knowledge_base_ref import find_knowledge_base, only_knowledge_base
from services.launch.output import as_dict, console, print_json
from services.launch.session import Options, with_client

MODES = {
    "hybrid": pb.SEARCH_MODE_HYBRID,
    "semantic": pb.SEARCH_MODE_SEMANTIC,
    "keyword": pb.SEARCH_MODE_KEYWORD,
}


def register(cli: click.Group) -> None:
    cli.add_command(search)


@click.command()
@click.argument("query")
@click.option("--kb", "references", multiple=True, help="Knowledge base, an id or a name; may be repeated.")
@click.option("--mode", type=click.Choice(list(MODES)), default=None, help="Default: as the knowledge base says.")
@click.option("--top-k", type=click.IntRange(1, 100), default=None, help="Results wanted (default 5).")
@click.option("--rerank/--no-rerank", default=None, help="Judge the candidates with a cross-encoder.")
@click.option("--explain", is_flag=True, help="Also print what each stage did.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def search(
    options: Options,
    query: str,
    references: tuple[str, ...],
    mode: str | None,
    top_k: int | None,
    rerank: bool | None,
    explain: bool,
    as_json: bool,
) -> None:
    """Search for QUERY."""

    async def work(client: AsyncClient) -> pb.SearchResponse:
        if references:
            bases = [await find_knowledge_base(client, reference) for reference in references]
        else:
            bases = [await only_knowledge_base(client)]
        chosen = MODES[mode] if mode else pb.SEARCH_MODE_UNSPECIFIED
        return await client.search(query, [base.id for base in bases], mode=chosen, top_k=top_k, rerank=rerank)

    response = with_client(options, work)
    if as_json:
        print_json(as_dict(response))
        return
    for position, passage in enumerate(response.passages, 1):
        print_passage(position, passage)
    if not response.passages:
        console.print("nothing found")
    if explain:
        print_stages(response)


def print_passage(position: int, passage: pb.Passage, width: int = 480) -> None:
    """One result: where it is from, how it was found, and its text (shortened to `width` characters)."""
    section = " > ".join(passage.section)
    place = passage.document_name + (f" > {section}" if section else "")
    console.print(f"[bold]{position}. {_plain(place)}[/bold]{_pages(passage)}", markup=True)
    console.print(f"   {describe_scores(passage.scores)}", style="dim", markup=False)
    text = " ".join(passage.text.split())
    console.print(f"   {text if len(text) <= width else text[: width - 1] + '…'}\n", markup=False)


def describe_scores(scores: pb.PassageScores) -> str:
    """Ranks, scores and how the passage was found, in a line."""
    parts = [f"matched by {pb.MatchedBy.Name(scores.matched_by).removeprefix('MATCHED_BY_').lower()}"]
    if scores.HasField("dense"):
        parts.append(f"dense #{scores.dense.rank} ({scores.dense.score:.3f})")
    if scores.HasField("bm25"):
        parts.append(f"bm25 #{scores.bm25.rank} ({scores.bm25.score:.2f})")
    parts.append(f"fused #{scores.fused_rank} ({scores.fused:.4f})")
    if scores.HasField("rerank"):
        label = pb.RelevanceLabel.Name(scores.rerank.label).removeprefix("RELEVANCE_LABEL_")
        parts.append(f"rerank {label} (logit {scores.rerank.logit:.2f}, probability {scores.rerank.probability:.3f})")
    return " · ".join(parts)


def print_stages(response: pb.SearchResponse) -> None:
    for stage in response.stages:
        state = pb.StageState.Name(stage.state).removeprefix("STAGE_STATE_")
        reason = f" ({stage.reason})" if stage.reason else ""
        line = (
            f"{stage.stage:8} {state:9} {stage.duration_ms:7.1f} ms {stage.candidates_in:4} -> {stage.candidates_out}"
        )
        console.print(f"{line}{reason}", markup=False)
    console.print(f"total {response.total_ms:.1f} ms", markup=False)


def _pages(passage: pb.Passage) -> str:
    if not passage.first_page:
        return ""
    if passage.first_page == passage.last_page:
        return f", page {passage.first_page}"
    return f", pages {passage.first_page}-{passage.last_page}"


def _plain(text: str) -> str:
    return text.replace("[", r"\[")
