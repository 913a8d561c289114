"""What is recorded with a trial: one field for each thing, which says what it is, what it becomes
over a trial's seeds, and where else it is kept or shown.

A new figure is one more field, and whoever measures it. In databases and exported studies a record
is flat: field names, and one name a series (`test_mql/HUFL`).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner.config import StopReason
from tuner.files import kinds
from tuner.files.kinds import In, Kind, Meaning, OverSeeds
from tuner.files.plain import excerpt, harmless, harmless_data

SCORES = {
    "series_test_mql": "test_mql/",
    "series_val_mql": "val_mql/",
    "block_test_mql": "test_block_mql/",
    "column_test_mql": "test_mql_of/",
    "column_val_mql": "val_mql_of/",
}
"""The fields that hold scores of parts, and how the names of these begin when flat."""


def _of(kind: Kind, over_seeds: OverSeeds = OverSeeds.LAST, kept: In = In.NOWHERE) -> Any:
    return field(default=None, metadata={"meaning": Meaning(kind, over_seeds, kept)})


_MEDIAN = OverSeeds.MEDIAN
_RUNS, _TIMINGS, _SECTION = In.RUNS, In.TIMINGS, In.SECTION
_SOURCE = In.PROVENANCE | In.SECTION


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What is known of a trial or a verification run; None is what was not recorded.

    The fields are in the order in which they are written. `order` and `nulls` are names as they
    were stored: their order, and those that were null. So what was read is written back as it was.
    """

    # Whose it is.
    foreign: bool | None = _of(kinds.FLAG)
    """In an exported study: the trial of this number is another program's."""
    # How the training went.
    stopped_by: str | None = _of(kinds.TEXT, kept=_RUNS | _TIMINGS | _SOURCE)
    converged: bool | None = _of(kinds.FLAG, OverSeeds.ALL, _RUNS | _SOURCE)
    wall_clock_s: float | None = _of(kinds.SECONDS, _MEDIAN, _RUNS | _TIMINGS)
    epochs: int | None = _of(kinds.EPOCHS, _MEDIAN, _RUNS | _SOURCE)
    best_epoch: int | None = _of(kinds.EPOCHS, _MEDIAN, _RUNS | _SOURCE)
    val_loss: float | None = _of(kinds.FIGURE, _MEDIAN, _RUNS | _SOURCE)
    s_per_epoch: float | None = _of(kinds.SECONDS_EACH, _MEDIAN, _RUNS | _SOURCE)
    setup_s: float | None = _of(kinds.SECONDS, _MEDIAN, _RUNS | _SECTION)
    time_to_best_s: float | None = _of(kinds.SECONDS, _MEDIAN, _RUNS | _SECTION)
    samples_per_s: float | None = _of(kinds.RATE, _MEDIAN, _SECTION)
    epoch_windows: int | None = _of(kinds.COUNT, _MEDIAN, _SECTION)
    """Training windows of an epoch."""
    slowed: str | None = _of(kinds.TEXT, OverSeeds.JOINED, _RUNS | _SECTION)
    """How its throughput fell from epoch to epoch; empty where it did not."""
    gpu_busy: float | None = _of(kinds.SHARE, _MEDIAN, _RUNS | _SECTION)
    """Share of the time on its clock in which the GPU had work, as NVML says; of a training that
    was interrupted, and of the next figure too: of its last part."""
    cpu_busy: float | None = _of(kinds.CORES, _MEDIAN, _RUNS | _SECTION)
    """Cores that its process kept busy while its clock ran, on average."""
    energy_j: float | None = _of(kinds.JOULES, _MEDIAN, _RUNS | _SECTION)
    """Joules that its GPUs drew, all together and by whomever, as NVML counts them: from before its
    clock started until after it stopped, with the pauses between; of a training that was
    interrupted, its parts together; of a program's, until that ended. None on a CPU, where NVML
    counts none, of a program that was interrupted, and where the clock ran for less than 30 s."""
    energy_unresolved: bool | None = _of(kinds.FLAG, OverSeeds.LAST, _RUNS | _SECTION)
    """The GPUs count their joules, but the clock ran for less than 30 s: the counter moves in steps
    and the power sensor behind it averages, both too coarsely for so short a time. Recorded where
    it is so."""
    peak_memory_bytes: int | None = _of(kinds.BYTES, OverSeeds.MAX, _SECTION)
    n_parameters: int | None = _of(kinds.COUNT, _MEDIAN, _SECTION)
    n_frozen: int | None = _of(kinds.COUNT, _MEDIAN, _SECTION)
    """Parameters that are not trained, and not among `n_parameters`; where there are any."""
    backend: str | None = _of(kinds.TEXT, kept=_SOURCE)
    backend_fallback: str | None = _of(kinds.TEXT, kept=_SECTION | In.NULL)
    backend_measured: str | None = _of(kinds.TEXT, kept=_SECTION)
    """Seconds an epoch by each backend, where `auto` was measured."""
    data_streamed: str | None = _of(kinds.TEXT, kept=_SECTION)
    """Why the rows of the data stayed on the host, and where; recorded where they did."""
    precision: str | None = _of(kinds.TEXT, kept=_SOURCE)
    cell: str | None = _of(kinds.TEXT, kept=_SECTION)
    """Whose xLSTM cell ran, of a network that has one: `xlstm 2.0.6`, or `own`, and why."""
    seed: int | None = _of(kinds.COUNT, OverSeeds.FIRST, _RUNS | _SOURCE)
    # On what, and beside what.
    contaminated: bool | None = _of(kinds.FLAG, OverSeeds.ANY, _RUNS | _TIMINGS | _SOURCE)
    contamination: str | None = _of(kinds.TEXT, OverSeeds.JOINED, _RUNS | _TIMINGS | _SECTION)
    device_watch: Mapping[str, Any] | None = _of(kinds.TABLE)
    versions: Mapping[str, str | None] | None = _of(kinds.VERSIONS, kept=_SOURCE)
    git_revision: str | None = _of(kinds.TEXT, kept=_SOURCE | In.NULL)
    device: str | None = _of(kinds.TEXT, kept=_SOURCE)
    device_uuid: str | None = _of(kinds.TEXT, kept=_SECTION)
    device_label: str | None = _of(kinds.TEXT, kept=_SECTION)
    devices: int | None = _of(kinds.COUNT)
    """That trained it together; where it was more than one."""
    host: str | None = _of(kinds.TEXT, kept=_SECTION)
    # When the clock ran, on its machine's clock: launches that share a device take turns.
    timed_from: float | None = _of(kinds.MOMENT, OverSeeds.MIN, _RUNS | _TIMINGS)
    timed_until: float | None = _of(kinds.MOMENT, OverSeeds.MAX, _RUNS | _TIMINGS)
    clock: str | None = _of(kinds.TEXT, kept=_SECTION)
    """Whose clock it was (`spec/program.py`); a record without one is by tuner's."""
    resumed_from_epoch: int | None = _of(kinds.EPOCHS, _MEDIAN, _RUNS | In.NULL)
    checkpoint_load_s: float | None = _of(kinds.SECONDS, _MEDIAN, _SECTION)
    """Reading the checkpoint that it went on from and putting it back, off the clock."""
    timed_earlier: list[Any] | None = _of(kinds.PLAIN_LIST)
    """The parts before an interruption, from taking the device to the last checkpoint used."""
    allocated_memory_bytes: int | None = _of(kinds.BYTES, _MEDIAN, _SECTION)
    reserved_memory_bytes: int | None = _of(kinds.BYTES, _MEDIAN, _SECTION)
    kept_engines: int | None = _of(kinds.COUNT, kept=_SECTION)
    kept_engines_bytes: int | None = _of(kinds.BYTES, kept=_SECTION)
    wait_s: float | None = _of(kinds.SECONDS, _MEDIAN)
    evaluation_s: float | None = _of(kinds.SECONDS, _MEDIAN)
    total_s: float | None = _of(kinds.SECONDS, _MEDIAN, _RUNS | _SECTION)
    context_lost: bool | None = _of(kinds.FLAG, OverSeeds.ANY)
    """After it the process can train no more; recorded where it is so."""
    unused_methods: list[Any] | None = _of(kinds.PLAIN_LIST)
    time_to_target_s: float | None = _of(kinds.SECONDS, _MEDIAN, _RUNS)
    # How good it is.
    test_mql: float | None = _of(kinds.FIGURE, _MEDIAN, _RUNS)
    val_mql: float | None = _of(kinds.FIGURE, _MEDIAN, _RUNS | _SOURCE)
    test_mql_mean: float | None = _of(kinds.FIGURE, _MEDIAN, _SECTION)
    series_test_mql: Mapping[str, float | None] = field(default_factory=dict)
    series_val_mql: Mapping[str, float | None] = field(default_factory=dict)
    block_test_mql: Mapping[str, float | None] = field(default_factory=dict)
    """Where the test split is cut: of the blocks that were forecast, as are all test figures."""
    column_test_mql: Mapping[str, float | None] = field(default_factory=dict)
    """Of the target columns, where there are several: in the units of the data."""
    column_val_mql: Mapping[str, float | None] = field(default_factory=dict)
    mql_runs: list[float] | None = _of(kinds.FIGURES)
    """MQL of the objective's windows, in runs of consecutive ones."""
    target_missed: bool | None = _of(kinds.FLAG, OverSeeds.ANY)
    """It never reached the registered validation loss: it has no time, and so no values."""
    failure: str | None = _of(kinds.TEXT, kept=_RUNS | _SECTION)
    timings: list[dict[str, Any]] | None = _of(kinds.TABLES, kept=_RUNS)
    runs: list[dict[str, Any]] | None = _of(kinds.TABLES)
    # What the worker adds.
    attempts: int | None = _of(kinds.COUNT, kept=_SECTION)
    suggest_s: float | None = _of(kinds.SECONDS, kept=_SECTION)
    suggest_wait_s: float | None = _of(kinds.SECONDS)
    cycle_s: float | None = _of(kinds.SECONDS)
    turnover_s: float | None = _of(kinds.SECONDS)
    attempt_s: float | None = _of(kinds.SECONDS)
    pruned_optimistic_s: float | None = _of(kinds.SECONDS)
    """Of a pruned trial: the best end it might still have come to, which is dominated."""
    pruned_optimistic_mql: float | None = _of(kinds.FIGURE)
    pruned_at_epoch: int | None = _of(kinds.EPOCHS)
    pruned_dominated_by: int | None = _of(kinds.COUNT)
    # Where it comes from, or why it was not run.
    for_anothers: bool | None = _of(kinds.FLAG)
    """It was chosen to reach another study's quality; false: it was to be, and nothing that had run
    promised that."""
    default: bool | None = _of(kinds.FLAG, OverSeeds.ANY, _SOURCE)
    set_aside: bool | None = _of(kinds.FLAG, OverSeeds.ANY)
    seeds: list[int] | None = _of(kinds.SEEDS)
    warm_start: str | None = _of(kinds.TEXT)
    copied_from: str | None = _of(kinds.TEXT)
    skipped: str | None = _of(kinds.TEXT)
    look: int | None = _of(kinds.COUNT)
    other: Mapping[str, Any] = field(default_factory=dict)
    """What no field is for: others wrote it, or another version did. Carried along, and shown."""
    order: tuple[str, ...] = field(default=(), repr=False, compare=False)
    nulls: frozenset[str] = field(default=frozenset(), repr=False, compare=False)

    @staticmethod
    def from_flat(flat: Mapping[str, Any]) -> Recorded:
        """A record as it is stored, without what is wrong: who shares a database may have written
        that, and the rest counts.
        """
        return _read(flat, [])

    def to_flat(self) -> dict[str, Any]:
        """The record as it is stored and exported."""
        flat: dict[str, Any] = {}
        for name in MEANINGS:
            value = getattr(self, name)
            if value is not None or name in self.nulls:
                flat[name] = value
        for each, prefix in SCORES.items():
            flat |= {f"{prefix}{part}": mql for part, mql in getattr(self, each).items()}
        flat |= self.other
        return {name: flat[name] for name in self.order if name in flat} | flat

    def named(self, name: str) -> Any:
        """The thing of this name; None where there is no such field, or nothing in it."""
        return getattr(self, name) if name in MEANINGS else None

    def kept_in(self, where: In) -> dict[str, Any]:
        """What is kept there, by name; None where nothing was recorded."""
        return {name: getattr(self, name) for name in names_in(where)}

    @property
    def each_seed(self) -> tuple[Recorded, ...]:
        """What was recorded of each seed; of a training with one, all of it."""
        return tuple(map(Recorded.from_flat, self.runs)) if self.runs else (self,)

    @property
    def is_cut(self) -> bool:
        """Whether the study's limit of epochs ended a training, of several seeds one, that else
        would have gone on: it has figures, of its best epoch until then.
        """
        of_limit = StopReason.EPOCH_LIMIT
        return any(not each.converged and each.stopped_by == of_limit for each in self.each_seed)

    def storable(self) -> Recorded:
        """The same of a training that has ended: as JSON has no infinity and no NaN, such figures
        become null, and so does what is nothing and always told.
        """
        infinite = {name for name in MEANINGS if _is_infinite(getattr(self, name))}
        nothing = {name for name in names_in(In.NULL) if getattr(self, name) is None}
        changed: dict[str, Any] = dict.fromkeys(infinite)
        for name in SCORES:
            scores = getattr(self, name)
            changed[name] = {of: None if _is_infinite(mql) else mql for of, mql in scores.items()}
        changed["nulls"] = self.nulls | infinite | nothing
        return dataclasses.replace(self, **changed)


