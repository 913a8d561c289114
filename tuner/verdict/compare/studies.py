"""Which studies are compared: what the names on the command line mean, and what each study is
called beside the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from tuner.errors import UsageError
from tuner.study.snapshot import (
    STUDY,
    StudySnapshot,
    names_meant,
    opened_if_needed,
    says_which,
    searches_of,
    snapshot_named,
)
from tuner.verdict.verification_plan import study_names

DEFAULT = "default"
"""The role of the default configuration among a study's picks."""


def labels(studies: Sequence[StudySnapshot]) -> list[str]:
    """What each is called beside the others: its variant; its own name where variants repeat."""
    variants = [study.variant for study in studies]
    return [
        study.variant if variants.count(study.variant) == 1 else study.name for study in studies
    ]


def names_of_groups(studies: Sequence[StudySnapshot]) -> dict[str, str]:
    """What each group is called: its variant; its own name where variants repeat."""
    variants = {study.membership.group: study.variant for study in studies}
    named = list(variants.values())
    return {
        group: variant if named.count(variant) == 1 else group
        for group, variant in variants.items()
    }


def read_studies(named: Sequence[str], *, task: str, storage: str) -> list[StudySnapshot]:
    """The studies that `named` means: variants on `task` (several with commas), studies as
    `study:NAME`, or archives.

    The database is opened only where a name needs it, and closed again.

    Raises:
        UsageError: a name that means nothing, an archive that cannot be read, or a study named
            twice.
        StorageError: the database cannot be read.
    """
    found: list[StudySnapshot] = []
    with opened_if_needed(storage) as database:
        for name in named:
            # First the name, then the database: a misspelt variant is not a database that is
            # missing.
            if says_which(name):
                names = names_meant(name, database)
            else:
                groups = study_names(name, task=task)
                names = [
                    STUDY + study for group in groups for study in searches_of(database(), group)
                ]
            found += [snapshot_named(each, database).with_runs_read() for each in names]
    known = [study.name for study in found]
    if twice := {name for name in known if known.count(name) > 1}:
        raise UsageError(f"study {min(twice)!r} is named twice; name each once")
    return found
