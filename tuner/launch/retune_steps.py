"""The stages of a retune as requests to the ordinary operations."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tuner.launch.request import LaunchRequest
from tuner.launch.retune_agreement import Agreement, Searched, share_of_search
from tuner.launch.retune_request import RetuneRequest
from tuner.launch.verification import VerificationRequest
from tuner.spec.margin import MARGIN
from tuner.spec.retune import Registered
from tuner.study.group import PREFIX

MOST_TRIALS = 2000
"""Of a search that its budget in time ends."""


def search_request(
    request: RetuneRequest, agreed: Agreement, timeout_s: float | None
) -> LaunchRequest:
    """All searches, of the reference as well where that is not confirmed yet."""
    now, policy = agreed.registered, agreed.begins.said_with(request.policy)
    if request.margin is not None or now.margin != MARGIN:
        policy = policy.but(margin=now.margin)
    if agreed.share_s is not None:
        policy = policy.but(search_s=agreed.share_s)
    return LaunchRequest(
        variants=[each.word for each in agreed.to_search],
        task=request.task,
        data_dir=request.data_dir,
        storage=request.storage,
        devices=request.devices,
        trials=now.trials or MOST_TRIALS,
        searches=now.searches,
        draw=agreed.begins.draw,
        timeout_s=timeout_s,
        hang_limit_s=request.hang_limit_s,
        settings=request.settings,
        policy=policy,
        warm_start=request.warm_start,
        estimate=request.estimate,
        trust=request.trust,
    )


def reevaluation_request(
    request: RetuneRequest, agreed: Agreement, timeout_s: float | None, *, budget_s: float | None
) -> VerificationRequest:
    """What may be recommended again, in rounds; `budget_s` is for all of them."""
    asked = _of_runs(request, agreed.to_search, timeout_s)
    return dataclasses.replace(asked, budget_s=budget_s, top=request.top)


def confirmation_request(
    request: RetuneRequest, agreed: Agreement, timeout_s: float | None
) -> VerificationRequest:
    """What each search recommends, on seeds that nothing has seen.

    Where the reference has a confirmation, that one stays, and is gone on with.
    """
    reference = agreed.reference
    if reference is not None and not reference.begun:
        asked = _of_runs(request, (reference, agreed.variant), timeout_s)
    else:
        asked = _of_runs(request, (agreed.variant,), timeout_s)
        if reference is not None:
            asked = dataclasses.replace(asked, against=PREFIX + reference.group)
    now = agreed.registered
    return dataclasses.replace(asked, confirm=True, seeds=now.confirm_seeds, margin=now.margin)


def ablation_request(
    request: RetuneRequest, agreed: Agreement, timeout_s: float | None
) -> VerificationRequest:
    """What each of its searches recommends, with one value at a time set back to the default."""
    return dataclasses.replace(_of_runs(request, agreed.own, timeout_s), ablate=True)


def _of_runs(
    request: RetuneRequest, searched: Sequence[Searched], timeout_s: float | None
) -> VerificationRequest:
    return VerificationRequest(
        variants=[each.word for each in searched],
        studies=",".join(PREFIX + each.group for each in searched),
        task=request.task,
        devices=request.devices,
        data_dir=request.data_dir,
        storage=request.storage,
        timeout_s=timeout_s,
        trust=request.trust,
    )


def ends_of_search(
    *, trials: int | None, budget_s: float | None, searches: int, repeats: bool
) -> tuple[int, float | None]:
    """After how many trials, and after how many seconds on devices, each of so many searches ends
    of a retune that nobody has begun: by what was said of it, which may be nothing.
    """
    if budget_s is not None:
        within_s = share_of_search(budget_s, searches=searches, repeats=repeats)
        return trials or MOST_TRIALS, within_s
    return trials or Registered.usual(repeats=repeats).trials or MOST_TRIALS, None
