"""From the campaign's state to what is kept of it: exported studies, tables and figures. No GPU, no database server.

    python benchmarks/campaign/report.py --state STATE --output benchmarks/campaign --figures png --readme

For each study an exported file; of all together `table.md`, `results.csv`, `report.html` and `compare.json` as `tuner
compare` writes them, `explain.json`, and the figures front, hypervolume and importances of all, and the learning curves
of the first two. Pictures (`--figures png` or `svg`) need a Chromium, `html` needs nothing. With `--readme` it also
writes report.md, as readme.py beside this file does. Of a plan without verification only
the studies are exported. With `--exports` everything but the exports is made again from those in OUTPUT. A state that is
not finished yet gives what there is, and says so.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import readme
from plan import PLANS, Campaign
from state import CALLS, DATABASE, NAME, calls_in, restore

from tuner.report.comparison_files import HEADINGS, cell, write_csv, write_html
from tuner.report.figures.draw import draw, importances_figure
from tuner.report.figures.save import save
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.archive import archive_of, read_archive, write_archive
from tuner.study.open import list_studies, open_study
from tuner.study.snapshot import snapshot
from tuner.verdict.compare.findings import Report, compare
from tuner.verdict.compare.studies import read_studies
from tuner.verdict.explain import Explanation, explain_study


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
    device = ", ".join(sorted({s.device_model or "no device" for s in report.studies}))
    held = ", ".join(f"{study.name} {study.finished}" for study in report.studies)
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
    told = [*report.between, *report.confirmed]
    lines += ["", *(f"- {each.sentence}." for each in told)]
    return [
        *lines,
        *(f"- Missing: {what}" for what in report.missing),
        *(f"- Not equal: {what}" for what in report.fairness),
    ]


def draw_all(
    paths: Sequence[Path], understood: Sequence[Explanation], output: Path, kind: str
) -> None:
    studies = [snapshot(read_archive(path)) for path in paths]
    for name in ("front", "hypervolume"):
        save(draw(name, studies), output / f"{name}.{kind}")
    save(
        draw("curves", studies[:2]), output / f"curves.{kind}"
    )  # ten curves or more could not be told apart
    for objective in dict.fromkeys(name for each in understood for name in each.importances):
        shares = {
            each.study: each.importances[objective] for each in understood if each.importances
        }
        save(
            importances_figure(shares, title=f"What {objective} depends on"),
            output / f"importances-{objective}.{kind}",
        )


def without_command(calls: str) -> str:
    """The list of the calls without their command lines: folders of another machine mean nothing here."""
    kept = (
        {k: v for k, v in json.loads(line).items() if k != "command"} for line in calls.splitlines()
    )
    return "".join(f"{json.dumps(call)}\n" for call in kept)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--state", type=Path, help="folder of the campaign's state, as run.py leaves it"
    )
    source.add_argument(
        "--exports",
        action="store_true",
        help="the exports that lie in --output; no state is needed",
    )
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--figures", choices=("html", "png", "svg", "none"), default="html")
    parser.add_argument(
        "--readme", action="store_true", help="write report.md and the README's answer, too"
    )
    parser.add_argument("--plan", choices=PLANS, default="campaign", help="as given to run.py")
    parser.add_argument(
        "--quick", action="store_const", dest="plan", const="quick", help="of a dry run"
    )
    options = parser.parse_args(arguments)
    campaign = PLANS[options.plan]
    output: Path = options.output
    output.mkdir(parents=True, exist_ok=True)
    paths = (
        readme.exports(output) if options.exports else export_state(options.state, campaign, output)
    )
    if not campaign.seeds:
        print("\n".join(str(path) for path in paths))
        return
    write(paths, campaign, output, figures=options.figures)
    if options.readme:
        readme.main(["--exports", str(output)])


def export_state(state: Path, campaign: Campaign, output: Path) -> list[Path]:
    """The studies and the calls of a campaign's state, written to `output`; the studies' paths.

    Raises:
        SystemExit: there is no state.
    """
    with tempfile.TemporaryDirectory(prefix="campaign-") as name:
        if not restore(state / NAME, Path(name)):
            raise SystemExit(f"there is no {state / NAME}; run.py writes it")
        paths = export(Path(name, DATABASE), campaign, output)
        calls = without_command(calls_in(Path(name)))
    (output / CALLS).write_text(calls, encoding="utf-8")
    return paths


def write(paths: Sequence[Path], campaign: Campaign, output: Path, *, figures: str) -> None:
    """All that is kept beside the exports: tables, the comparison and what explains it, figures."""
    studies = read_studies(
        [str(path) for path in paths], task=campaign.task, storage="sqlite:///none.db"
    )
    report = compare(studies, pick="knee")
    write_csv(report, output / "results.csv")
    write_html(report, output / "report.html")
    (output / "compare.json").write_text(
        json.dumps(report.as_dict(), indent=1) + "\n", encoding="utf-8"
    )
    understood = [explain_study(each) for each in studies]
    explained = {"studies": [each.as_dict() for each in understood]}
    (output / "explain.json").write_text(json.dumps(explained, indent=1) + "\n", encoding="utf-8")
    lines = table(report, len((output / CALLS).read_text(encoding="utf-8").splitlines()))
    (output / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    if figures != "none":
        draw_all(paths, understood, output, figures)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
