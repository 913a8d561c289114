"""Other libraries beside our sampler: what their suggestions cost, what is taken at the end, and
what the report says. What is not installed is skipped, with its name."""

import importlib
import itertools
import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.verdict import others, others_rules, others_table
from benchmarks.verdict.budgets import BESIDE_S, Gpu, Place
from benchmarks.verdict.others_contenders import ENTRIES, Entry, entry, made, spend
from benchmarks.verdict.simulation_files import searches_in
from benchmarks.verdict.truths import Training

NAME = "forest, layernorm"
TOOK_S = 1.0
"""Longer than some trainings of the default there, and shorter than others."""


class Slow:
    """Takes `seconds` of a clock to suggest anything."""

    def __init__(self, gpu: Gpu, clock: list[float], seconds: float, *, silent: bool) -> None:
        self.gpu, self.clock, self.seconds, self.silent = gpu, clock, seconds, silent
        self.asked_after: list[int] = []
        self.told = 0

    def suggest(self) -> list[Place]:
        self.clock[0] += self.seconds
        if self.silent and self.told < len(self.gpu.trained):
            return []
        self.asked_after.append(self.told)
        return [self.gpu.default]

    def tell(self, trainings: Sequence[Training]) -> None:
        self.told += len(trainings)

    def recommended(self) -> Place | None:
        return None


def spent(
    monkeypatch: pytest.MonkeyPatch, seconds: float, *, beside: bool, silent: bool = False
) -> tuple[Gpu, Slow, float, float]:
    clock = [0.0]
    with monkeypatch.context() as patch:
        patch.setattr(time, "process_time", lambda: clock[0])
        gpu = Gpu(NAME, 0, 30.0)
        slow = Slow(gpu, clock, seconds, silent=silent)
        found = spend(gpu, slow, beside=beside)
    return gpu, slow, found.suggest_s, found.waited_s


def test_a_library_that_blocks_pays_for_all_that_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, slow, suggest_s, waited_s = spent(monkeypatch, 2.0, beside=False)
    assert suggest_s == waited_s == pytest.approx(2.0 * len(slow.asked_after))
    trained = sum(t.seconds + BESIDE_S for _, t in gpu.trained)
    assert gpu.spent_s == pytest.approx(trained + waited_s)
    assert slow.asked_after == list(range(len(slow.asked_after)))


def test_a_library_that_is_asked_beside_pays_for_what_exceeds_the_training_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu, slow, suggest_s, waited_s = spent(monkeypatch, TOOK_S, beside=True)
    asked = len(slow.asked_after)
    longs = [t.seconds + BESIDE_S for _, t in gpu.trained[: asked - 1]]
    assert any(long < TOOK_S for long in longs)
    assert any(long > TOOK_S for long in longs)
    assert waited_s == pytest.approx(TOOK_S + sum(max(0.0, TOOK_S - long) for long in longs))
    assert suggest_s == pytest.approx(TOOK_S * asked)
    assert slow.asked_after == [max(0, n - 1) for n in range(asked)]


def test_a_library_that_cannot_say_before_it_is_told_makes_the_gpu_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, slow, suggest_s, waited_s = spent(monkeypatch, 1.0, beside=True, silent=True)
    assert suggest_s == waited_s == pytest.approx(2 * len(slow.asked_after) - 1)
    assert slow.asked_after == list(range(len(slow.asked_after)))


