"""Whose word lets code run: a study that was imported may name a class, and nobody here has read
that class's file.

The mark stays with the study in its database until somebody says to trust it; workers that come
later need not ask.
"""

from __future__ import annotations

from optuna.study import Study

from tuner.errors import UsageError
from tuner.spec.definition import StudyDefinition
from tuner.study.open import OpenStudy

_MARK = "tuner_untrusted"
"""The file that a study came from, while nobody trusts it."""


def runs_own_code(definition: StudyDefinition) -> bool:
    """Whether to train this study runs code that is not tuner's."""
    return definition.program is not None or bool(definition.own_code)


def mark_untrusted(study: Study, definition: StudyDefinition, origin: str) -> None:
    """Note that `study` came from the file `origin`, where it names code to run."""
    if origin and runs_own_code(definition):
        study.set_user_attr(_MARK, origin)


def untrusted_origin(opened: OpenStudy) -> str:
    """The file whose word alone names the study's code; empty where somebody trusts it, or it is of
    our own making.
    """
    return str(opened.optuna.user_attrs.get(_MARK) or "")


def require_trust(opened: OpenStudy, *, trust: bool) -> str | None:
    """To be called before a study's network is built; what to say first of the code that then runs,
    if there is any.

    With `trust` the study is trusted from now on.

    Raises:
        UsageError: the study was imported, names a class, and nobody said to trust it.
    """
    if not runs_own_code(opened.definition):
        return None
    program = opened.definition.program
    named = " and ".join(opened.definition.own_code)
    runs = f"the code of {named}" if program is None else program.in_words()
    origin = untrusted_origin(opened)
    if origin and not trust:
        raise UsageError(
            f"study {opened.name!r} came from {origin}, and to train it runs {runs}; "
            "read that file, then "
            "say --trust"
        )
    if origin:
        opened.optuna.set_user_attr(_MARK, "")
    return f"study {opened.name} runs {runs}"
