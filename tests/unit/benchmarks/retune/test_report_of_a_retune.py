"""What the page says of retunes is what their commands make of the table of recorded runs."""

from __future__ import annotations

import dataclasses
import functools
import re

import pytest

from benchmarks.retune import report, two_models, whole_retunes
from benchmarks.retune.short_answer import short_answer, variants_lines
from benchmarks.shared.marked_sections import replaced
from tests.support.paths import REPOSITORY
from tests.support.present import present
from tuner.estimate.whole_estimate import BESIDE_DEFAULT
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.compare.findings import Report, compare
from tuner.verdict.compare.registered import groups_of
from tuner.verdict.confirmation import confirmation_of
from tuner.verdict.retune_cost import costs, spent_on
from tuner.verdict.stats.intervals import Interval

FAST = tuple(Interval(each, each - 0.01, each + 0.01, 90) for each in (0.1, 0.11, 0.12))
RETUNES = REPOSITORY / "benchmarks" / "retune"
PAGE = (RETUNES / "README.md").read_text(encoding="utf-8")


ECOSYSTEM = "../neuralforecast_classes/h200-retune"


@functools.cache
def studies_in(folder: str) -> list[StudySnapshot]:
    """Read once: it takes seconds."""
    found = report.read(RETUNES / folder)
    return report.with_reference(found, RETUNES / "campaign") if folder == ECOSYSTEM else found


@functools.cache
def compared_in(folder: str) -> Report:
    """Once: it takes seconds, too."""
    return compare(studies_in(folder))


@pytest.mark.parametrize(
    ("folder", "searches"),
    [("h200-14m", 10), ("again", 5)],
)
def test_each_recorded_retune_has_its_searches_and_a_report(folder: str, searches: int) -> None:
    studies = studies_in(folder)
    assert len(studies) == searches
    rows = [report.line(each) for each in studies]
    assert all(re.search(r"trial \d+, (confirmed|not shown)|default stands", row) for row in rows)
    told = report.sentences(compared_in(folder))
    assert sum(line.startswith(f"- {each.name}: ") for each in studies for line in told) >= searches


def test_the_page_has_the_variants_as_the_table_of_runs_gives_them() -> None:
    rows = variants_lines([compared_in("h100"), compared_in("campaign")])
    assert "\n".join(rows) in PAGE
    assert len(rows) == 8


def test_other_searches_of_a_reference_come_from_another_folder_and_its_own_stay() -> None:
    names = [each.name for each in studies_in(ECOSYSTEM)]
    assert names[:5] == ["etth-original", *(f"etth-original-{n}" for n in range(2, 6))]
    assert all(each.startswith("etth-nf-tsmixerx") for each in names[5:])
    own, before = (studies_in(folder)[0] for folder in (ECOSYSTEM, "campaign"))
    assert len(own.runs) == len(before.runs) + 30  # of its default, beside what it is held against
    *_, variant = costs(groups_of(studies_in(ECOSYSTEM)))
    assert variant.spent.confirmation_runs == 510


def test_the_readme_follows_from_the_studies() -> None:
    reports = [compared_in("h100"), compared_in("campaign")]
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    emptied = readme
    for name in (report.ANSWER, report.FRONT, report.VARIANTS):
        emptied = replaced(emptied, name, [])
    assert len(emptied) < len(readme) - 500
    for before in (readme, emptied):
        assert report.with_answer(before, reports) == readme


def test_searches_that_had_nothing_to_test_are_counted() -> None:
    _, _, *rows = variants_lines([compared_in("h200-14m")])
    assert [row.split(" | ")[0] for row in rows] == ["| original", "| rmsnorm"]
    assert all(row.endswith("| - | - | 0 of 5 searches |") for row in rows)


