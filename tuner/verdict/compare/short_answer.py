"""What a comparison comes to, for somebody with ten seconds: what to do, how much faster, at what
price, how sure, and what it cost. Everything that shows a comparison says it in these words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tuner.config import Value
from tuner.settings import in_percent
from tuner.spec.objectives import TEST_MQL
from tuner.storage.queue.verifications import is_confirmation
from tuner.storage.records import device_seconds
from tuner.study.baselines import worth
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.compare.between import AnotherSearch, Standing
from tuner.verdict.compare.registered import Groups
from tuner.verdict.confirmation import Confirmation, confirmation_of
from tuner.verdict.known_runs import converged_configurations, runs_of
from tuner.verdict.retune_cost import RetuneCost, costs, duration, gain_in_words
from tuner.verdict.runs_model import LEAST_CONFIGURATIONS
from tuner.verdict.stats.searches import Between

ANSWER = "Answer"
MOST_CHANGES = 5
"""Of a configuration, that one sentence has room for."""


def short_answer(
    groups: Groups,
    names: Mapping[str, str],
    between: Sequence[Standing],
    another: Sequence[AnotherSearch],
) -> tuple[str, ...]:
    """Sentences of 25 words at most: what to do, what each variant comes to, how sure that is, and
    what it cost. Of groups of searches, the reference first, and what they are called.
    """
    paid = costs(groups)
    said = [*_worth(groups, names), *apart(between)]
    said += _each_own(paid, groups, names)
    faster = [each.a for each in between if _takes(each)]
    for each in paid[:1] if not faster else [one for one in paid if names[one.group] in faster][:1]:
        if each.confirmation is not None:
            said.append(_change(each.confirmation, names[each.group]))
    said += _sure(paid, another, names)
    spent = sum(each.spent.total_s for each in paid)
    said.append(f"Cost: {duration(spent)} of device time")
    return tuple(f"{each}." for each in said if each)


def _worth(groups: Groups, names: Mapping[str, str]) -> list[str]:
    """Whether training is worth it at all, by the best of what is confirmed, or else of all fronts;
    nothing where no forecast without a network was scored.
    """
    confirmed, searched = [], []
    for group, members in groups.items():
        for study in members:
            results, there = study.results, _as_confirmed(study)
            if there is not None:
                said = worth(*there, results.baselines, f"{names[group]} as confirmed")
                confirmed.append((there[0], said.sentence if said else ""))
            elif results.best is not None and results.best.values is not None:
                said = results.worth(results.best, f"the best of {names[group]}")
                searched.append((results.best.values[1], said.sentence if said else ""))
    found = confirmed or searched
    return [min(found)[1]] if found else []


def _as_confirmed(study: StudySnapshot) -> tuple[float, list[float]] | None:
    """The MQL of what a confirmation recommends, else of the default, and its mean in each run of
    windows; None where that is not of the windows on which forecasts without a network were scored.
    """
    there = confirmation_of(study)
    last_block = study.definition.keeps_last_block
    if there is None or last_block or study.results.objectives[1] != TEST_MQL:
        return None
    of = there.recommended if there.holds else there.default
    if of is None or of.mql is None or of.mql_is != TEST_MQL:
        return None
    told = [run.result.recorded.mql_runs or () for run in of.counted if run.result]
    most = max(map(len, told), default=0)
    whole = [each for each in told if len(each) == most]
    return of.mql.estimate, [math.fsum(each) / len(whole) for each in zip(*whole, strict=True)]


# Which of several variants to take.


def apart(between: Sequence[Standing]) -> list[str]:
    """What to do: a sentence for each variant that is held against the first one, and one for all
    that do not reach its quality.
    """
    short, said = [each for each in between if _falls_short(each)], []
    unknown: dict[str, list[Standing]] = {}
    for each in sorted(between, key=lambda one: not _claims(one)):  # what is known comes first
        if each.found is None or each.why_not:
            unknown.setdefault(each.why_briefly or "too few trials", []).append(each)
        elif not _falls_short(each):
            said.append(_of_two(each, each.found))
        elif each is short[0]:
            said.append(_fall_short(short))
    for why, those in unknown.items():
        b, what = those[0].b, _listed([each.a for each in those])
        who = f"{what} or {b} is faster" if len(those) == 1 else f"{what} are faster than {b}"
        said.append(f"Not known yet whether {who} at {b}'s quality: {why}")
    return said


def _listed(names: Sequence[str]) -> str:
    *before, last = names
    return f"{', '.join(before)} and {last}" if before else last


def _claims(standing: Standing) -> bool:
    return standing.found is not None and not standing.why_not and standing.claimed


def _takes(standing: Standing) -> bool:
    return _claims(standing) and standing.found is not None and standing.found.low < 1


def _falls_short(standing: Standing) -> bool:
    """Whether it mostly does not reach the reference's quality."""
    found = standing.found
    none = found is not None and found.ratio in (None, 0.0, math.inf) and found.low > 1
    return _claims(standing) and none


