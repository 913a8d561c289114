"""An estimate as a person reads it: the sizes, then what all of it takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tuner.display.terminal import make_console
from tuner.display.text import shown
from tuner.estimate.cost_model import Size
from tuner.estimate.foretold import SearchForetold, money
from tuner.estimate.whole_estimate import (
    Estimate,
    SizeRow,
    VariantEstimate,
    bytes_in_words,
    hours_in_words,
    range_in_words,
    seconds_in_words,
    trials_in_words,
)
from tuner.report.figures.style import spread

if TYPE_CHECKING:
    from rich.table import Table

MOST_ROWS = 24
"""Of a table of sizes: the default, and the others from the cheapest to the dearest."""


def print_estimate(found: Estimate) -> None:
    console = make_console()
    for each in found.variants:
        console.print(size_table(each))
    for line in estimate_lines(found):
        console.print(shown(line), markup=False, soft_wrap=True)


def size_table(found: VariantEstimate) -> Table:
    from rich.table import Table

    rows = shown_rows(found)
    more = len(found.sizes) - len(rows)
    title = f"{found.variant}: {len(found.sizes)} sizes" + (f", {more} not shown" if more else "")
    table = Table("size", "an epoch", "set-up", "peak memory", "", title=shown(title))
    for row in rows:
        epoch = range_in_words(row.epoch) if row.epoch else "does not fit" if row.failure else "?"
        table.add_row(
            shown(size_in_words(row.size)),
            epoch,
            seconds_in_words(row.setup.middle) if row.setup else "",
            bytes_in_words(row.peak.middle) if row.peak else "",
            "measured" if row.measured else "",
        )
    return table


def shown_rows(found: VariantEstimate) -> list[SizeRow]:
    """The default's row, and others evenly from the cheapest to the dearest."""
    default, *others = found.sizes
    others.sort(key=lambda row: row.epoch.middle if row.epoch else float("inf"))
    return [default, *(others[place] for place in spread(len(others), MOST_ROWS - 1))]


def size_in_words(size: Size) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(size.items()))


def estimate_lines(found: Estimate) -> Iterator[str]:
    """What follows from the sizes, on so many devices of this kind."""
    for each in found.variants:
        search = each.search
        yield (
            f"{each.variant}: an epoch of the default takes {range_in_words(search.epoch)}, "
            f"the usual trial {range_in_words(search.trial)}, a process is ready after "
            f"{seconds_in_words(each.costs.start_s)}"
        )
        if each.costs.built_s is not None:
            yield (
                f"{each.variant}: the kernels of a size are compiled once, "
                f"{seconds_in_words(each.costs.built_s)} each"
            )
        for name, batch in each.largest.items():
            yield f"{each.variant}: {largest_in_words(name, batch['fits'], batch['too_large'])}"
        alike = not any(one.ended for one in each.searches)
        for number, one in enumerate(each.searches[: 1 if alike else None], 1):
            which = "a search" if alike or len(each.searches) == 1 else f"search {number}"
            yield f"{each.variant}: {_searched(which, one)}"
    if found.stages is not None:
        stages = found.stages
        yield (
            f"the retune: {found.searches} {'search' if found.searches == 1 else 'searches'} of "
            f"each variant {range_in_words(stages.search)}, re-evaluation "
            f"{range_in_words(stages.reevaluation)}, confirmation "
            f"{range_in_words(stages.confirmation)}"
        )
    yield (
        f"in all {hours_in_words(found.device_s)} device hours; on {found.devices} x "
        f"{found.device_model} {hours_in_words(found.elapsed_s)} hours"
    )
    if found.price_per_hour is not None:
        price = money(found.device_s, found.price_per_hour)
        yield (
            f"at {found.price_per_hour:g} a device hour: {price.middle:.4g} ({price.low:.4g} to "
            f"{price.high:.4g})"
        )


def _searched(which: str, search: SearchForetold) -> str:
    by = f"(foretold from {search.searches} recorded searches)"
    done = f", {search.ended} of which have ended," if search.ended else ""
    takes = f"{range_in_words(search.search)} of device time"
    if search.bought is not None:
        bought = trials_in_words(search.bought, search.ended)
        return f"{which} that has {takes} makes {bought}{done} {by}"
    return f"{which} of {search.trials} trials{done} takes {takes} {by}"


def largest_in_words(name: str, fits: int, too_large: int | None) -> str:
    if not fits:
        return f"no batch of {name} fits"
    if too_large is None:
        return f"a batch of all {fits} training windows of {name} fits"
    return f"the largest batch of {name} that fits is {fits} ({too_large} does not)"
