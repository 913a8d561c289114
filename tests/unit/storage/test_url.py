"""Database URLs: any password is understood, and none is ever shown."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import UsageError
from tuner.storage.url import absolute, parse_url

PASSWORDS = (
    "{",
    "a{0}b",
    "p@ss",
    "a/b",
    "100%",
    "%zz",
    "a:b",
    "@",
    "@/@",
    "ä ö",
    "a%ffb",
    "?x=1",
    "#",
    "a\\b",
    "'\"",
)


@pytest.mark.parametrize("password", PASSWORDS)
def test_a_password_is_taken_as_it_is(password: str) -> None:
    address = parse_url(f"postgresql://ann:{password}@db.example:5433/studies")
    assert address.password == password
    assert (address.url.username, address.url.host, address.url.port) == ("ann", "db.example", 5433)
    assert address.url.database == "studies"


@pytest.mark.parametrize("password", [*PASSWORDS, "%41"])
def test_an_escaped_password_is_unescaped(password: str) -> None:
    assert (
        parse_url(f"postgresql://ann:{quote(password, safe='')}@db.example/studies").password
        == password
    )


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_password_survives_the_round_trip_to_a_child(password: str) -> None:
    address = parse_url(f"postgresql://ann:{quote(password, safe='')}@db.example:5433/studies")
    assert address.password == password
    again = parse_url(address.full())
    assert (again, again.password) == (address, password)


@given(
    st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="%"), min_size=1)
)
def test_any_plain_password_may_be_typed_unescaped(password: str) -> None:
    address = parse_url(f"postgresql://ann:{password}@db.example:5433/studies")
    assert (address.password, address.url.host) == (password, "db.example")


@given(
    st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1).map(
        lambda text: f"Zq7{text}"
    )
)
def test_no_printed_form_holds_the_password(password: str) -> None:
    address = parse_url(f"postgresql://ann:{quote(password, safe='')}@db.example/studies")
    for printed in (str(address), repr(address), f"{address}", repr(address.url), f"{[address]}"):
        assert "Zq7" not in printed
    assert address.url.password is None


def test_a_password_in_the_query_is_kept_apart_too() -> None:
    address = parse_url("postgresql://ann@db.example/studies?password=Zq7&sslmode=require")
    assert address.password == "Zq7"
    assert "Zq7" not in str(address)
    assert address.url.query == {"sslmode": "require"}


@pytest.mark.parametrize(
    "name",
    [
        "sslpassword",
        "passwd",
        "ssl_key_password",
        "password1",
        "PWD",
        "oauth_client_secret",
        "scram_client_key",
        "token",
    ],
)
def test_every_secret_parameter_is_kept_apart_and_reaches_a_child(name: str) -> None:
    address = parse_url(f"postgresql://ann:first@db.example/studies?{name}=Zq7%40&sslmode=require")
    assert address.parameters == {name: "Zq7@"}
    assert address.password == "first"
    assert address.holds_secrets
    assert address.url.query == {"sslmode": "require"}
    for printed in (str(address), repr(address), f"{[address]}"):
        assert "Zq7" not in printed
    again = parse_url(address.full())
    assert (again, again.parameters) == (address, address.parameters)
    assert hash(again) == hash(address)


def test_a_short_password_is_hidden_as_a_word_and_a_long_one_wherever_it_is() -> None:
    """ "***ort 1 failed" would spell out what is hidden."""
    short, long = (parse_url(f"postgresql://u:{word}@db.example/x") for word in ("p", "secret"))
    assert short.masked('port 1 failed for "p"') == 'port 1 failed for "***"'
    assert long.masked("secrets, mysecret") == "***s, my***"


def test_files_with_secrets_have_names_that_may_be_shown() -> None:
    address = parse_url(
        "postgresql://ann@db.example/studies?passfile=/run/p&sslkey=/run/k&sslcert=c"
    )
    assert not address.holds_secrets
    assert set(address.url.query) == {"passfile", "sslkey", "sslcert"}


def test_the_last_of_a_repeated_parameter_counts() -> None:
    assert parse_url("postgresql://ann@db.example/s?password=a&password=b").password == "b"


def test_without_a_password_there_is_none() -> None:
    assert parse_url("postgresql://ann@db.example/studies").password is None
    assert parse_url("postgresql:///studies").password is None
    assert parse_url("postgresql://ann@db.example:5433/studies?options=a%40b").password is None


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_postgresql_is_reached_by_psycopg_3(scheme: str) -> None:
    assert parse_url(f"{scheme}://ann@db.example/studies").url.drivername == "postgresql+psycopg"


@pytest.mark.parametrize("name", ["a.db", "a:b@c.db", "{x}.db", "with space.db", "100%.db"])
def test_an_sqlite_file_may_have_any_name(name: str, tmp_path: Path) -> None:
    address = parse_url(f"sqlite:///{tmp_path}/{name}")
    assert address.sqlite_path == tmp_path / name
    assert address.password is None
    assert parse_url(address.full()) == address


def test_an_escaped_sqlite_file_name_is_unescaped(tmp_path: Path) -> None:
    assert parse_url(f"sqlite:///{tmp_path}/a%3Fb%20c.db").sqlite_path == tmp_path / "a?b c.db"


@pytest.mark.parametrize(
    ("name", "says"), [("a?b/t.db", "written %3F"), ("a%ba.db", "written %25")]
)
def test_an_sqlite_file_is_taken_for_no_other(name: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_url(f"sqlite:////x/{name}")


def test_a_relative_sqlite_file_is_made_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    address = absolute(parse_url("sqlite:///storage/tuner.db"))
    assert address.sqlite_path == tmp_path / "storage" / "tuner.db"
    assert absolute(address) == address


@pytest.mark.parametrize(
    "text", ["sqlite://", "sqlite:///:memory:", "oracle://ann@host/x", "nonsense", "", "://"]
)
def test_what_is_no_database_for_workers_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_url(text)
    assert "--storage" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "ann:Zq7@db.example/studies",
        "postgresql//ann:Zq7@db.example/studies",
        "postgresql://ann:Zq7@db.example:port/studies",
        "post gresql://ann:Zq7@db.example/studies",
        "oracle://ann:Zq7@db.example/studies",
    ],
)
def test_a_refused_url_does_not_show_its_password(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_url(text)
    assert "Zq7" not in str(refused.value)