def _fall_short(short: Sequence[Standing]) -> str:
    """Of all whose searches mostly do not reach the quality of the first one's default."""
    reached = [each.found.reached[0] for each in short if each.found]
    searches = [each.found.searches[0] for each in short if each.found]
    those = _listed([each.a for each in short])
    margin = in_percent(short[0].level.margin).replace("%", " %")
    found = f"{sum(reached)} of {sum(searches)} searches of {those}"
    return f"{_stay(short[0])}: {found} come within {margin} of its error{_promised(short)}"


def _stay(standing: Standing) -> str:
    """With the first of two variants."""
    times = standing.level.searches[standing.level.group]
    retuned = any(each.how == "recommended" for each in times)
    return f"Use {standing.b} with new settings" if retuned else f"Keep {standing.b} as it is"


def _promised(short: Sequence[Standing]) -> str:
    """The error that variants promise at best of which no search reaches the level."""
    found = []
    for level in [each.level for each in short]:
        for group, times in level.searches.items():
            if group != level.group and all(each.seconds is None for each in times):
                found += [each.promised for each in times if each.promised is not None]
    return f" (nearest {min(found):.4f}, asked {short[0].level.mql:.4f})" if found else ""


def _of_two(standing: Standing, found: Between) -> str:
    a, b = standing.a, standing.b
    if not standing.claimed:
        high = "any number of" if math.isinf(found.high) else f"{found.high:.2f}"
        takes = f"{a} takes {found.low:.2f} to {high} times as long as {b}"
        more = f"--searches {2 * max(found.searches)} may tell"
        return f"Undecided: at the same error {takes}; {more}"
    (one, other), (all_one, _) = found.reached, found.searches
    if found.ratio in (None, 0.0, math.inf):
        return (
            f"Use {a} with new settings: {one} of {all_one} searches come within reach of {b}'s "
            f"error, of {b} {other}"
        )
    head = _stay(standing) if found.low > 1 else f"Use {a} with new settings"
    return f"{head}: at the same error {a} takes {found.ratio:.2f} times as long as {b}"


# What retuning gives of each variant, and what is to be changed.


def _each_own(paid: Sequence[RetuneCost], groups: Groups, names: Mapping[str, str]) -> list[str]:
    """A sentence for each variant, one for all of which there is the same to say."""
    found: dict[str, list[str]] = {}
    for each in paid:
        found.setdefault(_own(each, groups[each.group]), []).append(names[each.group])
    return [f"{_listed(those)}: {what}" for what, those in found.items()]


def _own(paid: RetuneCost, studies: Sequence[StudySnapshot]) -> str:
    """What retuning one variant gives over its default."""
    there = paid.confirmation
    if there is not None:
        return gain_in_words(there)
    known = [each for each in map(confirmation_of, studies) if each and each.complete]
    if known:
        many = "1 search" if len(studies) == 1 else f"{len(studies)} searches"
        return f"keep the default; nothing faster is confirmed as good ({many})"
    return f"not known{_would_tell(studies)}"


def _would_tell(studies: Sequence[StudySnapshot]) -> str:
    """What is missing for an answer, how long it takes, and how to ask for it."""
    there = [converged_configurations(each, runs_of(each)) for each in studies]
    if min(there) < LEAST_CONFIGURATIONS:
        return _trials_would_tell(studies, there)
    runs = [run for each in studies for run in each.runs if is_confirmation(run.plan)]
    left = [run for run in runs if run.state in ("waiting", "running")]
    if not left:
        return " yet: a confirmation tells (tuner verify --confirm)"
    ran = [device_seconds(run.result.recorded) for run in runs if run.result is not None]
    takes = f", {duration(len(left) * sum(ran) / len(ran))}" if ran else ""
    return f" yet: {len(left)} runs of its confirmation are left{takes}"


