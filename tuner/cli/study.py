"""`tuner study`: whole studies, listed, shown, renamed, deleted, exported and imported."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.command import argument, command, option, switch
from tuner.cli.options import Json, Storage, Trust, opened_database, storage_url
from tuner.cli.output import print_json, say
from tuner.cli.replace import Force, check_free, is_exported_study
from tuner.display.text import shown
from tuner.errors import TunerError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuner.spec.definition import StudyDefinition
    from tuner.study.open import OpenStudy


# An exported study may be the only copy of what it holds: no other study takes its place.


def refuse_another_study(path: Path, name: str, definition: StudyDefinition) -> None:
    """Refuse to write study `name` over the export of another one.

    Raises:
        UsageError: there is one, or what is there cannot be read to tell.
    """
    from tuner.study.archive import read_archive

    if not path.is_file():
        return
    try:
        there = read_archive(path)
    except TunerError as error:
        raise UsageError(
            f"{path}: is there already, and cannot be told from another study's ({error}); name "
            "another file, or say --force to write over it"
        ) from None
    if (there.name, there.definition) != (name, definition):
        raise UsageError(
            f"{path}: holds another study, {there.name!r}; name another file, or say --force to "
            "write over it"
        )


app = typer.Typer(
    name="study",
    help="List, show, rename, delete, export and import whole studies.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The study.", show_default=False)]


@app.command("list", short_help="List all studies, with what each holds.")
@command
def list_(storage: Storage = None, json: Json = False) -> int:
    """List all studies of the database, other programs' too: what each is, how it stands, when
    something last happened, and how much it holds.
    """
    from tuner.display.terminal import make_console
    from tuner.report.holdings import holdings
    from tuner.report.terminal.tables import fitting

    with opened_database(storage_url(storage)) as database:
        found = holdings(database)
    if json:
        print_json({"studies": found})
        return 0
    console, rows = make_console(), list[dict[str, str]]()
    for each in found:
        each["bytes"] = f"{each.get('bytes', 0) / 1e6:.1f} MB"
        rows.append({key: shown(str(each.get(key) or "")) for key in found[0]})
    console.print(fitting("Studies", rows, console.width, leave_out=("last", "bytes", "task")))
    return 0


@app.command("show", short_help="Say what a study is, and who refers to it.")
@command
def show(name: Name, storage: Storage = None, json: Json = False) -> int:
    """Say what a study is: variant, task, settings that are not as usual, objectives, counts,
    workers, the retune that is registered, and who refers to it.
    """
    from tuner.report.holdings import described
    from tuner.study.open import open_study
    from tuner.study.snapshot import study_meant

    with opened_database(storage_url(storage)) as database:
        found = described(open_study(database, study_meant(database, name)))
    if json:
        print_json(found)
        return 0
    for what, said in found.items():
        say(f"{what:<12}{said if isinstance(said, str) else ', '.join(said)}")
    return 0


@app.command("rename", short_help="Call a study otherwise; what refers to it follows.")
@command
def rename(
    old: str = argument("OLD", "The study."),
    new: str = argument("NEW", "What it is to be called."),
    storage: Storage = None,
    json: Json = False,
) -> int:
    """Call a study otherwise. Its group, limits of device hours and verifications follow; its seeds
    and files stay. Refused while somebody is at work on it.

    'tuner launch' looks for <task>-<variant>, and finds this one by --study NEW. 'tuner retune' has
    no such option: to it, what is called otherwise is another study.
    """
    from tuner.launch.plan import check_study_name
    from tuner.study.housekeeping import rename_study
    from tuner.study.snapshot import study_meant

    check_study_name(new, flag="NEW")
    with opened_database(storage_url(storage)) as database:
        rename_study(database, study_meant(database, old), new)
    if json:
        print_json({"renamed": old, "to": new})
    else:
        say(f"{old} is called {new} now")
    return 0


@app.command("delete", short_help="Delete a study, and all that is kept of it.")
@command
def delete(
    name: str = argument("NAME", "Studies, or group:NAME."),
    yes: bool = switch("Do not ask."),
    storage: Storage = None,
    json: Json = False,
) -> int:
    """Delete a study for good: its trials, curves and verification runs, and its checkpoints here.
    All of it goes, or nothing. Refused while somebody is at work on it.

    Pages and exported files stay. 'tuner study export' keeps one that may be wanted again.
    """
    from tuner.study.housekeeping import delete_studies
    from tuner.study.snapshot import studies_meant
    from tuner.worker.paths import WorkerPaths, forget_study, working_folder

    with opened_database(storage_url(storage)) as database:
        names = studies_meant(database, name)
        if not yes:
            _ask_for(f"delete {', '.join(names)}, all trials and runs")
        paths = WorkerPaths(working_folder(database.address))
        for key in delete_studies(database, names):
            forget_study(paths, key)
    if json:
        print_json({"deleted": names})
    else:
        say(f"deleted: {', '.join(names)}")
    return 0


def _ask_for(what: str) -> None:
    """Raises UsageError where nobody agrees, or can be asked."""
    if not sys.stdin.isatty():
        raise UsageError(f"{what}, for good? there is no terminal to ask; say --yes")
    if not typer.confirm(f"{what}, for good?", err=True):
        raise UsageError("nothing is deleted")


@app.command("export", short_help="Write a study into one file.")
@command
def export(
    name: Name,
    output: Path = option("FILE", "A .json or .json.gz file.", default=...),
    storage: Storage = None,
    force: Force = False,
    json: Json = False,
) -> int:
    """Write a study into one file: definition, trials, curves, verification runs."""
    from tuner.study.archive import archive_of, write_archive
    from tuner.study.open import open_study
    from tuner.study.snapshot import study_meant

    check_free(output, is_exported_study, force=force)
    with opened_database(storage_url(storage)) as database:
        opened = open_study(database, study_meant(database, name))
        if not force:
            refuse_another_study(output, opened.name, opened.definition)
        try:
            write_archive(archive_of(opened), output)
        except OSError as error:
            raise TunerError(f"{output}: cannot be written ({error.strerror or error})") from None
        _say(opened, f"written to {output} ({output.stat().st_size / 1000:.0f} kB)", json=json)
    return 0


@app.command("import", short_help="Make a study of an exported one.")
@command
def import_(
    file: Path = argument("FILE", "What 'tuner study export' wrote."),
    name: str | None = option("NAME", "The study's name here (default: its own)."),
    space: str | None = option(
        "NEW", "Study file or variant: begin a study over its space with the trials in it."
    ),
    trust: Trust = False,
    storage: Storage = None,
    json: Json = False,
) -> int:
    """Make a study of an exported one; it can be continued where its file left off.

    With --space it has the variant, the space and the defaults of NEW instead, and those finished
    trials that lie in that space.

    Where it names a class or a program of somebody's own, that runs once --trust was said, here or
    with what trains it.
    """
    from tuner.launch.plan import check_study_name
    from tuner.spec.study_file import load_study_file
    from tuner.study.archive import read_archive
    from tuner.study.own_file import OwnProgram, keep_if_possible
    from tuner.study.transfer import over_space, restore

    archive = read_archive(file)
    if name is not None:
        check_study_name(name, flag="--name")
    else:
        check_study_name(archive.name, flag=str(file), otherwise="--name")
    what, more = f"imported from {file}", dict[str, object]()
    if space is not None:
        archive, left_out = over_space(archive, load_study_file(space), name or archive.name)
        more["left_out"] = dict(left_out.most_common())
        kept = sum(record.state.is_finished() for record in archive.records)
        what += f"; {kept} of {kept + left_out.total()} finished trials lie in the new space"
        if left_out:
            outside = ", ".join(f"{name} ({n})" for name, n in left_out.most_common())
            what += f"; the others are outside it in {outside}"
    with opened_database(storage_url(storage), create=True) as database:
        origin = "" if trust else str(file)
        made = restore(database, archive, name or archive.name, origin=origin)
        if trust and (program := OwnProgram.of(made.definition)) is not None:
            keep_if_possible(program, program.content)
        _say(made, what, json=json, more=more)
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
    from tuner.study.snapshot import study_meant

    with opened_database(storage_url(storage)) as database:
        files = code_of(open_study(database, study_meant(database, name)))
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


def _say(
    opened: OpenStudy, what: str, *, json: bool, more: Mapping[str, object] | None = None
) -> None:
    from tuner.report.study_status import status_of
    from tuner.report.terminal.tables import held_in_words

    if json:
        print_json({**status_of(opened), **(more or {})})
        return
    counts = opened.ledger.counts()
    place = opened.membership
    search = f"; search {place.search} of group {place.group}" if place.group != opened.name else ""
    say(f"{opened.name}: {what}; {held_in_words(counts)}{search}")
