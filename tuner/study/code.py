"""The file with a study's own class, on hosts that may not have it: it travels through the database
by its hash.

A host runs what lies at the study's path, if its hash is the study's; else what this user has run
here before, which is kept in a folder of the user's alone; else what the database holds, once
somebody has said to trust that hash. One file is carried, not what it imports from beside it.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Collection
from pathlib import Path

from tuner.errors import UsageError
from tuner.spec.program import Program
from tuner.storage.code_texts import source_of
from tuner.study.open import OpenStudy
from tuner.study.own_file import OwnFile, is_whole, keep_copy, path_of_copy


def with_code(
    opened: OpenStudy, *, trust: bool = False, trusted: Collection[str] = ()
) -> OpenStudy:
    """The study, whose class can be loaded on this host: to be called before its network is built.

    With `trust`, or where its hash is among the `trusted` ones, code runs here that only the
    database has. It is kept for this user, and needs nobody's word next time.

    Raises:
        UsageError: the file here is another, nobody has it, or nobody said to trust it.
    """
    if opened.definition.program is not None:
        _refuse_other_program(opened, opened.definition.program)
        return opened
    own = OwnFile.of(opened.definition)
    if own is None:
        return opened
    content = own.here()
    if content is not None:
        _refuse_other(opened, own, hashlib.sha256(content).hexdigest())
        return opened
    path = path_of_copy(own)
    if not is_whole(path, own.sha256):
        content = _of_database(opened, own)
        if not (trust or own.sha256 in trusted):
            raise UsageError(
                f"study {opened.name!r} runs code that only the database has here: "
                f"{own.path.name}, sha256 {own.sha256}; read it with 'tuner study code "
                f"{opened.name}', then say --trust-code {own.sha256} to 'tuner worker', or --trust"
            )
        path = keep_copy(own, content)
    architecture = dataclasses.replace(
        opened.definition.architecture, model=f"{path}:{own.name_of_class}"
    )
    return dataclasses.replace(
        opened, definition=dataclasses.replace(opened.definition, architecture=architecture)
    )


def code_of(opened: OpenStudy) -> tuple[OwnFile, bytes]:
    """The file that a study runs, as its database has it.

    Raises:
        UsageError: it runs none, or the database does not have it.
    """
    own = OwnFile.of(opened.definition)
    if own is None:
        raise UsageError(
            f"study {opened.name!r} runs no file of somebody's own: its network is "
            f"{opened.definition.architecture.model}"
        )
    return own, _of_database(opened, own)


def _refuse_other(opened: OpenStudy, own: OwnFile, here: str) -> None:
    if here != own.sha256:
        raise UsageError(
            f"{own.path} on this host is not the file that study {opened.name!r} was made with "
            f"(sha256 {here[:12]} here, {own.sha256[:12]} there); restore it, or move it away and "
            "the database's is used, or start another study with --study NAME"
        )


def _refuse_other_program(opened: OpenStudy, program: Program) -> None:
    if not Path(program.folder).is_dir():
        raise UsageError(
            f"study {opened.name!r} runs a program in {program.folder}, which is not on this host; "
            "a program is not carried by the database: put its folder there"
        )
    if program.digest() != opened.definition.model_source:
        raise UsageError(
            f"the program in {program.folder} is not the one that study {opened.name!r} was made "
            "with; restore its files, or start another study with --study NAME"
        )


def _of_database(opened: OpenStudy, own: OwnFile) -> bytes:
    found = source_of(opened.database.engine, own.sha256)
    if found is None:
        raise UsageError(
            f"study {opened.name!r} runs the code of {own.path}, which is neither on this host nor "
            f"in the database (sha256 {own.sha256[:12]}); copy it there, or launch the study again "
            "where the file is"
        )
    return found