MEANINGS: Mapping[str, Meaning] = {
    each.name: each.metadata["meaning"]
    for each in dataclasses.fields(Recorded)
    if "meaning" in each.metadata
}
"""What each field means, by its name."""
_HOLDS = {name: meaning.kind.holds for name, meaning in MEANINGS.items()}
_NUMBERS = frozenset((float, int, bool))


def names_in(where: In) -> tuple[str, ...]:
    """Names of the fields that are kept there."""
    return tuple(name for name, meaning in MEANINGS.items() if where in meaning.kept)


def checked(flat: Mapping[str, Any]) -> Recorded:
    """A record as it is stored.

    Raises:
        ValueError: something has another type or range than its readers rely on, or is no plain
            data.
    """
    wrong: list[str] = []
    found = _read(flat, wrong)
    if wrong:
        name = wrong[0]
        expected = (MEANINGS[name].kind if name in MEANINGS else _kind_of_other(name)).expected
        raise ValueError(
            f"attribute {excerpt(repr(name))} is {excerpt(repr(flat[name]))}; expected {expected}"
        )
    return found


def is_set_aside(flat: Mapping[str, Any]) -> bool:
    """The same as `Recorded.from_flat(flat).set_aside`, without reading the rest: it is asked of
    every failed trial before each suggestion.
    """
    return flat.get("set_aside") is True


