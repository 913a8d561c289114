"""What is looked at before a retune works: what its verdict would fail by at the end, as times of
other devices and figures of other data, and whether there is anything left to run.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping

from tuner.errors import UsageError
from tuner.launch.request import DeviceChoice
from tuner.launch.retune_agreement import (
    Agreement,
    agreement,
    confirmation_begun,
    members_there,
)
from tuner.launch.retune_request import RetuneRequest
from tuner.launch.where import choose_where
from tuner.settings import changes
from tuner.spec.definition import StudyDefinition
from tuner.spec.retune import Registered
from tuner.storage.database import initialisation_lock
from tuner.storage.url import DatabaseUrl
from tuner.study.open import OpenStudy
from tuner.study.registered_retune import register_retune, registered_in
from tuner.study.snapshot import snapshot
from tuner.verdict.ablation_plan import taken_apart
from tuner.verdict.confirmation import confirmation_of, known_runs_of

REMEDY = "or retune both in a database of their own (--storage)"


class RegistrationChangedError(Exception):
    """Another call has changed what is registered since this one read it."""


def refuse_changed(agreed: Agreement, address: DatabaseUrl) -> None:
    """Raises RegistrationChangedError where what is registered is not what was `agreed` on."""
    group = agreed.variant.group
    with members_there(address, [group]) as members:
        for study in members[group][:1]:
            _refuse_changed(agreed, study)


def _refuse_changed(agreed: Agreement, study: OpenStudy) -> None:
    if registered_in(study.database, study.name) not in (agreed.before, agreed.registered):
        raise RegistrationChangedError


def agreed_again(
    request: RetuneRequest, was: Agreement, address: DatabaseUrl
) -> tuple[RetuneRequest, Agreement]:
    """How a call goes on after RegistrationChangedError. What it said was registered before the
    other's: then it says no more. Or it was not: then it says it now.
    """
    if was.registered != was.before:
        return request, agreement(request, address)
    request = _unsaid(request)
    now = agreement(request, address)
    changed = [f"from {each}" for each in changes(was.registered, now.registered)]
    told = (
        f"another call has changed the retune of {now.variant.group} {', '.join(changed)} "
        "meanwhile: this one goes on with that"
    )
    return request, dataclasses.replace(now, notes=(told,) if changed else ())


def _unsaid(request: RetuneRequest) -> RetuneRequest:
    """The same without what is registered: for a call that goes on with what is there."""
    return dataclasses.replace(
        request,
        against=None,
        searches=None,
        trials=None,
        budget_s=None,
        margin=None,
        confirm_seeds=None,
    )


def register(agreed: Agreement, study: OpenStudy, retune: Registered) -> None:
    """Compare and set: under the lock under which confirmations are planned, too.

    Raises:
        RegistrationChangedError: another call was first, or has planned the confirmation.
    """
    with initialisation_lock(study.database.address):
        _refuse_changed(agreed, study)
        begun = not agreed.variant.begun and confirmation_begun(study)
        if begun and not retune.finished:
            raise RegistrationChangedError
        register_retune(study, retune)


def workers_for(agreed: Agreement, choice: DeviceChoice, address: DatabaseUrl) -> int:
    """How many workers there will be.

    Raises:
        UsageError: devices that are not there, or of another model than a search of either variant,
            as far as that is known: an engine's are not before a worker is there.
        TunerError: an engine that cannot be reached.
    """
    where = choose_where(choice, environment=os.environ)
    with members_there(address, agreed.groups) as members:
        bound = {
            group: {each.device_model() for each in mine} - {None, where.model}
            for group, mine in members.items()
        }
    for group, models in bound.items():
        if where.model is not None and models:
            remedy = f", {REMEDY}" if len(agreed.groups) > 1 else ""
            raise UsageError(
                f"{group!r} holds times measured on {min(map(str, models))!r}, the device here is "
                f"{where.model!r}: times of different devices do not compare; run on the same kind "
                f"of device{remedy}"
            )
    return where.workers


def refuse_other_data(
    agreed: Agreement, address: DatabaseUrl, asked: Mapping[str, StudyDefinition]
) -> None:
    """Raises UsageError where the searches that are `asked` for would be on other data than the
    reference, which is there.
    """
    others = [group for group in agreed.groups if group not in asked]
    wanted = {definition.data_hash for definition in asked.values()}
    with members_there(address, others) as members:
        for group, mine in members.items():
            if {each.definition.data_hash for each in mine} - wanted:
                raise UsageError(
                    f"{min(asked)!r} would be on other data than {group!r}, and their figures "
                    f"would not compare; give the data that {group!r} is on (--data-dir), {REMEDY}"
                )


def searches_are_full(agreed: Agreement, address: DatabaseUrl) -> bool:
    """Whether all searches are there and have what was registered before this call."""
    if agreed.registered != agreed.before:
        return False
    with members_there(address, [each.group for each in agreed.to_search]) as members:
        for mine in members.values():
            counts = [study.ledger.counts() for study in mine]
            unfinished = any(count.left or count.lacks_hours for count in counts)
            if unfinished or len(mine) < agreed.registered.searches:
                return False
    return True


def all_has_run(agreed: Agreement, address: DatabaseUrl) -> bool:
    """Whether each search of this retune is confirmed, and nothing has run since by which one would
    choose anew: then its verdict needs no device.
    """
    if agreed.registered != agreed.before or not agreed.variant.begun:
        return False
    with members_there(address, agreed.own_groups) as members:
        enough = all(len(mine) >= agreed.registered.searches for mine in members.values())
        return enough and all(_stands(each) for mine in members.values() for each in mine)


def all_is_taken_apart(agreed: Agreement, address: DatabaseUrl) -> bool:
    """Whether the ablation of each search of this retune has run, or has nothing to take apart."""
    with members_there(address, agreed.own_groups) as members:
        return all(taken_apart(each) for mine in members.values() for each in mine)


def _stands(search: OpenStudy) -> bool:
    """Its confirmation has all its runs, and nothing has run since."""
    study = snapshot(search).with_runs_read()
    there = confirmation_of(study)
    return there is not None and there.complete and there.frozen.known == known_runs_of(study)
