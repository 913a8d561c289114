"""The simulation of a whole verdict: truths that are known, searches of them, and sets of
searches.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.verdict import deals, knees, protocol, searches
from benchmarks.verdict.confirmations import confirmed, wrong_at_the_margin
from benchmarks.verdict.retunes import Verification, registered_level, retune
from benchmarks.verdict.surfaces import draw
from benchmarks.verdict.truths import NOISE, TRUTHS, noise_of_mql, truth

NAME = "forest, layernorm"


def drawn(seed: int, trials: int = searches.TRIALS) -> dict[str, object]:
    """A search that asks nobody: its trials lie anywhere, the default's first."""
    job, random = truth(NAME), np.random.default_rng(seed)
    params: list[Any] = [
        job.default,
        *(job.space.at(random.random(5).tolist()) for _ in range(trials - 1)),
    ]
    where = np.concatenate([job.where(each) for each in params])
    rows = [
        [*place, one.seconds, one.mql, one.epochs]
        for place, one in zip(where.tolist(), job.runs(where, random), strict=True)
    ]
    return {"truth": NAME, "seed": seed, "cpu_s": 0.0, "trials": rows}


def test_what_is_reported_is_of_truths_that_nothing_was_tuned_on_and_none_is_made_twice() -> None:
    of_report = {(made.variant, made.surface) for made in TRUTHS if made.report}
    assert len(of_report) == 4
    assert not of_report & {(made.variant, made.surface) for made in TRUTHS if not made.report}
    assert len({made.surface for made in TRUTHS if made.report}) == 4
    assert len({(made.variant, made.surface) for made in TRUTHS}) == len(TRUTHS)


def test_the_default_is_planted_where_the_record_has_it() -> None:
    job = truth(NAME)
    here = job.where(job.default)
    assert job.mql(here) == pytest.approx(job._recorded.default_mql)
    assert np.exp(job.log_epochs(here)) == pytest.approx(np.exp(job._recorded.default_log_epochs))
    runs = job.runs(np.repeat(here, 2000, axis=0), np.random.default_rng(1))
    mqls = np.array([run.mql for run in runs])
    assert mqls.mean() == pytest.approx(job._recorded.default_mql, abs=0.001)
    assert mqls.std() == pytest.approx(NOISE.sd[-1], rel=0.1)
    assert np.std(np.log([run.seconds for run in runs])) == pytest.approx(0.12, rel=0.1)


def test_noise_grows_towards_short_trainings() -> None:
    random = np.random.default_rng(2)
    for epochs, sd in zip(NOISE.epochs, NOISE.sd, strict=True):
        noise = noise_of_mql(np.full(20_000, epochs), random)
        assert noise.std() == pytest.approx(sd, rel=0.05)
        assert abs(noise.mean()) < 4 * sd / np.sqrt(20_000)


@pytest.mark.parametrize("kernel", ["exponential", "matern32", "gaussian"])
def test_a_draw_goes_through_its_points_and_is_another_elsewhere(kernel: str) -> None:
    random = np.random.default_rng(3)
    x = random.random((80, 2))
    y = np.sin(4 * x[:, 0]) + 0.01 * random.standard_normal(80)
    one, other = (draw(x, y, kernel=kernel, shrink=1.0, seed=seed) for seed in (1, 2))
    assert np.abs(one(x) - y).mean() < 0.2
    assert one(x) == pytest.approx(draw(x, y, kernel=kernel, shrink=1.0, seed=1)(x))
    away = random.random((50, 2)) + 3.0
    assert np.abs(one(away) - other(away)).mean() > np.abs(one(x) - other(x)).mean()


def test_a_search_is_the_same_every_time_and_a_cut_line_is_left_out(tmp_path: Path) -> None:
    found = searches.search(NAME, 3, 14)
    again = searches.search(NAME, 3, 14)
    assert found["trials"] == again["trials"]
    assert found["trials"][0][:-3] == truth(NAME).where(truth(NAME).default)[0].tolist()
    cache = tmp_path / "searches.jsonl"
    line = json.dumps(found)
    cache.write_text(line + "\n" + line[:50] + "\n")
    assert [each["seed"] for each in searches.read(cache, 14)] == [3]
    assert searches.read(cache) == []
    assert searches.read(tmp_path / "none.jsonl") == []


def test_a_retune_is_confirmed_and_a_truth_at_the_margin_is_rarely_called_as_good() -> None:
    found = retune(drawn(1), Verification(1, 4, 4), (0.5, 0.95))
    assert found.trainings == searches.TRIALS + 5 * 4
    assert found.answers[0.5].chance < 0.95 <= found.answers[0.95].chance
    assert found.default.mql == pytest.approx(truth(NAME)._recorded.default_mql)
    level, error = registered_level(truth(NAME))
    assert level == pytest.approx(1.01 * found.default.mql, rel=3 * error)
    answer = found.answers[0.5]
    sure = confirmed(found, answer)
    assert sure.seconds == pytest.approx(answer.seconds, rel=0.1)
    assert sure == confirmed(found, answer)
    wrong = [wrong_at_the_margin(found, answer) for _ in range(2)]
    assert wrong[0] == wrong[1]
    assert sum(wrong[0]) <= 2


def test_the_knee_of_single_runs_is_what_the_search_was_lucky_with() -> None:
    mine = [knees.knee(drawn(seed)) for seed in range(2)]
    assert all(each.seconds < each.default_seconds for each in mine)
    one, longer = (knees.between(*mine, ratio=ratio).seconds.estimate for ratio in (1.0, 5.0))
    assert one is not None
    assert longer is not None
    assert longer.estimate == pytest.approx(5 * one.estimate)
    assert knees.between(*mine, ratio=5.0).seconds.claimed
    assert len(knees.at_the_margin(mine[0], 2)) == 2


def test_sets_of_one_pool_are_rarely_claimed_to_differ_and_a_planted_ratio_is_found() -> None:
    random = np.random.default_rng(4)
    pool = {name: np.exp(0.15 * random.standard_normal(40)).tolist() for name in ("a", "b")}
    nothing = deals.claims(pool, 5, 200).as_dict()
    assert nothing["of"] == 400
    assert nothing["share"] <= 0.04
    assert nothing["low"] <= nothing["share"] <= nothing["high"]
    assert deals.claims(pool, 3, 50, ratio=5.0).count == 0
    planted = deals.claims(pool, 6, 100, ratio=1.5)
    assert planted.share > 0.6
    assert planted.by_truth.keys() == pool.keys()
    agrees, width = deals.agreement(pool, 5, 100)
    assert agrees.share > 0.85
    assert 1.2 < width < 4
    assert deals.family_claims(pool, 5, 50).share <= 0.1
    assert deals.family_claims(pool, 10, 5).as_dict()["of"] == 0
    assert deals.spread(pool) == pytest.approx(0.15, rel=0.3)


def test_the_whole_of_it_writes_its_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, output = tmp_path / "searches.jsonl", tmp_path / "protocol"
    cache.write_text("".join(json.dumps(drawn(seed)) + "\n" for seed in range(4)))
    arguments = ["--cache", str(cache), "--deals", "3", "--output", str(output)]
    monkeypatch.setattr("sys.argv", ["protocol.py", *arguments])
    protocol.main()
    document = json.loads(output.with_suffix(".json").read_text())
    assert document["searches"] == {NAME: 4}
    assert [row["searches"] for row in document["between"]["sets"]] == list(protocol.SETS)
    assert document["between"]["sets"][0]["nothing"]["count"] == 0
    text = output.with_suffix(".md").read_text()
    assert "| S = 5 | - | - |" in text
    assert "recommended is truly within the margin" in text
