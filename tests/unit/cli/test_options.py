"""Options that commands share: flag before environment before default, durations, and the password
warning."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.cli.options import as_typed, data_folder, storage_url
from tuner.cli.verify import verify
from tuner.errors import UsageError
from tuner.launch.verification import SEEDS, TOP
from tuner.settings import above_zero, duration_s, flags, size_bytes
from tuner.spec.margin import margin_of
from tuner.spec.policy import SearchPolicy
from tuner.storage.url import DEFAULT_URL
from tuner.verdict.confirmation_plan import SEEDS as CONFIRMING
from tuner.verdict.recommendation import VERIFIED, VERIFIED_SEEDS

FLAGS = flags(SearchPolicy)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90.0),
        ("90s", 90.0),
        ("1.5", 1.5),
        ("30m", 1800.0),
        ("2h", 7200.0),
        ("0.5h", 1800.0),
        ("1h30m", 5400.0),
        ("1h30m5s", 5405.0),
        ("1h5", 3605.0),
        (" 10m ", 600.0),
    ],
)
def test_a_duration_is_read(text: str, seconds: float) -> None:
    assert duration_s(text, "--timeout") == pytest.approx(seconds)


@given(st.integers(0, 99), st.integers(0, 59), st.integers(1, 59))
def test_hours_minutes_and_seconds_add_up(hours: int, minutes: int, seconds: int) -> None:
    assert (
        duration_s(f"{hours}h{minutes}m{seconds}s", "--timeout")
        == 3600 * hours + 60 * minutes + seconds
    )


def test_no_duration_is_no_limit() -> None:
    assert duration_s(None, "--timeout") is None


@pytest.mark.parametrize(
    "text", ["", " ", "soon", "0", "0h0m", "-5", "-5s", "5d", "5m2h", "1h 30m", "1e3", "nan", "s"]
)
def test_what_is_no_duration_is_refused_with_the_flag_and_an_example(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        duration_s(text, "--timeout")
    assert str(refused.value).startswith(f"--timeout: {text!r}")
    assert "1h30m" in str(refused.value)


def test_the_flag_comes_before_the_environment_and_that_before_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TUNER_STORAGE", "sqlite:///environment.db")
    assert storage_url("sqlite:///flag.db") == "sqlite:///flag.db"
    assert storage_url(None) == "sqlite:///environment.db"
    monkeypatch.setenv("TUNER_STORAGE", "")  # an empty variable is one that is not set
    assert storage_url(None) == DEFAULT_URL
    monkeypatch.delenv("TUNER_STORAGE")
    assert storage_url(None) == DEFAULT_URL


def test_a_wrong_url_in_the_environment_is_blamed_on_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TUNER_STORAGE", "trials.db")
    with pytest.raises(UsageError, match=r"^TUNER_STORAGE: 'trials.db' is not a database URL"):
        storage_url(None)
    assert storage_url("sqlite:///flag.db") == "sqlite:///flag.db"


def test_an_empty_flag_is_a_mistake_and_no_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_STORAGE", "sqlite:///environment.db")
    with pytest.raises(UsageError, match="--storage: ''"):
        storage_url("")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:Zq7@db.example/x",
        "postgresql://ann@db.example/x?password=Zq7",
        "postgresql://ann:Zq7@/x",
    ],
)
def test_a_password_in_the_flag_works_but_is_warned_of(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert storage_url(url) == url
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith("tuner: ")
    for words in ("--storage", "TUNER_STORAGE", "PGPASSFILE"):
        assert words in line
    assert "Zq7" not in line


def test_a_password_in_the_environment_is_no_reason_to_warn(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TUNER_STORAGE", "postgresql://ann:Zq7@db.example/x")
    assert storage_url(None) == "postgresql://ann:Zq7@db.example/x"
    assert storage_url("postgresql://ann@db.example/x") == "postgresql://ann@db.example/x"
    assert capsys.readouterr().err == ""


def test_the_data_folder_is_the_flags_else_the_environments_else_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TUNER_DATA_DIR", "from-environment")
    assert data_folder(Path("from-flag")) == Path("from-flag")
    assert data_folder(None) == Path("from-environment")
    monkeypatch.setenv("TUNER_DATA_DIR", "")
    assert data_folder(None) is None
    monkeypatch.delenv("TUNER_DATA_DIR")
    assert data_folder(None) is None


@pytest.mark.parametrize(
    ("text", "size"),
    [("800MB", 800_000_000), ("8GB", 8 * 10**9), ("8 GiB", 8 << 30), ("1.5gb", 1_500_000_000)],
)
def test_an_amount_of_memory_has_a_unit(text: str, size: int) -> None:
    assert size_bytes(text, "--max-memory") == size


@pytest.mark.parametrize("text", ["8", "", "GB", "-1GB", "0GB", "8XB"])
def test_an_amount_of_memory_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--max-memory"):
        size_bytes(text, "--max-memory")


@pytest.mark.parametrize("text", ["", "0", "-1", "nan", "inf", "abc", "1 2"])
def test_a_limit_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f"--max-mql: '{text}'"):
        above_zero(text, "--max-mql")


def said(**typed: Any) -> dict[str, Any]:
    """What flags say of a policy, by their names."""
    of = {flag.name[2:].replace("-", "_"): (name, flag) for name, flag in FLAGS.items()}
    return SearchPolicy(**{of[n][0]: of[n][1].read(text) for n, text in typed.items()}).said()


def test_only_flags_that_were_given_are_said() -> None:
    assert said() == {}
    assert said(prune=False, reruns=0) == {"prune": False, "reruns": 0}
    assert said(sampler="tpe", sampler_seed="0") == {"sampler": "tpe", "seed": 0}
    assert said(max_time="2.5", max_mql=" 1e-1 ", max_memory="8GB") == {
        "max_time_s": 2.5,
        "max_mql": 0.1,
        "max_memory_bytes": 8 * 10**9,
    }
    assert [said(checkpoint_every=text)["checkpoint_s"] for text in ("2m", "0", "0s", "none")] == [
        120.0,
        0.0,
        0.0,
        0.0,
    ]


@pytest.mark.parametrize(
    ("flag", "field"),
    [
        ("max_time", "max_time_s"),
        ("max_mql", "max_mql"),
        ("max_memory", "max_memory_bytes"),
        ("sampler_seed", "seed"),
    ],
)
def test_none_lifts_what_a_study_had(flag: str, field: str) -> None:
    assert said(**{flag: "none"}) == {field: None}
    with pytest.raises(UsageError, match=f"--{flag.replace('_', '-')}: 'nothing'.*, or 'none'$"):
        said(**{flag: "nothing"})


@pytest.mark.parametrize("text", ["-1", "1.5", "\u00b2", "9" * 30])
def test_a_seed_is_a_whole_number(text: str) -> None:
    with pytest.raises(UsageError, match="--sampler-seed"):
        said(sampler_seed=text)


@pytest.mark.parametrize("joined", [True, False])
def test_a_command_to_be_typed_again_leaves_out_a_secret(
    joined: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for url, kept in (
        ("postgresql://ann:Zq7@host/s", False),
        ("postgresql://ann@host/s?sslpassword=Zq7", False),
        ("sqlite:///a b.db", True),
    ):
        flag = [f"--storage={url}"] if joined else ["--storage", url]
        monkeypatch.setattr("sys.argv", ["/usr/bin/tuner", "launch", *flag, "--cpu"])
        assert as_typed(url) == ["tuner", "launch", *(flag if kept else []), "--cpu"]
        assert as_typed(None) == ["tuner", "launch", *flag, "--cpu"]


@pytest.mark.parametrize(
    ("text", "margin"),
    [("1%", 0.01), ("1 %", 0.01), ("0.01", 0.01), (" .5% ", 0.005), ("0", 0.0), ("9.9%", 0.099)],
)
def test_a_margin_is_a_share(text: str, margin: float) -> None:
    assert margin_of(text, "--margin") == pytest.approx(margin, abs=1e-15)
    assert said(margin=text) == {"margin": margin_of(text, "--margin")}


@pytest.mark.parametrize(
    "text", ["", "%", "1%%", "-1%", "1e-2", "nan", "10%", "1", "1,5%", "\u0661%"]
)
def test_what_is_no_margin_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--margin: "):
        margin_of(text, "--margin")


def test_the_help_of_verify_says_how_many_seeds_and_configurations_there_are() -> None:
    """Importing those numbers would cost every command a second."""
    hints = get_type_hints(verify, include_extras=True)
    seeds, top = (get_args(hints[name])[1].help for name in ("seeds", "top"))
    assert f"({SEEDS}; of each round {VERIFIED_SEEDS}; with --confirm {CONFIRMING})" in seeds
    assert f"({TOP}); of each round ({VERIFIED})" in top
