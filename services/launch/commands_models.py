"""`pergamon models`: what is on this machine and in memory, fetching more, loading and unloading."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path

import click
from pergamon.client import AsyncClient
from pergamon.type.v1.model_pb2 import Model

from services.common import logs
from services.inference.cards import ModelKind
from services.inference.sources import starter_model
from services.launch.models import DEFAULT_MODELS, pull_models, size_of, starter_names, store_of
from services.launch.output import as_dict, console, megabytes, print_json, print_table
from services.launch.session import Options, find_running

_models_dir = click.option(
    "--models-dir", type=click.Path(path_type=Path), default=None, envvar="PERGAMON_MODELS_DIR", help="Where they are."
)
_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def register(cli: click.Group) -> None:
    cli.add_command(models)


@click.group()
def models() -> None:
    """List, fetch, load and unload models."""


@models.command("list")
@_models_dir
@_as_json
@click.pass_obj
def models_list(options: Options, models_dir: Path | None, as_json: bool) -> None:
    """List the models on this machine, which of them a running server has loaded, and what could be fetched."""
    store = store_of(models_dir)
    here = store.installed()
    missing = [name for name in starter_names() if name not in {card.name for card in here}]
    loaded = asyncio.run(_loaded(options))
    if as_json:
        states = [None if loaded is None else card.name in loaded for card in here]
        installed = [
            {**asdict(card), "size_bytes": size_of(store, card), "loaded": state}
            for card, state in zip(here, states, strict=True)
        ]
        print_json({"installed": installed, "available": missing})
        return
    rows = [
        (card.name, card.kind.value, card.dimensions, card.max_tokens, card.licence, megabytes(size_of(store, card)),
         "" if loaded is None else "loaded" if card.name in loaded else "")
        for card in here
    ]  # fmt: skip
    print_table(("name", "kind", "dimensions", "tokens", "licence", "size", "state"), rows, "no models on this machine")
    if missing:
        console.print(f"\nto fetch: {', '.join(missing)} (`pergamon models pull NAME`)")


@models.command("pull")
@click.argument("names", nargs=-1)
@click.option("--starter", is_flag=True, help="All starter models.")
@_models_dir
@_as_json
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


@models.command("load")
@click.argument("name")
@_as_json
@click.pass_obj
def models_load(options: Options, name: str, as_json: bool) -> None:
    """Have the server load the embedding model or reranker NAME and keep it, until it stops or unloads it."""

    async def work(client: AsyncClient) -> Model:
        if await _is_reranker(client, name):
            return await client.load_rerank_model(name)
        return await client.load_embedding_model(name)

    _print(_changed(options, work), as_json)


@models.command("unload")
@click.argument("name")
@_as_json
@click.pass_obj
def models_unload(options: Options, name: str, as_json: bool) -> None:
    """Have the server finish the calls that use NAME and give its memory back."""

    async def work(client: AsyncClient) -> Model:
        if await _is_reranker(client, name):
            return await client.unload_rerank_model(name)
        return await client.unload_embedding_model(name)

    _print(_changed(options, work), as_json)


async def _is_reranker(client: AsyncClient, name: str) -> bool:
    """Which service is asked: the reranker for what it lists, and for a starter model that it would fetch."""
    starter = starter_model(name.lower())
    if starter is not None:
        return starter.card.kind is ModelKind.RERANKER
    return any(name.lower() in (model.name, *model.aliases) for model in await client.list_rerank_models())


async def _loaded(options: Options) -> set[str] | None:
    """Names of what the server has loaded; None where none is named and none runs."""
    target = await _target(options)
    if not target:
        return None
    async with AsyncClient(target, api_key=options.api_key or None) as client:
        served = await asyncio.gather(client.list_embedding_models(), client.list_rerank_models())
    return {model.name for models in served for model in models if model.loaded}


def _changed(options: Options, change: Callable[[AsyncClient], Awaitable[Model]]) -> Model:
    """What `change` makes of a model of a server that runs; one started for the command would end with it."""

    async def run() -> Model:
        target = await _target(options)
        if not target:
            raise click.ClickException("no server is running: start one (`pergamon up`), or name one with --server")
        async with AsyncClient(target, api_key=options.api_key or None) as client:
            return await change(client)

    logs.configure("WARNING", "text")
    return asyncio.run(run())


async def _target(options: Options) -> str:
    """The server that is named, or the all-in-one that runs; empty where there is none."""
    if options.server:
        return options.server
    running = await find_running(options.settings().data_dir)
    return running.target if running is not None else ""


def _print(model: Model, as_json: bool) -> None:
    if as_json:
        print_json(as_dict(model))
    else:
        console.print(f"{model.name}: {'loaded' if model.loaded else 'not loaded'}")
