"""From the campaign's state to what is kept of it: exported studies, tables and figures. No GPU, no database server.

    python benchmarks/campaign/report.py --state STATE --output benchmarks/campaign --figures png --readme

For each study an exported file; of all together `table.md`, `results.csv`, `report.html` and `compare.json` as `tuner
compare` writes them, `explain.json`, and the figures front, hypervolume and importances of all, and the learning curves
of the first two. Pictures (`--figures png` or `svg`) need a Chromium, `html` needs nothing. With `--readme` the README's
report is made of the exports, too, as readme.py beside this file does. Of a plan without verification the studies are
exported, no more. A state that is not finished yet gives what there is, and says so.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]
import readme
from plan import PLANS, Campaign
from state import CALLS, DATABASE, NAME, calls_in, modernise, restore

from tuner.compare import Report, compare, read_subjects
from tuner.compare.files import HEADINGS, cell, write_csv, write_html
from tuner.compare.understanding import Understanding, understand
from tuner.figures import draw, of_archive
from tuner.plots import importances_figure
from tuner.plots.files import save
from tuner.storage import open_database, parse_url
from tuner.study import list_studies, open_study
from tuner.study.archive import archive_of, read_archive, write_archive


def export(database_file: Path, campaign: Campaign, output: Path) -> list[Path]:
    """The campaign's studies that there are, each as a file; their paths."""
    database = open_database(parse_url(f"sqlite:///{database_file}"), create=False)
    try:
        there = set(list_studies(database))
        paths = []
        for name in (each for each in campaign.studies() if each in there):
            paths.append(output / f"{name}.json.gz")
            write_archive(archive_of(open_study(database, name)), paths[-1])
        return paths
    finally:
        database.close()


def table(report: Report, calls: int) -> list[str]:
    """The README's table: every variant with the default hyperparameters and with its own."""
    columns = list(HEADINGS)
    device = ", ".join(sorted({s.device_model or "no device" for s in report.subjects}))
    held = ", ".join(f"{subject.name} {subject.finished}" for subject in report.subjects)
    how = "Medians over fresh seeds with 95 % intervals where verified."
    lines = [
        f"{report.task} on {device}, in {calls} calls of `run.py`. Finished trials: {held}. {how}",
        "",
        f"| variant | hyperparameters | runs | {' | '.join(HEADINGS[name] for name in columns)} | verdict |",
        f"|{'---|' * (len(columns) + 4)}",
    ]
    for row in report.rows:
        figures = " | ".join(cell(row, name) for name in columns)
        runs = str(row.runs) if row.verified else "not verified"
        lines.append(
            f"| {row.variant} | {row.hyperparameters}, trial {row.trial} | {runs} | {figures} | {row.verdict} |"
        )
    lines += ["", *(f"- {answer.sentence}." for answer in report.answers)]
    return [
        *lines,
        *(f"- Missing: {what}" for what in report.missing),
        *(f"- Not equal: {what}" for what in report.fairness),
    ]


def draw_all(paths: Sequence[Path], understood: Sequence[Understanding], output: Path, kind: str) -> None:
    subjects = [of_archive(read_archive(path)) for path in paths]
    for name in ("front", "hypervolume"):
        save(draw(name, subjects), output / f"{name}.{kind}")
    save(draw("curves", subjects[:2]), output / f"curves.{kind}")  # ten curves or more could not be told apart
    for objective in dict.fromkeys(name for each in understood for name in each.importances):
        shares = {each.study: each.importances[objective] for each in understood if each.importances}
        save(
            importances_figure(shares, title=f"What {objective} depends on"), output / f"importances-{objective}.{kind}"
        )


def without_command(calls: str) -> str:
    """The list of the calls without their command lines: folders of another machine mean nothing here."""
    kept = ({k: v for k, v in json.loads(line).items() if k != "command"} for line in calls.splitlines())
    return "".join(f"{json.dumps(call)}\n" for call in kept)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--figures", choices=("html", "png", "svg", "none"), default="html")
    parser.add_argument("--readme", action="store_true", help="write the README's report of these exports, too")
    parser.add_argument("--plan", choices=PLANS, default="campaign", help="as given to run.py")
    parser.add_argument("--quick", action="store_const", dest="plan", const="quick", help="of a dry run")
    options = parser.parse_args(arguments)
    campaign = PLANS[options.plan]
    output: Path = options.output
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="campaign-") as name:
        if not restore(options.state / NAME, Path(name)):
            raise SystemExit(f"there is no {options.state / NAME}; run.py writes it")
        modernise(Path(name))
        paths = export(Path(name, DATABASE), campaign, output)
        calls = without_command(calls_in(Path(name)))
    (output / CALLS).write_text(calls, encoding="utf-8")
    if not campaign.seeds:
        print("\n".join(str(path) for path in paths))
        return
    files = [str(path) for path in paths]
    subjects = read_subjects(files, task=campaign.task, storage="sqlite:///none.db")
    report = compare(subjects, pick="knee")
    write_csv(report, output / "results.csv")
    write_html(report, output / "report.html")
    (output / "compare.json").write_text(json.dumps(report.as_dict(), indent=1) + "\n", encoding="utf-8")
    understood = [understand(each) for each in subjects]
    explained = {"studies": [each.as_dict() for each in understood]}
    (output / "explain.json").write_text(json.dumps(explained, indent=1) + "\n", encoding="utf-8")
    lines = table(report, len(calls.splitlines()))
    (output / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    if options.figures != "none":
        draw_all(paths, understood, output, options.figures)
    if options.readme:
        readme.main(["--exports", str(output), *(("--no-picture",) if options.figures != "png" else ())])
    print("\n".join(lines))


if __name__ == "__main__":
    main()
