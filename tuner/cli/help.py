"""What `--help` shows: the options in sections, the rare ones behind `--help-all`, two examples and
the page that says more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from typer.core import TyperCommand

SECTIONS = {
    "What": "variant kind against only default objective source task data_dir study config trial "
    "space output",
    "Where": "gpus gpu cpu workers on storage placement hang_limit trust print_only cores",
    "Budget": "retune trials searches budget timeout max_epochs confirm confirm_seeds "
    "max_gpu_hours top search_time seeds seed",
    "Search": "sampler pick margin choose values sampler_seed prune max_time max_mql max_memory "
    "reruns warm_start time_objective target_val_loss mql_split draw foundation no_estimate",
    "Training": "backend precision set checkpoint_every calibrate ensemble refit",
}
"""The options of each section, by their parameters' names; what stands in none comes last, under
"More"."""
RARE = (
    "placement hang_limit trust print_only max_gpu_hours top search_time sampler_seed prune "
    "max_time margin max_mql max_memory reruns warm_start time_objective target_val_loss "
    "mql_split draw foundation no_estimate precision set checkpoint_every confirm_seeds force "
    "details html choose values workers data_dir again measure price_per_gpu_hour rounds epochs "
    "seed trust_code keep_alive cores track notify time_column id_column time_format timezone "
    "decimal"
)
"""Options of a long command that its first screen leaves out."""
EXAMPLES = """\
tuner retune --variant rmsnorm --against original --budget 20m
tuner retune --variant small.toml --task own.toml --cpu
tuner launch --variant rmsnorm --gpus 0,1
tuner launch --variant rmsnorm,original --trials 100 --timeout 2h
tuner worker --study etth-rmsnorm --gpu 0
tuner worker --study etth-rmsnorm --cpu
tuner estimate --variant rmsnorm --trials 100
tuner estimate --variant rmsnorm --retune --budget 20m
tuner warm --variant rmsnorm
tuner warm --variant rmsnorm --capability 9.0
tuner status
tuner status --study etth-rmsnorm --watch
tuner trial 7
tuner trial 7 --study etth-rmsnorm --json
tuner dashboard
tuner dashboard --port 8081
tuner plot front --output front.png
tuner plot curves --study etth-rmsnorm --output curves.html
tuner verify --variant rmsnorm
tuner verify --variant rmsnorm --confirm
tuner compare original rmsnorm
tuner compare original rmsnorm --html page.html
tuner gate --variant new.toml --against original
tuner gate --variant new.toml --against original --only mql --output report.md
tuner confirm sqlite:///optuna.db --study mine --objective train.py:objective
tuner confirm trials.csv --objective train.py:objective
tuner explain rmsnorm
tuner explain study:etth-rmsnorm --json
tuner forecast data.csv
tuner forecast data.csv --horizon 14 --budget 20m
tuner best --variant rmsnorm --format toml --output best.toml
tuner best --variant rmsnorm --pick knee --format json
tuner train --config best.toml --output model.safetensors
tuner train --variant rmsnorm --seeds 3 --output model.safetensors
tuner predict model.safetensors recent.csv
tuner predict model.safetensors recent.csv --output forecast.csv
tuner init data table.csv
tuner init data table.csv --horizon 24
tuner init variant net.py:Net
tuner init variant net.py:Net --output net.toml
tuner data check table.csv
tuner data check own.toml --json
tuner data fetch etth
tuner data fetch etth --to data
tuner study list
tuner study list --json
tuner study show etth-rmsnorm
tuner study show etth-rmsnorm --json
tuner study rename etth-rmsnorm first-try
tuner study rename first-try etth-rmsnorm --storage sqlite:///storage/old.db
tuner study delete first-try
tuner study delete group:etth-rmsnorm --yes
tuner study export etth-rmsnorm --output rmsnorm.json.gz
tuner study export etth-rmsnorm --output rmsnorm.json --force
tuner study import rmsnorm.json.gz
tuner study import rmsnorm.json.gz --name etth-rmsnorm-2
tuner study code etth-rmsnorm
tuner study code etth-rmsnorm --json
tuner db init
tuner db init --storage postgresql+psycopg://ann@db/tuner
tuner db check
tuner db check --repair
tuner db backup tuner.backup.db
tuner db backup tuner.backup.db --force
tuner doctor
tuner doctor --json
tuner variants
tuner variants --check small.toml
tuner profile --variant rmsnorm
tuner profile --python train.py
tuner bench
tuner bench --ladder
"""
LONG = 14
"""Options, from which on a command is long."""
ALL = "--help-all"
LEFT_OUT = "left out"
_RANGE = re.compile(r"\s*\[(\d+<=)?x[<>]=?\d+\]|; (\d+<=)?x[<>]=?\d+(?=\])")
"""Of a number: the refusal of another says it."""
NAMES = {"help_option_names": ["-h", "--help"]}


def examples_of(command: str) -> list[str]:
    """How a command, such as `tuner launch`, is typed."""
    return [line for line in EXAMPLES.splitlines() if f"{line} ".startswith(f"{command} ")]


class Command(TyperCommand):
    """A command whose help is a screen."""

    name_in_full: str = ""
    """`tuner study export`"""
    page: str = ""
    """Of the docs."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Prints all of the help where `--help-all` asks for it."""
        if ALL in args:
            print(self.whole_help(ctx))  # noqa: T201 - this is the command line
            ctx.exit()
        return super().parse_args(ctx, args)

    def whole_help(self, ctx: Any) -> str:
        """With the rare options."""
        ctx.meta[ALL] = True
        return str(self.get_help(ctx))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, options in their sections, and the way to those that are left out."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for section, each in self._in_order(ctx):
            if (record := each.get_help_record(ctx)) is None:
                continue
            if self._is_long(ctx) and each.name in RARE.split() and ALL not in ctx.meta:
                ctx.meta[LEFT_OUT] = ctx.meta.get(LEFT_OUT, 0) + 1
            else:
                name, said = record
                sections.setdefault(section, []).append((name, _RANGE.sub("", said)))
        for section, records in sections.items():
            with formatter.section(section):
                formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Examples, as they are typed, and the page."""
        with formatter.section("Examples"):
            for each in examples_of(self.name_in_full):
                formatter.write(f"{'':{formatter.current_indent}}{each}\n")
        if self.page:
            more = (
                f"; {left_out} more options: {ALL}" if (left_out := ctx.meta.get(LEFT_OUT)) else ""
            )
            formatter.write_paragraph()
            formatter.write_text(f"More: docs/{self.page}{more}")

    def _is_long(self, ctx: Any) -> bool:
        return len(self.get_params(ctx)) > LONG

    def _in_order(self, ctx: Any) -> Iterator[tuple[str, Any]]:
        """Each parameter with its section, section by section."""
        long = self._is_long(ctx)
        places: dict[str, str] = {}
        for section, names in SECTIONS.items():
            places |= dict.fromkeys(names.split(), section)
        found: dict[str, list[Any]] = {name: [] for name in ("Arguments", *SECTIONS, "More")}
        for each in self.get_params(ctx):
            if each.param_type_name == "argument":
                found["Arguments"].append(each)
            else:
                found[places.get(each.name, "More") if long else "More"].append(each)
        for section, those in found.items():
            if section in SECTIONS:
                those.sort(key=lambda each: SECTIONS[section].split().index(each.name))
            for each in those:
                yield section if long or section == "Arguments" else "Options", each
