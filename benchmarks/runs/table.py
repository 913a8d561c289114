"""Every recorded training in one file: searches' trials and the runs on fresh seeds, with what
later simulations and reports need of them.

    from benchmarks.runs.table import archives, runs

    for run in runs("retune/h100/*"):
        print(run.study, run.stage, run.params, run.seconds, run.mql)

`runs.jsonl.xz` holds one line of JSON for what several studies share, then one for each study, with
a list for each column. Seconds, parameters and the MQL of the objective are exact; what is rounded
is in `ROUNDED`. `collect.py` makes the file.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import itertools
import json
import lzma
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optuna.trial import TrialState

from tuner.config import Value
from tuner.record import Recorded
from tuner.spec.definition import StudyDefinition
from tuner.spec.membership import Membership
from tuner.spec.policy import Registered, SearchPolicy
from tuner.storage.queue.verifications import VerificationRun
from tuner.storage.records import TrialResult, device_seconds
from tuner.study.archive import Archive
from tuner.study.results import TrialRecord
from tuner.study.snapshot import StudySnapshot, snapshot

TABLE = Path(__file__).with_name("runs.jsonl.xz")
FORMAT = "tuner recorded runs 1"
SEARCH, VERIFICATION, ABLATION = "search", "verification", "ablation"
ROUNDED = {"val_loss": 7, "val_mql": 7, "other_test_mql": 6, "other_val_mql": 6}
"""Significant digits of columns that are not exact."""
HELD_DECIMALS = 3
"""Of the seconds that a training had its device for beside its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One training that was recorded."""

    export: str
    """The exported study that it was read from: its path under benchmarks/, without an ending."""
    study: str
    search: int
    """Which search of its group, from 1."""
    variant: str
    trial: int
    """The number of the trial whose configuration it has."""
    stage: str
    """`search`; on fresh seeds `verification`, `confirmation` or `ablation`."""
    params: Mapping[str, Value]
    seed: int
    device: str
    state: str
    """As Optuna's: COMPLETE, PRUNED or FAIL."""
    stopped_by: str
    epochs: int
    seconds: float
    """`wall_clock_s`."""
    held_s: float
    """Seconds that it had its device for."""
    contaminated: bool
    val_loss: float | None
    val_mql: float | None
    mql: float | None
    """Test MQL, the objective; None of a training that was pruned or failed."""
    series_test_mql: Mapping[str, float | None]
    series_val_mql: Mapping[str, float | None]

    @property
    def converged(self) -> bool:
        return self.stopped_by == "converged"


def exports(pattern: str = "*", path: Path = TABLE) -> list[str]:
    """The names of the exported studies that match, in the table's order: `retune/h100/*`."""
    return [each["export"] for each in _lines(path)[1] if fnmatch.fnmatch(each["export"], pattern)]


def archive(export: str, path: Path = TABLE) -> Archive:
    """A study as an archive that holds what the table does: no curves, no circumstances.

    Raises:
        KeyError: the table has no such study.
    """
    shared, lines = _lines(path)
    for each in lines:
        if each["export"] == export:
            return _unpacked(shared, each)
    raise KeyError(f"{path.name} has no study {export!r}; exports() names those that there are")


def archives(pattern: str = "*", path: Path = TABLE) -> dict[str, Archive]:
    """The studies whose exports match, by their names."""
    return {name: archive(name, path) for name in exports(pattern, path)}


def snapshots(pattern: str, path: Path = TABLE) -> list[StudySnapshot]:
    """The same as reports and comparisons read them."""
    return [snapshot(without_ablations(each)) for each in archives(pattern, path).values()]


def without_ablations(found: Archive) -> Archive:
    """The study without runs of an operation that is gone: what is recommended, with one value at a
    time set back to the default. They chose nothing, and confirmed nothing.
    """
    kept = [each for each in found.verifications if each.plan.get("kind") != ABLATION]
    return dataclasses.replace(found, verifications=tuple(kept))


