from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch

from tuner.bench.contender import Entry, Round, run_bench
from tuner.errors import UsageError

Turn = Callable[..., Round]


@dataclass
class Recorder:
    """Takes part by writing down when it is asked for what."""

    name: str
    diary: list[tuple[str, int]]
    turn: Round
    fails_with: Exception | None = None
    fails_at: int = 0
    asked: int = field(default=0)

    @property
    def entry(self) -> Entry:
        return Entry(library=self.name, variant="", backend="", hidden_size=64, batch_size=256)

    def run(self, epochs: int) -> Round:
        self.diary.append((self.name, epochs))
        self.asked += 1
        if self.fails_with is not None and self.asked > self.fails_at:
            raise self.fails_with
        return self.turn

    def kernels_per_step(self) -> int | None:
        raise AssertionError("nobody looks for kernels without a GPU")


def ignore(line: str) -> None:
    del line


def test_everyone_has_a_turn_in_every_round_after_one_that_does_not_count(turn: Turn) -> None:
    diary: list[tuple[str, int]] = []
    contenders = [Recorder(name, diary, turn(0.5, (1.0, 0.1))) for name in "abc"]
    measurements = run_bench(contenders, rounds=2, epochs=4, gpu=None, announce=ignore)
    assert diary == [(name, 1) for name in "abc"] + [(name, 4) for name in "abcabc"]
    assert [measured.cold_setup_s for measured in measurements] == [0.5] * 3
    assert [len(measured.rounds) for measured in measurements] == [2, 2, 2]


def in_a_capture() -> RuntimeError:
    """As the end of a CUDA graph's capture that memory cut short."""
    error = RuntimeError("CUDA error: operation failed due to a previous error during capture")
    error.__context__ = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3 GiB")
    return error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nmore"),
            "out of memory: CUDA out of",
        ),
        (RuntimeError("CUDA error: out of memory\n"), "out of memory: CUDA error: out of memory"),
        (RuntimeError("Triton Error [CUDA]: out of memory"), "out of memory: Triton Error [CUDA]"),
        (
            RuntimeError("an illegal memory access\nsecond line"),
            "RuntimeError: an illegal memory access",
        ),
        (ValueError(), "ValueError"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_who_fails_drops_out_with_its_reason_and_the_others_go_on(
    turn: Turn, error: Exception, reason: str
) -> None:
    diary: list[tuple[str, int]] = []
    good = turn(0.5, (1.0, 0.1))
    contenders = [
        Recorder("bad", diary, good, fails_with=error, fails_at=1),
        Recorder("good", diary, good),
    ]
    lines: list[str] = []
    bad, other = run_bench(contenders, rounds=3, epochs=1, gpu=None, announce=lines.append)
    assert bad.failure.startswith(reason)
    assert "\n" not in bad.failure
    assert [name for name, _ in diary].count("bad") == 2
    assert len(other.rounds) == 3
    assert other.failure == ""
    assert any(reason in line for line in lines)


@pytest.mark.parametrize(
    "error",
    [in_a_capture(), RuntimeError("CUDA error: an illegal memory access")],
    ids=["memory in a capture", "illegal access"],
)
def test_who_loses_the_context_ends_the_bench_with_what_was_measured(
    turn: Turn, error: Exception
) -> None:
    good = turn(0.5, (1.0, 0.1))
    diary: list[tuple[str, int]] = []
    contenders = [
        Recorder("a", diary, good),
        Recorder("bad", diary, good, error, fails_at=2),
        Recorder("c", diary, good),
    ]
    kept: list[int] = []
    a, bad, c = run_bench(
        contenders,
        rounds=3,
        epochs=4,
        gpu=None,
        announce=ignore,
        after_round=lambda _, number: kept.append(number),
    )
    assert diary[-1][0] == "bad"
    assert bad.failure.startswith(("out of memory", "RuntimeError: CUDA error"))
    assert (len(a.rounds), len(c.rounds)) == (2, 1)
    assert a.failure == c.failure == f"{bad.entry.label} left the device unusable"
    assert kept == [1, 2]


def test_who_is_last_and_loses_the_context_ends_the_bench(turn: Turn) -> None:
    good = turn(0.5, (1.0, 0.1))
    contenders = [
        Recorder("a", [], good),
        Recorder("bad", [], good, RuntimeError("CUDA error: gone"), fails_at=1),
    ]
    a, bad = run_bench(contenders, rounds=1, epochs=1, gpu=None, announce=ignore)
    assert (len(a.rounds), a.failure, bad.failure) == (1, "", "RuntimeError: CUDA error: gone")


def test_misuse_ends_the_bench(turn: Turn) -> None:
    contender = Recorder("a", [], turn(0.5, (1.0, 0.1)), fails_with=UsageError("no such thing"))
    with pytest.raises(UsageError, match="no such thing"):
        run_bench([contender], rounds=1, epochs=1, gpu=None, announce=ignore)


def test_at_least_one_round_and_one_epoch_are_needed() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        run_bench([], rounds=0, epochs=1, gpu=None, announce=ignore)
