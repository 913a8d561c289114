"""What searches came to: medians and quartiles of hypervolumes, as a table and as a figure."""

from __future__ import annotations

from pathlib import Path

import numpy as np

LOOKS = (50, 60, 100, 200)


def curves(rows: list[dict[str, str]], measure: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """By arm: the trials looked at, and the measure of every seed there, (seeds, looks)."""
    arms: dict[str, dict[int, dict[int, float]]] = {}
    for row in rows:
        arms.setdefault(row["arm"], {}).setdefault(int(row["seed"]), {})[int(row["trial"])] = float(
            row[measure]
        )
    found = {}
    for arm, seeds in arms.items():
        looks = sorted(set.intersection(*(set(of_seed) for of_seed in seeds.values())))
        found[arm] = (
            np.array(looks),
            np.array([[of_seed[look] for look in looks] for of_seed in seeds.values()]),
        )
    return found


def report(rows: list[dict[str, str]], what: str) -> str:
    """Medians and interquartile ranges, and how soon random search's last hypervolume is reached."""
    longest = max(int(row["trial"]) for row in rows)
    looks = [look for look in LOOKS if look <= longest] or [longest]
    parts = [f"Sampler comparison on {what}.", ""]
    costs = curves(rows, "seconds")
    for measure, meaning in (
        ("hypervolume", "noise-free values"),
        ("seen", "values as seen, luck included"),
    ):
        found = curves(rows, measure)
        last = found["random"][1][:, -1] if "random" in found else None
        goal = float(np.median(last)) if last is not None else float("inf")
        at = found["random"][0][-1] if last is not None else "-"
        parts += [
            f"Hypervolume of {meaning}: median [quartiles] over seeds; trials until the median is that of random at {at}.",
            "",
            "| arm | seeds | "
            + " | ".join(f"{look} trials" for look in looks)
            + " | trials to random's | s a suggestion |",
            "|---|---|" + "---|" * (len(looks) + 2),
        ]
        for arm in sorted(found, key=lambda arm: -float(np.median(found[arm][1][:, -1]))):
            trials, values = found[arm]
            cells = []
            for look in looks:
                column = values[:, list(trials).index(look)] if look in trials else None
                low, middle, high = (
                    np.quantile(column, (0.25, 0.5, 0.75)) if column is not None else (0, 0, 0)
                )
                cells.append(f"{middle:.4f} [{low:.4f}, {high:.4f}]" if column is not None else "-")
            reached = trials[np.median(values, axis=0) >= goal]
            cells.append(str(reached[0]) if len(reached) else "not reached")
            cells.append(f"{float(np.median(costs[arm][1][:, -1])) / trials[-1]:.3f}")
            parts.append(f"| {arm} | {len(values)} | " + " | ".join(cells) + " |")
        parts.append("")
    return "\n".join(parts)


def draw(rows: list[dict[str, str]], path: Path) -> None:
    from tuner.report.figures.save import save
    from tuner.report.figures.style import finish, new_figure, style_of

    figure = new_figure()
    for index, (arm, (trials, values)) in enumerate(sorted(curves(rows, "hypervolume").items())):
        style = style_of(index)
        low, middle, high = np.quantile(values, (0.25, 0.5, 0.75), axis=0)
        band = [*high, *low[::-1]]
        figure.add_scatter(
            x=[*trials, *trials[::-1]],
            y=band,
            fill="toself",
            fillcolor=style.colour,
            opacity=0.12,
            line={"width": 0},
            showlegend=False,
            hoverinfo="skip",
        )
        figure.add_scatter(
            x=trials,
            y=middle,
            name=arm,
            line={"color": style.colour, "dash": style.dash, "width": 2},
        )
    finish(
        figure,
        title="Median and quartiles over seeds",
        x="trials",
        y="hypervolume (s x MQL), noise-free",
    )
    save(figure, path)