def runs(pattern: str = "*", path: Path = TABLE) -> Iterator[Run]:
    """Every training of the studies whose exports match: of each the trials of its search, then its
    runs on fresh seeds in the order of their plan.
    """
    for name, found in archives(pattern, path).items():
        for record in found.records:
            of_trial = (record.number, SEARCH, record.params)
            yield _run(name, found, *of_trial, record.state, record.recorded)
        for each in found.verifications:
            assert each.result is not None, "it ended"
            if each.copied:  # the search that made it has it
                continue
            of_run = (each.trial_number, each.plan.get("kind", VERIFICATION), each.params)
            yield _run(name, found, *of_run, each.result.state, each.result.recorded)


def _run(
    export: str,
    found: Archive,
    trial: int,
    stage: str,
    params: Mapping[str, Value],
    state: TrialState,
    seen: Recorded,
) -> Run:
    assert seen.seed is not None, "it trained"
    return Run(
        export=export,
        study=found.name,
        search=found.membership.search,
        variant=found.definition.variant,
        trial=trial,
        stage=stage,
        params=params,
        seed=seen.seed,
        device=seen.device or "",
        state=state.name,
        stopped_by=seen.stopped_by or "",
        epochs=seen.epochs or 0,
        seconds=seen.wall_clock_s or 0.0,
        held_s=device_seconds(seen),
        contaminated=bool(seen.contaminated),
        val_loss=seen.val_loss,
        val_mql=seen.val_mql,
        mql=seen.test_mql,
        series_test_mql=seen.series_test_mql,
        series_val_mql=seen.series_val_mql,
    )


# -- what is written -------------------------------------------------------------------------------


def write(found: Mapping[str, Archive], path: Path = TABLE) -> None:
    """The table of these exported studies, by their names; the same studies give the same bytes."""
    shared = _Shared()
    # As a folder lists its exports: what is fitted hangs on the order of its points.
    in_order = sorted(found.items(), key=lambda item: f"{item[0]}.json.gz")
    lines = [_packed(shared, name, each) for name, each in in_order]
    head = {"format": FORMAT, "shared": shared.values}
    text = "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in (head, *lines))
    path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    _lines.cache_clear()  # what was read of this path before


