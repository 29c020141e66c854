"""The command line `pergamon`: every command prints a table or, with --json, one JSON value."""

import sys
from pathlib import Path

import click
from pergamon.client import PergamonError

from services.common.errors import ServiceError
from services.launch import (
    commands_bench,
    commands_documents,
    commands_eval,
    commands_models,
    commands_search,
    commands_up,
)
from services.launch.output import errors
from services.launch.session import Options


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--server", default="", envvar="PERGAMON_SERVER", metavar="HOST:PORT", help="A server that runs.")
@click.option("--api-key", default="", envvar="PERGAMON_API_KEY", help="Sent as `authorization: Bearer`.")
@click.option("--data-dir", type=click.Path(path_type=Path), default=None, help="Where an all-in-one keeps its data.")
@click.version_option(package_name="pergamon-server", prog_name="pergamon")
@click.pass_context
def cli(context: click.Context, server: str, api_key: str, data_dir: Path | None) -> None:
    """Pergamon: documents in, explained passages out.

    Without --server a command uses the all-in-one that runs on this machine, or starts one for itself.
    """
    context.obj = Options(server=server, api_key=api_key, data_dir=data_dir)


commands_up.register(cli)
commands_models.register(cli)
commands_documents.register(cli)
commands_search.register(cli)
commands_eval.register(cli)
commands_bench.register(cli)


def main() -> None:
    """Run the command line; an error the product foresees is one line on standard error and exit status 1."""
    try:
        status = cli(standalone_mode=False)  # what a command returns, or the status it exits with
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except PergamonError as error:
        errors.print(f"[red]{error.reason or error.code.name}[/red]: {error.message}")
        sys.exit(1)
    except ServiceError as error:
        errors.print(f"[red]{error.error_reason.name}[/red]: {error.message}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(status if isinstance(status, int) else 0)
