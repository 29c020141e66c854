"""`pergamon models`: what is on this machine, and fetching more."""

from dataclasses import asdict
from pathlib import Path

import click

from services.launch.models import DEFAULT_MODELS, pull_models, size_of, starter_names, store_of
from services.launch.output import console, megabytes, print_json, print_table

_models_dir = click.option(
    "--models-dir", type=click.Path(path_type=Path), default=None, envvar="PERGAMON_MODELS_DIR", help="Where they are."
)


def register(cli: click.Group) -> None:
    cli.add_command(models)


@click.group()
def models() -> None:
    """List and fetch models."""


@models.command("list")
@_models_dir
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def models_list(models_dir: Path | None, as_json: bool) -> None:
    """List the models on this machine, and the starter models that could be fetched."""
    store = store_of(models_dir)
    here = store.installed()
    missing = [name for name in starter_names() if name not in {card.name for card in here}]
    if as_json:
        installed = [{**asdict(card), "size_bytes": size_of(store, card)} for card in here]
        print_json({"installed": installed, "available": missing})
        return
    rows = [
        (card.name, card.kind.value, card.dimensions, card.max_tokens, card.licence, megabytes(size_of(store, card)))
        for card in here
    ]
    print_table(("name", "kind", "dimensions", "tokens", "licence", "size"), rows, "no models on this machine")
    if missing:
        console.print(f"\nto fetch: {', '.join(missing)} (`pergamon models pull NAME`)")


@models.command("pull")
@click.argument("names", nargs=-1)
@click.option("--starter", is_flag=True, help="All starter models.")
@_models_dir
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def models_pull(names: tuple[str, ...], starter: bool, models_dir: Path | None, as_json: bool) -> None:
    """Fetch models by NAME: a starter model, hf:ORGANISATION/NAME from a model hub, or file:FOLDER.

    Without a name: what a first run needs.
    """
    wanted = starter_names() if starter else names or DEFAULT_MODELS
    cards = pull_models(store_of(models_dir), wanted, quiet=as_json)
    if as_json:
        print_json([asdict(card) for card in cards])
    else:
        console.print(", ".join(card.name for card in cards))
