"""The answer of somebody with ten seconds, where there is too little for one."""

from __future__ import annotations

from pathlib import Path

from tests.support.recorded_studies import record_group, record_study
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.open import open_study
from tuner.study.snapshot import snapshot
from tuner.verdict.compare.findings import compare


def answer(folder: Path, trials: int) -> tuple[str, ...]:
    url = f"sqlite:///{folder}/tuner.db"
    names = record_group(url, variant="original", searches=2, trials=trials)
    database = open_database(parse_url(url), create=False)
    found = compare([snapshot(open_study(database, name)) for name in names]).answer
    database.close()
    assert all(len(each.split()) <= 25 for each in found)
    return found


def test_too_few_trials_are_no_answer_and_it_is_said_how_many_would_tell(tmp_path: Path) -> None:
    said, cost = answer(tmp_path, 5)
    minutes, asked = said.removeprefix("original: not known: ").split(" more would tell ")
    assert minutes.endswith(" min")
    assert asked.startswith("(--trials ")
    assert 12 <= int(asked.removeprefix("(--trials ").removesuffix(").")) <= 40
    assert cost.startswith("Cost: ")


def test_where_nothing_converged_the_next_command_goes_on_with_a_higher_limit(
    tmp_path: Path,
) -> None:
    url, cut = f"sqlite:///{tmp_path}/tuner.db", {"stopped_by": "epoch_limit", "converged": False}
    name = record_study(url, variant="original", trials=4, max_epochs=200, said=cut)
    database = open_database(parse_url(url), create=False)
    said, _ = compare([snapshot(open_study(database, name))]).answer
    database.close()
    assert said == (
        "original: not known: none of 4 trials converged within 200 epochs (--max-epochs 400 goes "
        "on)."
    )


def test_enough_trials_without_a_confirmation_say_what_tells(tmp_path: Path) -> None:
    said, _ = answer(tmp_path, 24)
    assert said == "original: not known yet: a confirmation tells (tuner verify --confirm)."
