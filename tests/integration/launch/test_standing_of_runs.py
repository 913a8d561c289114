"""Where a retune's confirmation stands: by its own runs, not by those of a reference that was
confirmed before."""

from __future__ import annotations

from tests.support.drawn_verifications import verify_all
from tests.support.planned_confirmations import SEEDS, known, opened
from tuner.launch.retune_request import Stage, of_runs
from tuner.storage.database import Database
from tuner.study.group import grouped
from tuner.verdict.confirmation_plan import plan_confirmation


def test_runs_of_a_reference_that_was_confirmed_before_are_not_counted(
    unverified: Database,
) -> None:
    originals = opened(unverified, "demo-original", "demo-original-2")
    variants = opened(unverified, "demo-rmsnorm", "demo-rmsnorm-2")
    before = plan_confirmation(originals, seeds=SEEDS, margin=0.01).new_runs
    verify_all(originals, known())
    (reference,) = grouped(originals)
    new = plan_confirmation(variants, reference=reference, seeds=SEEDS, margin=0.01).new_runs
    assert before > 0
    assert new > 0

    def standing(*own: str) -> tuple[int, int | None]:
        found = of_runs(
            Stage.CONFIRMATION, [*originals, *variants], devices=2, budget_s=None, own=own
        )
        return found.done, found.planned

    # The reference's default runs again beside the variant: that is of the variant's confirmation.
    assert standing("demo-rmsnorm", "demo-rmsnorm-2") == (0, new)
    assert standing("demo-original", "demo-original-2") == (before, before)
    assert standing(*(each.name for each in (*originals, *variants))) == (before, before + new)
