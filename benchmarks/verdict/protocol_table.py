"""The result of the simulated protocol as Markdown."""

from __future__ import annotations

import math
from typing import Any


def lines(document: dict[str, Any]) -> list[str]:
    """The tables of protocol.md."""
    return [
        *_searches(document),
        *_within_a_variant(document),
        *_between_variants(document),
        *_tuning(document["tuning"]),
    ]


def _searches(document: dict[str, Any]) -> list[str]:
    truths = ", ".join(f"{name} ({count})" for name, count in document["searches"].items())
    how = f"{document['verification']} (rounds x configurations x seeds, the default with them)"
    searched = f"Searches of 200 trials by `{document['sampler']}`, by truth: {truths}."
    return [searched, "", f"Verification: {how}.", ""]


def _within_a_variant(document: dict[str, Any]) -> list[str]:
    new, sure, old = document["recommended"], document["confirmed"], document["before"]
    return [
        "| within a variant | by all runs | before: knee of the front, ten seeds |",
        "|---|---|---|",
        f"| recommended is truly within the margin | {share(new['within'])} | {share(old['within'])} |",
        f"| by truth | {_by_truth(new['within'])} | {_by_truth(old['within'])} |",
        f"| its time over the default's (the default where nothing is recommended) | {new['times']:.2f} | {old['times']:.2f} |",
        f"| its MQL over the default's | {new['worse_by']:+.2%} | {old['worse_by']:+.2%} |",
        f"| something is recommended | {new['something']:.0%} | 100% |",
        f"| confirmed as no worse by 1 % on 30 fresh seeds | {share(sure['claimed'])} | |",
        f"| of these wrong | {sure['claimed_and_wrong']} | |",
        f"| time over the default's after that (the default where not confirmed) | {sure['times_after']:.2f} | |",
        f'| planted exactly at the margin: wrongly "as good" | {share(sure["wrong_at_the_margin"])} | "surely close": {share(old["surely_close_at_the_margin"])}; "no difference": {share(old["no_difference_at_the_margin"])} |',
        "",
    ]


def _between_variants(document: dict[str, Any]) -> list[str]:
    found, old, ratio = document["between"], document["before"], document["ratio"]
    rows = [
        f"| between variants, {found['level']:.0%} | nothing planted: claimed | five variants, any claimed | planted {ratio:g} x: found | another retune's ratio in the interval | the same, {ratio:g} x planted | median width (high / low) | GPU minutes a variant |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in found["sets"]:
        rows.append(
            f"| S = {row['searches']} | {share(row['nothing'])} | {share(row['family'])} | {share(row['planted'])}; truths {_range(row['planted'])} "
            f"| {share(row['agrees'])}; truths {_range(row['agrees'])} | {share(row['agrees_planted'])} | {_width(row['width'])} | {row['gpu_minutes']:.0f} |"
        )
    rows += [
        f"| before: one knee each, ten paired seeds | {share(old['nothing'])} | | {share(old['planted'])}; truths {_range(old['planted'])} | | | | {old['gpu_minutes']:.0f} |",
        "",
        f"Answers at the level that are truly within it: {share(found['within'])}; {found['defaults']} are the default.",
        f"Standard deviation of their log time between searches: {found['spread']:.2f} ({_spreads(found)}).",
        "",
    ]
    return rows


def _tuning(rows: list[dict[str, Any]]) -> list[str]:
    if not rows:
        return []
    table = [
        "Settings, on the truths for tuning:",
        "",
        "| verification | its seconds | chance | recommended, truly within | time over the default's | at the level: truly within | sd of log time |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        at = row["at_level"]
        table.append(
            f"| {row['verification']} | {row['verification_s']:.0f} | {row['chance']:g} | {share(row['within'])} | {row['times']:.2f} "
            f"| {at['within']['share']:.0%} | {at['spread']:.2f} |"
        )
    return [*table, ""]


def share(found: dict[str, Any]) -> str:
    """`4.0 % (2.5 to 6.0, of 600)`; a dash where there is none."""
    if not found["of"]:
        return "-"
    return f"{100 * found['share']:.1f} % ({100 * found['low']:.1f} to {100 * found['high']:.1f}, of {found['of']})"


def _by_truth(found: dict[str, Any]) -> str:
    return "; ".join(f"{name} {value:.0%}" for name, value in found["by_truth"].items())


def _range(found: dict[str, Any]) -> str:
    values = list(found["by_truth"].values())
    return f"{min(values):.0%} to {max(values):.0%}" if values else "-"


def _spreads(found: dict[str, Any]) -> str:
    return "; ".join(f"{name} {value:.2f}" for name, value in found["spread_by_truth"].items())


def _width(width: float) -> str:
    return "-" if math.isnan(width) else "infinite" if math.isinf(width) else f"{width:.2f}"
