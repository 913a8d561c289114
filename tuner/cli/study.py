"""`tuner study`: whole studies copied, extended, written to a file and read from one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import Json, Storage, Trust, opened_database, storage_url
from tuner.cli.output import print_json, say
from tuner.cli.replace import Force, check_free, is_exported_study
from tuner.config import MANY
from tuner.errors import TunerError, UsageError

if TYPE_CHECKING:
    from tuner.study.open import OpenStudy

app = typer.Typer(
    name="study",
    help="Copy, extend, export and import whole studies.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The study.")]


@app.command("copy", short_help="Make a second study with all that one holds.")
def copy(
    name: Name,
    new: Annotated[str, typer.Argument(metavar="NEW", help="The copy's name.")],
    storage: Storage = None,
    json: Json = False,
) -> int:
    """Make a second study with all that NAME holds; each can then go its own way."""
    from tuner.study.transfer import copy_study

    _check_name(new, "NEW")
    with opened_database(storage_url(storage)) as database:
        _say(copy_study(database, name, new), f"copied {name}", json=json)
    return 0


@app.command("extend")
def extend(
    name: Name,
    trials: Annotated[
        int | None,
        typer.Option(
            min=1, max=MANY, metavar="N", help="Until it holds this many finished trials."
        ),
    ] = None,
    space: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Study file (or variant) with the new space; needs --as."
        ),
    ] = None,
    new: Annotated[
        str | None, typer.Option("--as", metavar="NEW", help="Name of the study over that space.")
    ] = None,
    storage: Storage = None,
    json: Json = False,
) -> int:
    """Let a study run more trials, or continue it over another space.

    A space is part of what a study is: NEW is a new study, which begins with those finished trials
    of NAME that lie in it.
    """
    from tuner.study.open import open_study
    from tuner.study.transfer import extend_budget

    if (space is None) != (new is None):
        raise UsageError(
            "--space and --as belong together: another space makes a new study, which needs a name"
        )
    if space is None and trials is None:
        raise UsageError("nothing to extend; give --trials N, or --space FILE --as NEW")
    with opened_database(storage_url(storage)) as database:
        opened = open_study(database, name)
        if space is None or new is None:
            extend_budget(opened, trials or 0)
            _say(opened, "the budget is set", json=json)
        else:
            made, what = _extended(opened, space, new, trials)
            _say(made, what, json=json)
    return 0


def _extended(opened: OpenStudy, space: str, new: str, trials: int | None) -> tuple[OpenStudy, str]:
    """The new study over that space, and what to say of it."""
    from tuner.spec.study_file import load_study_file
    from tuner.study.transfer import extend_space

    _check_name(new, "--as")
    file = load_study_file(space)
    there, here = opened.definition.architecture.model, file.architecture().model
    if here.rpartition("/")[2] != there.rpartition("/")[2]:
        raise UsageError(
            f"--space: {space} is of the network {here}, study {opened.name!r} of {there}; their "
            "trials do not compare"
        )
    made, taken = extend_space(
        opened, file.space, file.default_hyperparameters(), new, trials=trials
    )
    ended = opened.ledger.counts().finished
    return made, (
        f"{taken} of the {ended} finished trials of {opened.name} lie in the new space and are in "
        "it"
    )


@app.command("export", short_help="Write a study into one file.")
def export(
    name: Name,
    output: Annotated[Path, typer.Option(metavar="FILE", help="A .json or .json.gz file.")],
    storage: Storage = None,
    force: Force = False,
    json: Json = False,
) -> int:
    """Write a study into one file: definition, trials, curves, verification runs."""
    from tuner.cli.other_export import refuse_another_study
    from tuner.study.archive import archive_of, write_archive
    from tuner.study.open import open_study

    check_free(output, is_exported_study, force=force)
    with opened_database(storage_url(storage)) as database:
        opened = open_study(database, name)
        if not force:
            refuse_another_study(output, opened.name, opened.definition)
        try:
            write_archive(archive_of(opened), output)
        except OSError as error:
            raise TunerError(f"{output}: cannot be written ({error.strerror or error})") from None
        _say(opened, f"written to {output} ({output.stat().st_size / 1000:.0f} kB)", json=json)
    return 0


@app.command("import", short_help="Make a study of an exported one.")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What 'tuner study export' wrote.")],
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="The study's name here (default: its own).")
    ] = None,
    trust: Trust = False,
    storage: Storage = None,
    json: Json = False,
) -> int:
    """Make a study of an exported one; it can be continued where its file left off.

    Where it names a class or a program of somebody's own, that runs once --trust was said, here or
    with what trains it.
    """
    from tuner.study.archive import read_archive
    from tuner.study.own_program import OwnProgram
    from tuner.study.transfer import restore

    archive = read_archive(file)
    if name is not None:
        _check_name(name, "--name")
    else:
        _check_name(archive.name, str(file), otherwise="--name")
    with opened_database(storage_url(storage), create=True) as database:
        origin = "" if trust else str(file)
        made = restore(database, archive, name or archive.name, origin=origin)
        if trust and (program := OwnProgram.of(made.definition)) is not None:
            program.keep()
        _say(made, f"imported from {file}", json=json)
    return 0


@app.command("code", short_help="Print the code of its own that a study runs.")
def code(name: Name, storage: Storage = None, json: Json = False) -> int:
    """Print the file with a study's own class, as the database has it, and its hash; then that with
    its term of the loss, where it is another. Of a program: its command, its folder and the hash
    of its files.

    A worker on a host that knows it from the database alone runs it once it was told --trust-code
    with this hash.
    """
    from tuner.study.code import code_of
    from tuner.study.open import open_study

    with opened_database(storage_url(storage)) as database:
        files = code_of(open_study(database, name))
    if json:
        rows = [
            {"file": str(own.path), "sha256": own.sha256, "source": content.decode()}
            for own, content in files
        ]
        more = {"more": rows[1:]} if len(rows) > 1 else {}
        print_json({"study": name, **rows[0], **more})
        return 0
    for own, content in files:
        lines = content.decode().expandtabs().split("\n")
        for line in (f"# sha256 {own.sha256}", f"# {own.path}", *lines):
            say(line)
    return 0


def _check_name(name: str, where: str, *, otherwise: str = "") -> None:
    from tuner.launch.plan import check_study_name

    check_study_name(name, flag=where, otherwise=otherwise)


def _say(opened: OpenStudy, what: str, *, json: bool) -> None:
    from tuner.report.study_status import status_of
    from tuner.report.terminal.summary_lines import held_in_words

    if json:
        print_json(status_of(opened))
        return
    counts = opened.ledger.counts()
    place = opened.membership
    search = f"; search {place.search} of group {place.group}" if place.group != opened.name else ""
    say(f"{opened.name}: {what}; {held_in_words(counts)}{search}")
