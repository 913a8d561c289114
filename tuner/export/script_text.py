"""What written forms of a configuration have in common: what it is, why it is the one, its figures
and where it comes from; and, in scripts, plain data and the user's own code.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from tuner.config import OBJECTIVES, MqlSplit, names_own_code
from tuner.errors import UsageError
from tuner.export.best_config import BestConfig
from tuner.files.plain import excerpt
from tuner.spec.objectives import axis_title
from tuner.study.results import in_words


def comment(config: BestConfig) -> str:
    """What every script says at its head."""
    lines = headline(config)
    if names_own_code(config.architecture.model):
        lines.append(f"Its network is {one_line(config.architecture.model)}, whose code runs here.")
    if config.added_term is not None:
        term = one_line(config.added_term.term)
        lines.append(f"Its training loss has the term {term}, whose code runs here.")
    return "\n".join(f"# {line}" for line in lines)


def users_class(model: str) -> str:
    """The function that finds a class of the user's own, which stays where it is; nothing is
    imported to write it.
    """
    location, _, name = model.rpartition(":")
    lines = [
        "def users_class():",
        '    """The class of the study\'s network."""',
        f"    module = importlib.import_module({literal(location)})",
        f"    return getattr(module, {literal(name)})",
    ]
    if location.endswith(".py"):
        find = "importlib.util.spec_from_file_location"
        lines[2:3] = [
            f"    spec = {find}('own_network', {literal(location)})",
            "    module = importlib.util.module_from_spec(spec)",
            "    spec.loader.exec_module(module)",
        ]
    return "\n".join(lines)


def literal(value: Any) -> str:
    """Plain data as Python writes it, whatever texts are in it.

    Raises:
        UsageError: it is no plain data, or not finite.
    """
    text = repr(value)
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise UsageError(
            f"{excerpt(text)} cannot be written into a script; use --format json"
        ) from None
    return text


def headline(config: BestConfig) -> list[str]:
    """What every written form says first, one line each, in the words of a comment."""
    (clock, seconds), (error, mql) = config.values.items()
    p = config.provenance
    until = "to convergence" if p["converged"] else "until a limit cut it, not converged"
    if clock != OBJECTIVES[0]:
        until = f"of {axis_title(clock).removesuffix(' (s)')}"
    if p["contaminated"]:
        until += " (timing disturbed by something else on the device)"
    seeds = _few(p["seeds"])
    if p.get("mql_split") == MqlSplit.ORIGINS:
        error = f"{axis_title(error)} (but for the last block)"
    figure = f"{axis_title(error)} {mql:.4f}{_of_test(config)}"
    where = f"{figure} on {p['device']}, {_of_runs(config)}seed {seeds}."
    lines = [
        *([f"{config.loses}."] if config.loses else []),
        (
            f"{config.variant} on {config.task}: study {config.study}{_place(config)}, trial "
            f"{config.trial}, pick {config.pick}."
        ),
        *_why(config),
        f"{'In the search: ' * _gains(config)}{seconds:.3f} s {until}, {where}",
        f"data {_short(p['data_hash'])}, study definition {_short(p['definition_hash'])}, "
        f"git {_short(p['git_revision'] or 'unknown')}, "
        + ", ".join(
            f"{name} {version}" for name, version in (p["versions"] or {}).items() if version
        ),
        _verified(config) if config.confirmed is None else f"{config.confirmed['sentence']}.",
        *_baselines(config),
        *_by_column(config),
    ]
    # A comment ends with its line, whatever names the database holds.
    return [one_line(line) for line in lines]


def _why(config: BestConfig) -> list[str]:
    """What it gains, where it is confirmed; else why it is the one."""
    if config.confirmed is not None and _gains(config):
        return [f"{config.confirmed['gain']}."]
    return [config.why] if config.why else []


def _gains(config: BestConfig) -> bool:
    """Whether a confirmation has figures of it, which then come first."""
    return config.confirmed is not None and config.confirmed.get("gain") is not None


def _baselines(config: BestConfig) -> list[str]:
    """What forecasts without a network come to, where it is known, by each split's MQL."""
    told, own = [], config.definition.objectives[1]
    for error, baselines in ((own, config.baselines), ("test_mql", config.test_baselines)):
        each = [f"{in_words(name)} {mql:.4f}" for name, mql in baselines.items()]
        if each:
            told.append(f"{axis_title(error)}: {', '.join(each)}")
    return [f"Without a network, on the same windows, {'; '.join(told)}."] if told else []


def _by_column(config: BestConfig) -> list[str]:
    """The test MQL of each target column, where there are several: in the units of the data."""
    columns = config.provenance.get("test_mql_of", {})
    if not columns:
        return []
    each = [f"{name} {mql:.4g}" for name, mql in columns.items() if mql is not None]
    return [f"Test MQL by target column, in its units: {', '.join(each)}."]


def _of_test(config: BestConfig) -> str:
    """The test MQL beside a validation MQL: figures of fresh seeds are of the test split."""
    mql = config.provenance.get("test_mql")
    return "" if mql is None else f" (test MQL {mql:.4f})"


def _of_runs(config: BestConfig) -> str:
    """That the figures are medians, and of which trials; nothing of one trial."""
    p = config.provenance
    if "runs" not in p:
        return ""
    return f"medians of {p['runs']} runs (trials {_few(p['trials'])}), "


MOST_NAMED = 6


def _few(numbers: Sequence[int]) -> str:
    """The first ones; all of them are with the provenance."""
    more = len(numbers) - MOST_NAMED
    first = ", ".join(map(str, numbers[:MOST_NAMED]))
    return first if more <= 0 else f"{first} and {more} more"


def one_line(text: str) -> str:
    """Text as part of a comment, which ends with its line."""
    return "".join(c if c.isprintable() else " " for c in text)


def _place(config: BestConfig) -> str:
    """Of which searches it is one; nothing where it is the only one."""
    p = config.provenance
    if p.get("searches", 1) == 1:
        return ""
    return f" (one of {p['searches']} searches, {p['group']})"


def _short(digest: str) -> str:
    """Enough of a hash to recognise it, with the mark of an edited checkout."""
    name, plus, changes = digest.partition("+")
    return name[:12] + plus + changes


def _verified(config: BestConfig) -> str:
    verified = config.verified
    if verified is None and config.unverified:
        return f"NOT VERIFIED: {config.unverified}."
    if verified is None and config.expected is not None:
        return (
            "NOT VERIFIED: it did not run on fresh seeds; what is expected follows from all runs "
            "of the study."
        )
    if verified is None:
        if "runs" in config.provenance:
            return "NOT VERIFIED: these runs are of the search, which chose by them."
        return "NOT VERIFIED: these are the figures of one trial; a seed alone moves the MQL."
    time, mql = verified["wall_clock_s"], verified["test_mql"]
    split = axis_title(verified.get("mql_is", "test_mql"))
    return (
        f"Verified on {verified['seeds']} fresh seeds: "
        f"{time['median']:.3f} s ({time['low']:.3f} to {time['high']:.3f}), "
        f"{split} {mql['median']:.4f} ({mql['low']:.4f} to {mql['high']:.4f})."
    )