def _trials_would_tell(studies: Sequence[StudySnapshot], there: Sequence[int]) -> str:
    """Of searches of which `there` are the configurations that converged."""
    ended = [r.recorded for each in studies for r in each.results.records if r.state.is_finished()]
    if not ended:
        return " yet: no trial has ended"
    if not any(there):
        limit = studies[0].definition.training.max_epochs
        within = f" within {limit} epochs" if any(each.is_cut for each in ended) else ""
        timed = any(each.policy.search_s is not None for each in studies)
        longer = " and a larger --budget" if timed else ""
        way = f" (--max-epochs {2 * limit}{longer} goes on)" if within else ""
        return f": none of {len(ended)} trials converged{within}{way}"
    # As many more of each search as its worst one takes at the rate so far.
    rate = sum(there) / len(ended)
    more = math.ceil((LEAST_CONFIGURATIONS - min(there)) / rate)
    each_s = sum(map(device_seconds, ended)) / len(ended)
    asked = f"--trials {max(each.finished for each in studies) + more}"
    if any(each.policy.search_s is not None for each in studies):
        asked = "a larger --budget"
    return f": {duration(more * each_s * len(studies))} more would tell ({asked})"


def _change(there: Confirmation, name: str) -> str:
    """E.g. `Change in original: learning_rate 6.9e-04 (was 1e-04)`; empty where nothing is known of
    it.
    """
    best, default = there.recommended, there.default
    if best is None or default is None:
        return ""
    changed = [
        f"{each} {_shown(value)} (was {_shown(default.params[each])})"
        for each, value in best.params.items()
        if each in default.params and value != default.params[each]
    ]
    more = f" and {len(changed) - MOST_CHANGES} more" if len(changed) > MOST_CHANGES else ""
    return f"Change in {name}: {', '.join(changed[:MOST_CHANGES])}{more}" if changed else ""


def _shown(value: Value) -> str:
    return f"{value:.2g}" if isinstance(value, float) else str(value)


# What somebody hopes who rewrites a layer: fewer epochs and less time, as good.


def hoped(groups: Groups, names: Mapping[str, str], between: Sequence[Standing]) -> list[str]:
    """A line for each variant that is held against the first one, retuned against its default, each
    hope by itself, without a full stop.
    """
    first = groups[next(iter(groups))]
    default = next((each.default for each in map(confirmation_of, first) if each), None)
    if default is None or default.seconds is None:
        return []
    limit, usual = default.of_counted(lambda run: run.epochs), default.seconds.estimate
    answers = {names[each.group]: each.confirmation for each in costs(groups)}
    found = []
    for each in between:
        there = answers[each.a]
        best = None if there is None else there.recommended
        if best is None or best.seconds is None or limit is None:
            found.append(f"{each.a}: nothing faster than its own default is confirmed")
            continue
        epochs, seconds = best.of_counted(lambda run: run.epochs), best.seconds.estimate
        assert epochs is not None, "its time is known"
        found.append(
            f"{each.a}: fewer epochs than {each.b}'s {limit.estimate:g}: "
            f"{_yes(epochs.estimate < limit.estimate)} ({epochs.estimate:g}); less time than its "
            f"{usual:.2f} s: {_yes(seconds < usual)} ({seconds:.2f} s); faster at equal quality: "
            f"{'yes' if _takes(each) else 'no' if _claims(each) else 'undecided'}"
        )
    return found


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "no"


# Whether others would say so.


def _sure(
    paid: Sequence[RetuneCost], another: Sequence[AnotherSearch], names: Mapping[str, str]
) -> list[str]:
    """How many searches agree, and what another one of the first would come to."""
    found = [each for each in paid if each.confirmation is not None]
    if not found:
        return []
    first, alone = found[0], len(paid) == 1
    if alone and first.searches == 1:
        return [
            "How sure: one search, confirmed on fresh seeds; another one may find something else"
        ]
    each_one = [f"{names[each.group]} {each.confirmed} of {each.searches}" for each in found]
    each_one[0] += " searches"
    said = f"How sure: confirmed gains: {', '.join(each_one)}"
    expected = next((each.expected for each in another if each.group == first.group), None)
    if expected is None:
        return [said]
    low, high = 1 / expected.high, 1 / expected.low
    again = f"Searched again, {names[first.group]} would be"
    return [said, f"{again} {low:.1f} to {high:.1f} times as fast as its default"]
