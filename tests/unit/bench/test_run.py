from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch

from tuner.bench.contender import Entry, Round, as_text, from_text
from tuner.bench.rounds import FreshProcessError, run_bench
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
    ("error", "reason"),
    [
        (
            in_a_capture(),
            (
                "out of memory: CUDA out of memory. Tried to allocate 3 GiB; "
                "it left the device's context"
            ),
        ),
        (
            RuntimeError("CUDA error: an illegal memory access"),
            "RuntimeError: CUDA error: an illegal memory access; it",
        ),
    ],
    ids=["memory in a capture", "illegal access"],
)
@pytest.mark.parametrize("fails_at", [0, 2])
def test_what_a_lost_context_leaves_is_measured_in_a_fresh_process(
    turn: Turn, error: Exception, reason: str, fails_at: int
) -> None:
    diary: list[tuple[str, int]] = []
    first, later = turn(0.5, (1.0, 0.1), peak=7), turn(0.25, (2.0, 0.2))
    contenders = [
        Recorder("a", diary, first),
        Recorder("bad", diary, first, error, fails_at),
        Recorder("c", diary, first),
    ]
    kept: list[int] = []
    with pytest.raises(FreshProcessError) as raised:
        run_bench(
            contenders,
            rounds=3,
            epochs=4,
            gpu=None,
            announce=ignore,
            after_round=lambda _, n: kept.append(n),
        )
    assert diary[-1][0] == "bad"
    carried = from_text(as_text(raised.value.measurements), [each.entry for each in contenders])
    assert carried == raised.value.measurements

    for contender in contenders:
        contender.turn = later
    diary.clear()
    a, bad, c = run_bench(
        contenders,
        rounds=3,
        epochs=4,
        gpu=None,
        announce=ignore,
        after_round=lambda _, n: kept.append(n),
        carried=carried,
    )
    assert bad.failure.startswith(reason)
    assert diary[:2] == [("a", 1), ("c", 1)]  # what these set up again does not count
    assert (a.cold_setup_s, c.cold_setup_s) == (0.5, 0.25 if fails_at == 0 else 0.5)
    assert (a.rounds, c.rounds) == (
        ([later] * 3, [later] * 3)
        if fails_at == 0
        else ([first] * 2 + [later], [first] + [later] * 2)
    )
    assert kept == [1, 2, 3]


def test_who_is_last_and_loses_the_context_ends_the_bench(turn: Turn) -> None:
    good = turn(0.5, (1.0, 0.1))
    contenders = [
        Recorder("a", [], good),
        Recorder("bad", [], good, RuntimeError("CUDA error: gone"), fails_at=1),
    ]
    a, bad = run_bench(contenders, rounds=1, epochs=1, gpu=None, announce=ignore)
    assert (len(a.rounds), bad.failure) == (1, "RuntimeError: CUDA error: gone")


def test_what_was_measured_is_not_taken_for_others(turn: Turn) -> None:
    (measured,) = run_bench(
        [Recorder("a", [], turn(0.5, (1.0, 0.1)))], rounds=1, epochs=1, gpu=None, announce=ignore
    )
    text = as_text([measured])
    entry = Recorder("b", [], turn(0.5)).entry
    for entries in ([entry], [], [measured.entry, entry]):
        with pytest.raises(ValueError, match=r"measured was|argument 2"):
            from_text(text, entries)


def test_misuse_ends_the_bench(turn: Turn) -> None:
    contender = Recorder("a", [], turn(0.5, (1.0, 0.1)), fails_with=UsageError("no such thing"))
    with pytest.raises(UsageError, match="no such thing"):
        run_bench([contender], rounds=1, epochs=1, gpu=None, announce=ignore)


def test_at_least_one_round_and_one_epoch_are_needed() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        run_bench([], rounds=0, epochs=1, gpu=None, announce=ignore)
