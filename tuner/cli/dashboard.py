"""`tuner dashboard`: optuna-dashboard on our storage, read-only."""

from __future__ import annotations

from typing import Annotated

import typer

from tuner.cli.options import Storage, note, storage_url
from tuner.errors import INTERRUPTED


def dashboard(
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="Port; 0 takes a free one.")] = 8080,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on; loopback unless you say otherwise.")
    ] = "127.0.0.1",
    storage: Storage = None,
) -> int:
    """Show the studies in a browser, read-only, until Ctrl-C."""
    from tuner.dashboard import serve
    from tuner.storage import absolute, parse_url

    try:
        serve(absolute(parse_url(storage_url(storage))), host=host, port=port, announce=note)
    except KeyboardInterrupt:  # how it ends, not a failure
        return INTERRUPTED
    return 0
