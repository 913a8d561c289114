"""Our sampler beside other libraries, by what a user has at the end: at equal GPU seconds.

    python benchmarks/verdict/others.py --searches 3 --output OUT/others

Each contender searches each truth until 240 GPU seconds are spent, its suggestions among them
(others_contenders.py). What is recommended, by its library's own way and by ours from the same runs,
is confirmed against the default 200 times; where a confirmation fails, the default's time stands.
Searches are kept in a file that is not committed: the command may be stopped and given again.
`--report` takes the truths for reporting. Writes OUTPUT.md and OUTPUT.json.

Beside ours and Optuna's the contenders need ray[tune], syne-tune, ax-platform and botorch. What is
not installed is left out, and both the report and stderr say so; named by `--contenders` it is an
error. `--cached` searches nothing and reports what is there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.shared.one_core import one_core_each

one_core_each()  # before numpy: a suggestion is paid for by one thread

from benchmarks.verdict.budgets import BUDGET_S, Gpu
from benchmarks.verdict.made_jobs import KINDS
from benchmarks.verdict.others_contenders import (
    KEYS,
    Entry,
    cpu,
    entry,
    installed,
    library_versions,
    made,
    spend,
)
from benchmarks.verdict.others_table import document_of, lines
from benchmarks.verdict.simulation_files import kept, options_of, publish, searches_in
from benchmarks.verdict.truths import TRUTHS, truth

CACHE = Path(__file__).parent / "others-searches.jsonl"
Search = dict[str, Any]
Todo = tuple[str, str, int, float]
"""A contender's key, a truth's name, a seed, GPU seconds."""


def searched(key: str, name: str, seed: int, budget_s: float) -> Search:
    """One search of one contender."""
    truth(name)  # made before the clock runs
    one, gpu = entry(key), Gpu(name, seed, budget_s)
    contender = made(one, gpu)
    spent = spend(gpu, contender, beside=one.beside)
    own = contender.recommended()
    return {
        "contender": key,
        "truth": name,
        "seed": seed,
        "budget_s": budget_s,
        "suggest_s": spent.suggest_s,
        "waited_s": spent.waited_s,
        "asked": spent.asked,
        "own": None if own is None else list(own),
        "libraries": library_versions(),
        "cpu": cpu(),
        "trials": [[*where, t.seconds, t.mql, t.epochs] for where, t in gpu.trained],
    }


def todo_of(search: Search) -> Todo:
    """Which search it was."""
    return search["contender"], search["truth"], search["seed"], search["budget_s"]


def search_all(todo: Sequence[Todo], cache: Path, jobs: int) -> list[Search]:
    """From the cache or now; the first seed of all truths and contenders first."""
    found = {todo_of(one): one for one in searches_in(cache)}
    missing = [one for one in todo if one not in found]
    if missing:
        for one in kept(_searches(missing, jobs), cache):
            found[todo_of(one)] = one
            print(f"{one['contender']} {one['truth']} {one['seed']}", file=sys.stderr, flush=True)
    return [found[one] for one in todo]


def _searches(missing: Sequence[Todo], jobs: int) -> Iterator[Search]:
    if jobs == 1:
        yield from (searched(*one) for one in missing)
    else:
        with ProcessPoolExecutor(jobs) as pool:
            yield from pool.map(searched, *zip(*missing, strict=True))


def chosen(named: str | None) -> list[Entry]:
    """Contenders by their keys; all where none is named.

    Raises:
        SystemExit: a named one is unknown, or its library is not installed.
    """
    found = []
    for key in KEYS if named is None else named.split(","):
        if key not in KEYS:
            raise SystemExit(f"no contender is called {key}: expected some of {', '.join(KEYS)}")
        one = entry(key)
        if named is not None and not installed(one):
            raise SystemExit(f"{key} needs {one.distribution}, which is not installed")
        found.append(one)
    return found


def left_out(run: Sequence[Entry], todo: Sequence[Todo]) -> list[str]:
    """Which contenders do not take part, and why."""
    here = {key for key, *_ in todo}
    found = []
    for each in run:
        if each.key not in here:
            missing = not installed(each)
            why = f"{each.distribution} is not installed" if missing else "no search of it"
            found.append(f"{each.name} ({why})")
    return found


def main(arguments: Iterable[str] | None = None) -> None:
    parser = options_of(__doc__)
    parser.add_argument("--searches", type=int, default=3, help="of each truth")
    parser.add_argument("--contenders", help=f"some of {','.join(KEYS)}; all where left out")
    parser.add_argument("--report", action="store_true", help="on the truths for reporting")
    parser.add_argument("--both", action="store_true", help="on all truths, of either kind")
    parser.add_argument("--made", help="made jobs in place of them: these draws of each kind")
    parser.add_argument("--truths", type=int, help="the first so many of them alone")
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="GPU seconds of each")
    parser.add_argument("--cached", action="store_true", help="search nothing more")
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(None if arguments is None else list(arguments))
    run = chosen(options.contenders)
    wanted = [made.name for made in TRUTHS if options.both or made.report == options.report]
    names = wanted[: options.truths]
    if options.made:
        names = [f"made, {kind}, {draw}" for draw in options.made.split(",") for kind in KINDS]
    todo = [
        (each.key, name, seed, options.budget)
        for seed in range(options.searches)
        for name in names
        for each in run
    ]
    before = {todo_of(one) for one in searches_in(options.cache)}
    todo = [o for o in todo if o in before or (installed(entry(o[0])) and not options.cached)]
    absent = left_out(run, todo)
    for each in absent:
        print(f"left out: {each}", file=sys.stderr)
    document = document_of(search_all(todo, options.cache, options.jobs), options.budget, absent)
    publish(options.output, "simulated", document, lines(document))


if __name__ == "__main__":
    main()
