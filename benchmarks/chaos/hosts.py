"""Two hosts on one machine: network namespaces behind a bridge, the database beyond it, and a link that is cut."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from faults import Record
from sqlalchemy import select
from stand import Stand, workers_of

from tuner.storage import schema
from tuner.storage.queue.claims import ATTEMPTED

BRIDGE = "tnrbr0"
SUBNET = "10.213.77"
HOSTS = {"tnr-a": 11, "tnr-b": 12}


def cannot_make_namespaces() -> str | None:
    """Why not; None where they can be made."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need iproute2"
    with contextlib.suppress(subprocess.CalledProcessError), _network():
        return None
    return "this kernel, or this container, does not let us make network namespaces"


def two_hosts(
    stand: Stand,
    record: Record,
    *,
    cut_s: float,
    limit_s: float,
    wait: Callable[[Stand, int, Record], None],
) -> dict[str, Any]:
    """Fill the study from both hosts, with the first one's link cut for a while."""
    assert stand.cluster is not None
    cluster = stand.cluster
    with _network():
        cluster.listen(f"127.0.0.1,{SUBNET}.1", f"{SUBNET}.0/24")
        beyond = stand.url.replace("127.0.0.1", f"{SUBNET}.1")
        launches = {name: stand.launch(3, within=_on_host(name), url=beyond) for name in HOSTS}
        wait(stand, stand.trials // 10, record)
        first, other = launches.values()
        before = len(workers_of(first))
        _ip(
            "link", "set", _outer("tnr-a"), "nomaster"
        )  # frames vanish: no FIN, no RST, no unreachable host
        record.note("link cut", host="tnr-a", workers=before)
        time.sleep(cut_s)
        with stand.opened() as study:
            meanwhile = study.ledger.counts().finished
        during = len(workers_of(first))
        _ip("link", "set", _outer("tnr-a"), "master", BRIDGE)
        restored_at = time.time()
        record.note("link restored", finished=meanwhile)
        deadline = time.monotonic() + limit_s
        codes = [launch.wait(max(1.0, deadline - time.monotonic())) for launch in (first, other)]
        claimed = _claims_by_host(stand)
        after = min((at for at in claimed["tnr-a"] if at > restored_at), default=None)
        broken = [] if after is not None else ["the host that was cut off works again"]
        broken += [] if codes == [0, 0] else [f"both launches fill the budget (exit codes {codes})"]
        if meanwhile >= stand.trials:
            broken.append("there was work left when the link came back")
        return {
            "claims_by_host": {name: len(times) for name, times in claimed.items()},
            "first_claim_after_the_cut_s": None if after is None else round(after - restored_at, 1),
            "cut_s": cut_s,
            "workers_alive_behind_the_cut": during,
            "finished_when_restored": meanwhile,
            "broken": broken,
        }


def _on_host(name: str) -> tuple[str, ...]:
    """What runs a command in a namespace, under a host name of its own; each step becomes the next."""
    script = f'hostname {name} && exec "$@"'
    return ("ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c", script, "sh")


def _claims_by_host(stand: Stand) -> dict[str, list[float]]:
    """When each host's workers claimed a trial, in seconds since 1970."""
    with stand.opened() as study, study.database.engine.connect() as connection:
        c = schema.work.c
        rows = connection.execute(select(c.worker, c.claimed_at).where(ATTEMPTED)).all()
    return {name: [row.claimed_at for row in rows if row.worker.startswith(name)] for name in HOSTS}


@contextmanager
def _network() -> Iterator[None]:
    try:
        _ip("link", "add", BRIDGE, "type", "bridge")
        _ip("addr", "add", f"{SUBNET}.1/24", "dev", BRIDGE)
        _ip("link", "set", BRIDGE, "up")
        for name, number in HOSTS.items():
            _ip("netns", "add", name)
            _ip("link", "add", _outer(name), "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("link", "set", _outer(name), "master", BRIDGE, "up")
            _ip("-n", name, "addr", "add", f"{SUBNET}.{number}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", name, "link", "set", "lo", "up")
        yield
    finally:
        for name in HOSTS:
            for rest in (("netns", "del", name), ("link", "del", _outer(name))):
                with contextlib.suppress(subprocess.CalledProcessError):
                    _ip(*rest)
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("link", "del", BRIDGE)


def _outer(name: str) -> str:
    return f"v{name}"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
