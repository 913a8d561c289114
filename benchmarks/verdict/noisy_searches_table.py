"""The report of benchmarks/verdict/noisy_searches.py."""

from __future__ import annotations

from typing import Any

HEADER = (
    "| method | time after confirmation, standard error | recommended | truly within | confirmed "
    "| time at the level, sd of log | truly within | trainings, configurations |"
)


def lines(document: dict[str, Any]) -> list[str]:
    text = [
        f"{document['budget_s']:.0f} GPU seconds of search and verification, the confirmation apart.",
        f"{document['searches']} searches of each truth.",
        "",
        HEADER,
        "|---|---|---|---|---|---|---|---|",
    ]
    for s in document["methods"]:
        text.append(
            f"| {s['method']} | {s['after_confirmation']:.3f}, {s['error']:.3f} "
            f"| {s['recommended']:.0%} | {s['truly_within']:.0%} | {s['confirmed']:.0%} "
            f"| {s['at_level']:.2f}, {s['at_level_sd']:.2f} | {s['at_level_within']:.0%} "
            f"| {s['trainings']:.0f}, {s['configurations']:.0f} |"
        )
    text += ["", "Time after confirmation by truth:", ""]
    for s in document["methods"]:
        each = "; ".join(f"{name} {value:.2f}" for name, value in s["by_truth"].items())
        text.append(f"- {s['method']}: {each}.")
    return text