class _Shared:
    """What several studies have alike: definitions, policies and plans, each once."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._places: dict[str, int] = {}

    def place(self, value: Any) -> int:
        text = json.dumps(value)
        if text not in self._places:
            self._places[text] = len(self.values)
            self.values.append(value)
        return self._places[text]


def _packed(shared: _Shared, export: str, found: Archive) -> dict[str, Any]:
    trained = [each for each in found.records if each.recorded.seed is not None]
    finished = [each for each in found.verifications if each.state == "finished"]
    objective = found.definition.task["objective_series"]
    sessions = list(dict.fromkeys(each.session for each in finished))
    params = {each.number: each.params for each in trained}
    names = list(found.definition.space.ranges)
    others = [
        [place, each.params]
        for place, each in enumerate(finished)
        if each.params != params[each.trial_number]
    ]
    results = [each.result for each in finished if each.result is not None]
    assert len(results) == len(finished), f"{export}: a run without a result"
    return {
        "export": export,
        "name": found.name,
        "definition": shared.place(found.definition.as_dict()),
        "policy": shared.place(json.loads(found.policy.to_json())),
        "search": found.membership.model_dump(),
        "budget": found.budget,
        "retune": found.retune and found.retune.as_dict(),
        "without_result_s": found.without_result_s,
        "device_model": found.device_model,
        "trials": {
            "number": _counted([each.number for each in trained]),
            "state": _runs_of_equals([each.state.name for each in trained]),
            "params": {name: [each.params.get(name) for each in trained] for name in names},
            "default": _sparse([each.recorded.default for each in trained]),
            "suggest_wait_s": [each.recorded.suggest_wait_s for each in trained],
            **_columns([each.recorded for each in trained], objective),
        },
        "runs": {
            "trial": [each.trial_number for each in finished],
            "state": _runs_of_equals([each.state.name for each in results]),
            "other_params": others,
            "block": [each.block for each in finished],
            "place": [each.place for each in finished],
            "session": [sessions.index(each.session) for each in finished],
            "plan": _runs_of_equals([shared.place(each.plan) for each in finished]),
            **_columns([each.recorded for each in results], objective),
        },
    }


def _columns(seen: Sequence[Recorded], objective: str) -> dict[str, Any]:
    """What was recorded of trials and of runs alike."""
    found: dict[str, Any] = {
        "seed": [each.seed for each in seen],
        "device": _runs_of_equals([each.device for each in seen]),
        "stopped_by": _runs_of_equals([each.stopped_by for each in seen]),
        "epochs": [each.epochs for each in seen],
        "pruned_at_epoch": _sparse([each.pruned_at_epoch for each in seen]),
        "contaminated": _sparse([each.contaminated or None for each in seen]),
        "windows": _runs_of_equals([_windows(each) for each in seen]),
        "seconds": [each.wall_clock_s for each in seen],
        "beside_s": [
            round(device_seconds(each) - (each.wall_clock_s or 0.0), HELD_DECIMALS)
            for each in [dataclasses.replace(one, copied_from=None) for one in seen]
        ],
        "copied_from": _sparse([each.copied_from for each in seen]),
        "mql": [each.test_mql for each in seen],
        "val_loss": _rounded("val_loss", [each.val_loss for each in seen]),
        "val_mql": _rounded("val_mql", [each.val_mql for each in seen]),
    }
    others = {name: None for each in seen for name in each.series_test_mql if name != objective}
    found["objective_series"] = _runs_of_equals(
        [objective in each.series_test_mql for each in seen]
    )
    for column in ("test_mql", "val_mql"):
        found[f"other_{column}"] = {
            name: _rounded(
                f"other_{column}", [getattr(each, f"series_{column}").get(name) for each in seen]
            )
            for name in others
        }
    return found


def _windows(seen: Recorded) -> int | None:
    """Training windows of an epoch."""
    if not seen.s_per_epoch or not seen.samples_per_s:
        return None
    return round(seen.s_per_epoch * seen.samples_per_s)


def _rounded(column: str, values: Sequence[float | None]) -> list[float | None]:
    digits = ROUNDED[column]
    return [None if each is None else float(f"{each:.{digits}g}") for each in values]


def _counted(numbers: Sequence[int]) -> list[list[int]]:
    """Numbers as [first, last] of what follows upon each other."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found


def _runs_of_equals(values: Sequence[Any]) -> list[list[Any]]:
    """[value, how often] of equal values in a row."""
    return [[value, len(list(same))] for value, same in itertools.groupby(values)]


def _sparse(values: Sequence[Any]) -> list[list[Any]]:
    """[place, value] where there is one."""
    return [[place, value] for place, value in enumerate(values) if value is not None]


# -- what is read ----------------------------------------------------------------------------------


