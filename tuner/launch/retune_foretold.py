"""What a whole retune is foretold to take, said before its searches go on."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.estimate.foretold import SearchForetold
from tuner.estimate.foretold_words import retune_line
from tuner.estimate.stages_ahead import Over, stages_of
from tuner.spec.retune import Registered
from tuner.study.open import OpenStudy
from tuner.verdict.ablation_plan import SEEDS as ABLATION_SEEDS


def whole_retune_line(
    found: Sequence[SearchForetold],
    searches: Sequence[OpenStudy],
    registered: Registered,
    *,
    devices: int,
    ablate: bool,
) -> str | None:
    """Of all its `searches`, those that are over included; `found` is of the others. With its
    ablation where somebody asks for it. None where it is not known of all of them.
    """
    over = searches_over(searches)
    if len(found) + over.searches < len(searches):
        return None
    stages = stages_of(
        found,
        sampler=searches[0].policy().sampler,
        seeds=registered.confirm_seeds,
        ablated_seeds=ABLATION_SEEDS if ablate else None,
        budget_s=registered.budget_s,
        over=over,
    )
    return retune_line(stages, devices=devices)


def searches_over(searches: Sequence[OpenStudy]) -> Over:
    """Those that no trial is to come of."""
    spent = [each.ledger.spent_s() for each in searches if not each.ledger.counts().left]
    return Over(searches=len(spent), spent_s=sum(spent))
