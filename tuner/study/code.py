"""The files with a study's own class and with its loss's term, on hosts that may not have them:
they travel through the database by their hashes.

A host runs what lies at the study's path, if its hash is the study's; else what this user has run
here before, which is kept in a folder of the user's alone; else what the database holds, once
somebody has said to trust that hash. One file of each is carried, not what it imports from beside
it.

Of a program nothing is carried. Its command line is the database's word, so it needs the same
trust, unless this user launched it here.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Collection
from importlib.util import find_spec
from typing import Any

from tuner.config import names_file
from tuner.display.text import command_line
from tuner.errors import DataError, UsageError
from tuner.models.llm_folder import with_hash
from tuner.models.names import TIME_LLM
from tuner.models.own_modules import files_beside
from tuner.spec.definition import StudyDefinition
from tuner.study.create import BESIDE, refuse_changed_beside
from tuner.study.open import OpenStudy
from tuner.study.own_file import OwnFile, OwnProgram, is_kept, keep, keep_if_possible, source_of


def with_code(
    opened: OpenStudy, *, trust: bool = False, trusted: Collection[str] = ()
) -> OpenStudy:
    """The study, whose class and term can be loaded on this host: to be called before its network
    is built.

    With `trust`, or where its hash is among the `trusted` ones, code runs here that only the
    database has, or a program whose command line only the database has. It is kept for this user,
    and needs nobody's word next time.

    Raises:
        UsageError: the file here is another, or one that it imports from beside it or reads;
            nobody has it, or nobody said to trust it.
        PrivateFolderError: others could have changed what this user trusts.
    """
    if (program := OwnProgram.of(opened.definition)) is not None:
        _refuse_program(opened, program, trust=trust or program.sha256 in trusted)
        return opened
    definition, loss = opened.definition, opened.definition.training.loss
    if definition.files is not None and (problem := definition.files.problem()):
        raise UsageError(
            f"study {opened.name!r} cannot go on here: {problem}, or start another study with "
            "--study NAME"
        )
    if definition.architecture.model == TIME_LLM:
        try:
            with_hash(definition.architecture.settings)
        except UsageError as error:
            raise UsageError(f"study {opened.name!r} cannot go on here: {error}") from None
    model = _runnable(
        opened, definition.architecture.model, definition.model_source, trust, trusted
    )
    architecture = definition.architecture.but(model=model)
    training = definition.training
    if loss is not None:
        term = _runnable(opened, loss.term, definition.loss_source, trust, trusted)
        training = training.but(loss=loss.but(term=term))
    definition = dataclasses.replace(definition, architecture=architecture, training=training)
    if definition == opened.definition:
        return opened
    return dataclasses.replace(opened, definition=definition)


def _runnable(
    opened: OpenStudy, reference: str, sha256: str | None, trust: bool, trusted: Collection[str]
) -> str:
    """The import string, of the file that this host may run."""
    own = OwnFile.named(reference, sha256)
    if own is None:
        if names_file(reference) and not trust:
            raise UsageError(
                f"study {opened.name!r} runs {reference}, and does not say what that file held "
                "when it was made; read it, then say --trust"
            )
        return reference
    content = own.here()
    if content is not None:
        if (here := hashlib.sha256(content).hexdigest()) != own.sha256:
            raise UsageError(
                f"{own.path} on this host is not the file that study {opened.name!r} was made with "
                f"(sha256 {here[:12]} here, {own.sha256[:12]} there); restore it, or move it away "
                "and the database's is used, or start another study with --study NAME"
            )
        if beside := files_beside(own.path):
            stored = opened.optuna.user_attrs.get(BESIDE)
            refuse_changed_beside(opened.name, stored, {own.path.name: beside})
        return reference
    if not is_kept(own):
        content = _of_database(opened, own)
        if not (trust or own.sha256 in trusted):
            raise UsageError(
                f"study {opened.name!r} runs code that only the database has here: "
                f"{own.path.name}, sha256 {own.sha256}; read it with 'tuner study code "
                f"{opened.name}', then say --trust-code {own.sha256} to 'tuner worker', or --trust"
            )
        keep(own, content)
    _refuse_without_imports(opened, own)
    return f"{own.copy}:{reference.rpartition(':')[2]}"


def _refuse_without_imports(opened: OpenStudy, own: OwnFile) -> None:
    """Of a copy: raises UsageError where what it imports from beside it is not to be had here."""
    found = opened.optuna.user_attrs.get(BESIDE)
    files = found.get(own.path.name) if isinstance(found, dict) else None
    names = files if isinstance(files, dict) else {}
    modules = {str(name).split("/")[0].removesuffix(".py") for name in names}
    if lacks := [name for name in sorted(modules) if not _found_by_python(name)]:
        raise UsageError(
            f"study {opened.name!r} runs {own.path.name}, which imports {', '.join(lacks)} from "
            f"beside it, and {own.path} is not on this host: put all of it there, or "
            f"{', '.join(lacks)} on Python's path"
        )


def _found_by_python(name: str) -> bool:
    """A name that somebody stored: of one that no module can have nothing is said."""
    try:
        return not name.isidentifier() or find_spec(name) is not None
    except (ImportError, ValueError):
        return True


def code_of(opened: OpenStudy) -> tuple[tuple[OwnFile | OwnProgram, bytes], ...]:
    """The files that a study runs, as its database has them: its network's, then its term's; of a
    program what is started, and where.

    Raises:
        UsageError: it runs none, or the database does not have one of them.
    """
    if (program := OwnProgram.of(opened.definition)) is not None:
        return ((program, program.content),)
    found = OwnFile.all_of(opened.definition)
    if not found:
        raise UsageError(
            f"study {opened.name!r} runs no file of somebody's own: its network is "
            f"{opened.definition.architecture.model}"
        )
    return tuple((own, _of_database(opened, own)) for own in found)


def _refuse_program(opened: OpenStudy, own: OwnProgram, *, trust: bool) -> None:
    """Raises UsageError where it is not here, nobody said to trust it, or its files are others."""
    if not own.path.is_dir():
        raise UsageError(
            f"study {opened.name!r} runs a program in {own.path}, which is not on this host; "
            "a program is not carried by the database: put its folder there"
        )
    if trust:
        keep_if_possible(own, own.content)
    elif not _is_known(own):
        read = command_line(["tuner", "study", "code", opened.name])
        raise UsageError(
            f"study {opened.name!r} runs a program by the database's word alone: "
            f"{own.program.in_words()}; read it with '{read}', then say "
            f"--trust-code {own.sha256} to 'tuner worker', or --trust"
        )
    if own.program.digest() != own.files_sha256:
        raise UsageError(
            f"the program in {own.path} is not the one that study {opened.name!r} was made "
            "with; restore its files, or start another study with --study NAME"
        )


def _is_known(own: OwnProgram) -> bool:
    """Whether this user launched or trusted it on this host."""
    try:
        return is_kept(own)
    except DataError:
        return False


def _of_database(opened: OpenStudy, own: OwnFile) -> bytes:
    found = source_of(opened.database.engine, own.sha256)
    if found is None:
        raise UsageError(
            f"study {opened.name!r} runs the code of {own.path}, which is neither on this host nor "
            f"in the database (sha256 {own.sha256[:12]}); copy it there, or launch the study again "
            "where the file is"
        )
    return found


# Whose word lets code run: a study that was imported may name a class, and nobody here has read
# that class's file.


_MARK = "tuner_untrusted"
"""The file that a study came from, while nobody trusts it."""


def runs_own_code(definition: StudyDefinition) -> bool:
    """Whether to train this study runs code that is not tuner's."""
    return definition.program is not None or bool(definition.own_code)


def untrusted(definition: StudyDefinition, origin: str) -> dict[str, Any]:
    """The attribute of a study that came from the file `origin`, where it names code to run."""
    return {_MARK: origin} if origin and runs_own_code(definition) else {}


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
