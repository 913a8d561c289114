"""What a retune has come to, once everything has run: the comparison, its cost, and sentences."""

from __future__ import annotations

import dataclasses

from tuner.launch.retune_agreement import Agreement
from tuner.launch.retune_request import RetuneOutcome
from tuner.study.group import PREFIX
from tuner.verdict.compare.findings import compare
from tuner.verdict.compare.registered import groups_of
from tuner.verdict.compare.studies import names_of_groups, read_studies
from tuner.verdict.epochs_of import epochs_of
from tuner.verdict.retune_cost import costs, spent_on
from tuner.verdict.retuned_words import bought_sentence, cost_sentence


def with_verdict(
    found: RetuneOutcome, agreed: Agreement, *, task: str, storage: str
) -> RetuneOutcome:
    """The same outcome with what `tuner compare` says of its groups, and what it cost."""
    named = [PREFIX + each for each in agreed.groups]
    report = compare(read_studies(named, task=task, storage=storage))
    groups, names = groups_of(report.studies), names_of_groups(report.studies)
    paid = costs(groups)
    lines = [cost_sentence(each, names[each.group]) for each in paid]
    budget_s = agreed.registered.budget_s
    if budget_s is not None:
        own = [each for name in agreed.own_groups for each in groups[name]]
        lines.insert(0, bought_sentence(spent_on(own), budget_s, len(own)))
    made_of = tuple(filter(None, (epochs_of(each.confirmation) for each in paid)))
    lines += [each.sentence for each in made_of]
    return dataclasses.replace(
        found, made_of=made_of, verdict=report, costs=paid, lines=tuple(lines)
    )