@functools.cache
def _lines(path: Path) -> tuple[list[Any], list[dict[str, Any]]]:
    """What is shared, and the line of each study."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        head, *lines = [json.loads(line) for line in file]
    if head.get("format") != FORMAT:
        raise ValueError(f"{path} is no table of recorded runs: it lacks {FORMAT!r}")
    return head["shared"], lines


def _unpacked(shared: Sequence[Any], line: Mapping[str, Any]) -> Archive:
    definition = StudyDefinition.from_dict(shared[line["definition"]])
    objective = definition.task["objective_series"]
    retune = line["retune"]
    return Archive(
        name=line["name"],
        definition=definition,
        membership=Membership.model_validate(line["search"]),
        policy=SearchPolicy.from_json(json.dumps(shared[line["policy"]])),
        budget=line["budget"],
        device_model=line["device_model"],
        retune=None if retune is None else Registered.model_validate(retune),
        without_result_s=line["without_result_s"],
        records=_records(line["trials"], objective, definition.objectives),
        verifications=_verifications(shared, line, objective),
    )


def _records(
    columns: Mapping[str, Any], objective: str, objectives: tuple[str, ...]
) -> tuple[TrialRecord, ...]:
    numbers = [n for first, last in columns["number"] for n in range(first, last + 1)]
    states = _each(columns["state"])
    default = dict(columns["default"])
    found = []
    for place, seen in enumerate(_recorded(columns, objective)):
        own = {"suggest_wait_s": columns["suggest_wait_s"][place], "default": default.get(place)}
        flat = seen | {name: value for name, value in own.items() if value is not None}
        state = TrialState[states[place]]
        params = {name: of[place] for name, of in columns["params"].items()}
        found.append(
            TrialRecord(
                number=numbers[place],
                state=state,
                params={name: value for name, value in params.items() if value is not None},
                values=_values(state, seen),
                recorded=Recorded.from_flat(flat),
                started=None,
                ended=None,
                objectives=objectives,
            )
        )
    return tuple(found)


def _verifications(
    shared: Sequence[Any], line: Mapping[str, Any], objective: str
) -> tuple[VerificationRun, ...]:
    columns, trials = line["runs"], line["trials"]
    numbers = [n for first, last in trials["number"] for n in range(first, last + 1)]
    of_trial = {number: place for place, number in enumerate(numbers)}
    others = dict(columns["other_params"])
    states, plans = _each(columns["state"]), _each(columns["plan"])
    found = []
    for place, seen in enumerate(_recorded(columns, objective)):
        number = columns["trial"][place]
        own = {name: of[of_trial[number]] for name, of in trials["params"].items()}
        params = others.get(place) or {k: each for k, each in own.items() if each is not None}
        state = TrialState[states[place]]
        result = TrialResult(state, _values(state, seen), Recorded.from_flat(seen), {})
        found.append(
            VerificationRun(
                work_id=0,
                study_id=0,
                token=None,
                trial_number=number,
                params=params,
                seed=seen["seed"],
                block=columns["block"][place],
                place=columns["place"][place],
                session=f"{columns['session'][place]:032x}",
                plan=shared[plans[place]],
                state="finished",
                losses=0,
                worker="",
                result=result,
            )
        )
    return tuple(found)


def _recorded(columns: Mapping[str, Any], objective: str) -> Iterator[dict[str, Any]]:
    """What was recorded of each, flat."""
    devices, stops = _each(columns["device"]), _each(columns["stopped_by"])
    windows, of_objective = _each(columns["windows"]), _each(columns["objective_series"])
    contaminated = dict(columns["contaminated"])
    seldom = {name: dict(columns.get(name, ())) for name in ("pruned_at_epoch", "copied_from")}
    for place, seconds in enumerate(columns["seconds"]):
        epochs, mql = columns["epochs"][place], columns["mql"][place]
        flat: dict[str, Any] = {
            "stopped_by": stops[place],
            "converged": stops[place] == "converged",
            "wall_clock_s": seconds,
            "epochs": epochs,
            "val_loss": columns["val_loss"][place],
            "seed": columns["seed"][place],
            "contaminated": place in contaminated,
            "device": devices[place],
            "total_s": seconds + columns["beside_s"][place],
        }
        if epochs:
            flat["s_per_epoch"] = seconds / epochs
            if windows[place]:
                flat["samples_per_s"] = windows[place] * epochs / seconds
        flat |= {name: of[place] for name, of in seldom.items() if place in of}
        if mql is not None:
            flat |= {"test_mql": mql, "val_mql": columns["val_mql"][place]}
            for kind in ("test_mql", "val_mql"):
                if of_objective[place]:
                    flat[f"{kind}/{objective}"] = flat[kind]
                for name, of in columns[f"other_{kind}"].items():
                    if of[place] is not None:
                        flat[f"{kind}/{name}"] = of[place]
            scores = [each for name, each in flat.items() if name.startswith("test_mql/")]
            flat["test_mql_mean"] = sum(scores) / len(scores) if scores else mql
        yield flat


def _each(counted: Sequence[Sequence[Any]]) -> list[Any]:
    """What `_runs_of_equals` was given."""
    return [value for value, often in counted for _ in range(often)]


def _values(state: TrialState, seen: Mapping[str, Any]) -> tuple[float, float] | None:
    if state is not TrialState.COMPLETE:
        return None
    return seen["wall_clock_s"], seen["test_mql"]
