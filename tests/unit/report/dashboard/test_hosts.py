"""Names that the dashboard answers to."""

from __future__ import annotations

import pytest

from tuner.errors import UsageError
from tuner.report.dashboard.guard import Hosts

LOOPBACK = (
    "127.0.0.1",
    "127.0.0.1:8080",
    "127.9.9.9:1",
    "localhost",
    "LOCALHOST:80",
    "localhost.",
    "[::1]",
    "[::1]:8080",
)
FOREIGN = (
    "",
    ":8080",
    "evil.example",
    "evil.example:8080",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "127.0.0.1:8080,evil.example",
    "evil.example@127.0.0.1",
    "127.0.0.1/evil",
    "[evil.example]",
    "[::1",
    "::1:",
    "2130706433",
    "127.1",
    "0x7f.0.0.1",
    "localhost\x00",
    "localhost:x",
    "١٢٧.0.0.1",
)


@pytest.mark.parametrize("header", LOOPBACK)
@pytest.mark.parametrize("listening", ["127.0.0.1", "0.0.0.0", "::", "192.0.2.7"])
def test_loopback_names_are_answered_wherever_it_listens(listening: str, header: str) -> None:
    assert Hosts.of(listening, ()).answers(header)


@pytest.mark.parametrize("header", FOREIGN)
@pytest.mark.parametrize("listening", ["127.0.0.1", "0.0.0.0", "::1", ""])
def test_whatever_else_is_not(listening: str, header: str) -> None:
    assert not Hosts.of(listening, ()).answers(header)


@pytest.mark.parametrize(
    ("listening", "allowed", "header", "answered"),
    [
        ("192.0.2.7", (), "192.0.2.7:8080", True),
        ("192.0.2.7", (), "192.0.2.8:8080", False),
        ("127.0.0.1", (), "192.0.2.7", False),
        ("0.0.0.0", (), "192.0.2.7:8080", True),
        ("::", (), "[2001:db8::7]:8080", True),
        ("2001:DB8:0::7", (), "[2001:db8::7]", True),
        ("gpu7.example", (), "GPU7.example.:8080", True),
        ("127.0.0.1", ("GPU7.example", "other"), "gpu7.example:443", True),
        ("127.0.0.1", ("GPU7.example", "other"), "other", True),
        ("127.0.0.1", ("gpu7.example",), "sub.gpu7.example", False),
        ("127.0.0.1", ("[2001:db8::7]",), "[2001:db8::7]:1", True),
    ],
)
def test_what_it_listens_on_and_what_is_allowed(
    listening: str, allowed: tuple[str, ...], header: str, answered: bool
) -> None:
    assert Hosts.of(listening, allowed).answers(header) is answered


@pytest.mark.parametrize(
    "name", ["", "*", "*.example", "http://gpu7", "gpu7:8080", "a b", "gpu7/", "-x", "a..b", "ü"]
)
def test_what_is_no_name_is_refused_with_what_would_be_one(name: str) -> None:
    with pytest.raises(
        UsageError, match=r"--allow-host .* without scheme and port, such as gpu7\.example"
    ):
        Hosts.of("127.0.0.1", (name,))
