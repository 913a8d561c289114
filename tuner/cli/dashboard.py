"""`tuner dashboard`: optuna-dashboard on our storage, read-only."""

from __future__ import annotations

from typing import Annotated

import typer

from tuner.cli.options import Storage, note, storage_url
from tuner.errors import exit_code_of


def dashboard(
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="Port; 0 takes a free one.")
    ] = 8080,
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS", help="Address to listen on; loopback unless you say otherwise."
        ),
    ] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Another name that browsers may call it by; repeatable. Loopback always may.",
        ),
    ] = None,
    storage: Storage = None,
) -> int:
    """Show the studies in a browser, read-only, until Ctrl-C."""
    from tuner.report.dashboard.server import serve
    from tuner.storage.url import absolute, parse_url

    try:
        address = absolute(parse_url(storage_url(storage)))
        serve(address, host=host, port=port, allowed=allow_host or (), announce=note)
    except KeyboardInterrupt as error:  # how it ends, not a failure
        return exit_code_of(error)
    return 0