def _read(flat: Mapping[str, Any], wrong: list[str]) -> Recorded:
    """The record; the names of what is wrong are added to `wrong`."""
    found: dict[str, Any] = {}
    scores: dict[str, dict[str, Any]] = {name: {} for name in SCORES}
    other: dict[str, Any] = {}
    nulls: list[str] = []
    for name, value in flat.items():
        holds = _HOLDS.get(name)
        if holds is None:
            if value is not None and not _kind_of_other(name).holds(value):
                wrong.append(name)
            elif (of := _scores_of(name)) is not None:
                scores[of][harmless(name.removeprefix(SCORES[of]))] = value
            else:
                other[harmless(name)] = harmless_data(value)
        elif value is None:
            nulls.append(name)
        elif not holds(value):
            wrong.append(name)
        elif type(value) in _NUMBERS or (
            type(value) is str and value.isascii() and value.isprintable()
        ):
            found[name] = value  # the usual case first: studies hold thousands of these
        else:
            found[name] = harmless_data(value)
    return Recorded(
        **(found | scores),
        other=other,
        order=_harmless_names(tuple(flat)),
        nulls=frozenset(nulls),
    )


@functools.lru_cache(maxsize=256)
def _harmless_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names in their order; one tuple for all the trials that have the same."""
    return tuple(map(harmless, names))


def _kind_of_other(name: str) -> Kind:
    return kinds.PLAIN if _scores_of(name) is None else kinds.FIGURE


@functools.lru_cache(maxsize=1024)  # a study's trials have the same names
def _scores_of(name: str) -> str | None:
    return next((of for of, prefix in SCORES.items() if name.startswith(prefix)), None)


def _is_infinite(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