def test_the_readme_answers_in_seventy_words_of_the_reports_themselves() -> None:
    reports = [compared_in("h100"), compared_in("campaign")]
    *told, _, _ = short_answer(reports, report.LINK)
    assert told[0].removeprefix("- ") in reports[0].answer
    assert "0 of 15 searches of rmsnorm, layernorm and batchnorm come within 1 %" in told[1]
    assert told[2].removeprefix("- ") in reports[1].answer
    assert sum(len(each.removeprefix("- ").split()) for each in told) <= 70
    assert all(word in told[0] for word in (" s, was ", " epochs, were ", "(MQL "))
    (simple,) = [each for each in reports[1].hoped if each.startswith("simple")]
    assert simple.startswith("simple: fewer epochs than original's 51: yes (19); less time than")
    assert simple.endswith("faster at equal quality: undecided")
    for each in reports:
        assert len(each.answer) <= 12
        assert all(len(sentence.split()) <= 25 for sentence in each.answer)


def test_one_variant_has_no_short_answer_of_two() -> None:
    alone = compare([each for each in studies_in("campaign") if each.variant == "original"])
    with pytest.raises(SystemExit, match="of two variants or more"):
        report.with_answer("", [compared_in("h100"), alone])


def test_folders_of_which_no_single_variant_is_in_both_are_refused() -> None:
    both = studies_in("h100")
    rmsnorm = [each for each in both if each.variant == "rmsnorm"]
    with pytest.raises(SystemExit, match=r"there are \[\]"):
        two_models.of_the_same_variant([studies_in("campaign"), rmsnorm])
    with pytest.raises(SystemExit, match="'layernorm', 'original', 'rmsnorm'"):
        two_models.of_the_same_variant([both, both])


def test_two_gpu_models_side_by_side_follow_from_the_studies() -> None:
    folders = [studies_in(folder) for folder in ("campaign", "h100")]
    found = list(map(two_models.on_model, two_models.of_the_same_variant(folders)))
    assert "\n".join(two_models.table(found)[-4:]) in PAGE
    # The default trains alike on both, epoch for epoch; only the epochs' seconds differ.
    h200, h100 = (each.default for each in found)
    assert h200["epochs"] == h100["epochs"]
    assert h200["s_per_epoch"] < h100["s_per_epoch"]


def test_whole_retunes_of_one_variant_hold_what_the_others_found() -> None:
    folders = ("h200-14m", "campaign", "h100", "again")
    found = []
    for folder in folders:
        studies = [each for each in studies_in(folder) if each.variant == "original"]
        found.append(whole_retunes.retune_of(folder, studies))
    for row in whole_retunes.table(found)[2:]:
        name, gpu, device_s, _seeds, confirmed, times, another, holds, *_ = row[2:-2].split(" | ")
        cells = (name, gpu, device_s, confirmed, times, another, holds)
        assert f"| {' | '.join(cells)} |" in PAGE
    short, *others = whole_retunes.with_others(found)
    assert short[0].holds(short[1]) is None  # it foretells nothing
    assert [one.holds(rest) for one, rest in others] == [(9, 9), (10, 10), (9, 9)]
    # One that foretells less than the others found does not hold it.
    fast = dataclasses.replace(found[1], found=dataclasses.replace(found[1].found, ratios=FAST))
    assert fast.holds(found[2:]) == (0, 9)


def test_a_retune_of_two_gpu_models_or_of_too_few_searches_is_refused() -> None:
    h200, h100 = studies_in("campaign")[:5], studies_in("h100")[:5]
    with pytest.raises(SystemExit, match="both: searches on one GPU model were expected"):
        whole_retunes.retune_of("both", [*h200, *h100])
    with pytest.raises(SystemExit, match="two: three searches or more"):
        whole_retunes.retune_of("two", h200[:2])


def test_confirmations_took_what_estimates_take_them_to() -> None:
    low, high = 1 + BESIDE_DEFAULT.low, 1 + BESIDE_DEFAULT.high
    held = []
    for folder in ("campaign", "h100", "h200-14m", "again"):
        for study in studies_in(folder):
            default = present(present(confirmation_of(study)).default)
            runs_s = sum(
                run.result.recorded.wall_clock_s or 0.0 for run in default.clean if run.result
            )
            held.append(low <= spent_on([study]).confirmation_s / runs_s <= high)
    assert len(held) == 45
    assert sum(held) >= 36