def test_each_rule_takes_what_its_name_says() -> None:
    gpu = Gpu(NAME, 0, 100.0)
    slow, near, far, never = ((0.1 * i, 0.5, 0.5, 0.5, 0.5) for i in range(4))
    for where, seconds, mql, epochs in (
        (gpu.default, 4.0, 0.80, 30),
        (slow, 5.0, 0.75, 30),
        (near, 2.0, 0.805, 20),
        (far, 1.0, 0.95, 12),
        (never, 0.5, 0.7, 200),
        *[(near, 2.0, 0.81, 20)] * 4,
    ):
        gpu.record(where, Training(seconds, mql, epochs))
    assert others_rules.knee(gpu) == near
    assert others_rules.fastest_within(gpu) == near
    assert others_rules.best_scalarised(gpu) == near
    assert others_rules.best_scalarised_mean(gpu) == near
    assert others_rules.ours(gpu) is None  # too few configurations for a model
    gpu.record(near, Training(2.0, 0.99, 20))
    mean = others_rules.scalarised(Training(2.0, 0.99, 20), 0.8)
    assert mean == pytest.approx(math.log(2.0) + 100 * (0.99 / 0.8 - 1.01))
    assert others_rules.best_scalarised_mean(gpu) == near  # alone with five runs
    only = Gpu(NAME, 0, 100.0)
    only.record(only.default, Training(4.0, 0.80, 30))
    only.record(slow, Training(5.0, 0.75, 30))
    only.record(far, Training(4.5, 0.76, 30))
    assert others_rules.knee(only) is None  # or the default stays: no knee is faster


def test_the_interval_is_students_over_truths() -> None:
    mean, low, high = others_table.interval([0.1, 0.3])
    assert mean == pytest.approx(math.exp(0.2))
    assert low == pytest.approx(math.exp(0.2 - 6.314 * 0.1), rel=1e-3)
    assert high == pytest.approx(math.exp(0.2 + 6.314 * 0.1), rel=1e-3)
    assert others_table.interval([0.1]) == [pytest.approx(math.exp(0.1)), None, None]
    assert others_table.interval([]) == [None, None, None]


def test_what_was_searched_is_kept_and_the_report_names_what_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here = {"kg", "tpe", "nsga2"}
    monkeypatch.setattr(others, "installed", lambda one: one.key in here)
    cache, output = tmp_path / "searches.jsonl", tmp_path / "others"
    common = ["--report", "--searches", "1", "--truths", "1"]
    common += ["--cache", str(cache), "--output", str(output)]
    others.main([*common, "--budget", "9"])
    with cache.open("a") as file:
        file.write('{"contender":"kg","tru\n')
    others.main([*common, "--budget", "9", "--cached"])
    assert len(searches_in(cache)) == len(here)  # nothing was searched again
    document = json.loads(output.with_suffix(".json").read_text())
    assert {row["contender"] for row in document["methods"]} == here
    assert document["methods"][0]["times_kg"] == [1.0, None, None]
    assert document["libraries"]["optuna"]
    text = output.with_suffix(".md").read_text()
    assert "| Optuna, TPESampler | the knee of the front of single runs | 1 on 1 truths |" in text
    assert "| Optuna, NSGAIISampler | the fastest run within the margin | 1.00 [-] |" in text
    for each in ENTRIES:
        why = f"{each.distribution} is not installed"
        assert (f"Left out: {each.name} ({why})." in text) == (each.key not in here)
    assert "left out: Syne Tune, MOREA (syne-tune is not installed)" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="ax needs ax-platform, which is not installed"):
        others.main([*common, "--contenders", "kg,ax"])
    with pytest.raises(SystemExit, match="no contender is called bohb: expected some of kg"):
        others.main([*common, "--contenders", "bohb"])


@pytest.mark.parametrize("one", ENTRIES, ids=lambda one: one.key)
def test_each_contender_begins_with_the_default_and_stays_in_the_space(one: Entry) -> None:
    if one.package not in sys.modules and one.package != "optuna":
        pytest.importorskip(one.package, reason=f"{one.distribution} is not installed")
    gpu = Gpu(NAME, 1, 9.0)
    contender = made(one, gpu)
    spend(gpu, contender, beside=one.beside)
    assert gpu.trained[0][0] == gpu.default
    assert len(gpu.trained) > 1
    for place in itertools.chain.from_iterable(where for where, _ in gpu.trained):
        assert 0 <= place <= 1


def test_every_contender_has_a_module_and_rules() -> None:
    folder = Path(others.__file__).parent
    for one in ENTRIES:
        assert (folder / f"{one.module}.py").exists()
        assert set(one.rules) <= {*others_rules.RULES, others_rules.OWN, others_rules.SHOWN}
    assert entry("kg").beside
    assert importlib.util.find_spec("benchmarks.verdict.others_table")
