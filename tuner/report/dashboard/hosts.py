"""Which names the dashboard answers to.

A page of a stranger can point a name of its own at this machine and then read what answers to that
name (DNS rebinding). The browser says in `Host` what it was asked for, so only names that mean this
machine are answered.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.errors import UsageError

_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(?:\.(?!-)[a-z0-9_-]{1,63}(?<!-))*", re.ASCII)
_HEADER = re.compile(r"(?P<name>\[[^\]]*\]|[^:\[\]]*)(?::[0-9]{0,5})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Hosts:
    """Loopback, whatever the port; the address listened on,
    or every address where that is all of them; `names`.
    """

    names: frozenset[str]
    every_address: bool

    @classmethod
    def of(cls, listening: str, allowed: Sequence[str]) -> Hosts:
        """The names of a dashboard that listens on `listening`, with those of `--allow-host`.

        Raises:
            UsageError: one of `allowed` is no name.
        """
        names = {_plain(listening), *(_checked(name) for name in allowed)}
        address = _address(_plain(listening))
        return cls(
            frozenset(names), listening == "" or (address is not None and address.is_unspecified)
        )

    def answers(self, header: str) -> bool:
        """Whether a request with this `Host` is one for us."""
        match = _HEADER.fullmatch(header)
        if match is None:
            return False
        name = _plain(match["name"])
        address = _address(name)
        if address is not None:  # nobody else's: a name is what can be pointed elsewhere
            return self.every_address or _is_loopback(address) or name in self.names
        return name == "localhost" or (name != "" and name in self.names)


def _plain(name: str) -> str:
    name = name.lower().removesuffix(".")
    name = name[1:-1] if name.startswith("[") and name.endswith("]") else name
    address = _address(name)
    return name if address is None else str(address)


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _is_loopback(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _checked(name: str) -> str:
    plain = _plain(name)
    if _address(plain) is None and not _NAME.fullmatch(plain):
        raise UsageError(
            f"--allow-host {name!r} is no name; it takes one without scheme and port, such as "
            "gpu7.example"
        )
    return plain
