"""`tuner dashboard`: optuna-dashboard on our storage, read-only."""

from __future__ import annotations

from tuner.cli.command import command, option
from tuner.cli.options import Storage, note, storage_url
from tuner.errors import exit_code_of


@command
def dashboard(
    port: int = option("N", "Port; 0 takes a free one.", default=8080, min=0, max=65535),
    host: str = option(
        "ADDRESS", "Address to listen on; loopback unless you say otherwise.", default="127.0.0.1"
    ),
    allow_host: list[str] | None = option(
        "NAME", "Another name that browsers may call it by; repeatable. Loopback always may."
    ),
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
