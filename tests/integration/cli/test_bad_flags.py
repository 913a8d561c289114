"""Flags and names that people get wrong: one clear line with the remedy, exit code 2, no traceback,
nothing written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.forked_cli import run
from tests.support.refusals import refused

CORES = len(os.sched_getaffinity(0))
DEMO = ("launch", "--task", "demo", "--cpu")
LAUNCH = (*DEMO, "--variant", "rmsnorm")
ON_GPUS = ("launch", "--task", "demo", "--variant", "rmsnorm")

FLAGS: dict[str, tuple[Sequence[str], tuple[str, ...]]] = {
    "unknown variant": (
        (*DEMO, "--variant", "rmsnrm"),
        ("'rmsnrm'", "did you mean 'rmsnorm'", "layernorm", ".toml"),
    ),
    "no variant": (DEMO, ("--variant", "tuner launch --help")),
    "empty list of variants": (
        (*DEMO, "--variant", ""),
        ("--variant", "empty", "rmsnorm,original"),
    ),
    "an empty name among variants": (
        (*DEMO, "--variant", "rmsnorm,,simple"),
        ("'rmsnorm,,simple'", "empty name", "rmsnorm,original"),
    ),
    "variant named twice": (
        (*DEMO, "--variant", "rmsnorm,rmsnorm"),
        ("'rmsnorm' is named twice", "once"),
    ),
    "one study name for two variants": (
        (*DEMO, "--variant", "rmsnorm,original", "--study", "mine"),
        ("--study mine", "names 2", "one by one"),
    ),
    "a study name that is a list": ((*LAUNCH, "--study", "a,b"), ("--study", "'a,b'", "no comma")),
    "an empty study name": ((*LAUNCH, "--study", ""), ("--study", "''", "expected")),
    "unknown task": (
        ("launch", "--cpu", "--variant", "rmsnorm", "--task", "dmo"),
        ("'dmo'", "did you mean 'demo'", "etth", ".toml"),
    ),
    "a GPU that is not there": ((*ON_GPUS, "--gpus", "99"), ("--gpus", "no GPU 99", "--cpu")),
    "empty list of GPUs": ((*ON_GPUS, "--gpus", ""), ("--gpus", "empty", "0,1 or 'all'")),
    "a list of no GPUs": ((*ON_GPUS, "--gpus", ","), ("--gpus", "empty", "0,1 or 'all'")),
    "a GPU by name": ((*ON_GPUS, "--gpus", "big"), ("--gpus", "'big'", "0,1 or 'all'")),
    "CPU and GPUs": ((*LAUNCH, "--gpus", "0"), ("--cpu and --gpus", "choose one")),
    "workers and GPUs": (
        (*ON_GPUS, "--workers", "2", "--gpus", "0"),
        ("--workers", "--cpu", "--gpus"),
    ),
    "more workers than cores": (
        (*LAUNCH, "--workers", str(CORES + 1)),
        (f"--workers {CORES + 1}", f"{CORES} usable core", f"at most {CORES}"),
    ),
    "a target without its objective": (
        (*LAUNCH, "--target-val-loss", "0.2"),
        ("--time-objective", "both or none"),
    ),
    "a limit that nothing keeps": ((*LAUNCH, "--max-mql", "0"), ("--max-mql", "above 0", "'none'")),
    "a limit that is no number": (
        (*LAUNCH, "--max-time", "soon"),
        ("--max-time", "'soon'", "above 0", "'none'"),
    ),
    "a limit that is no limit": (
        (*LAUNCH, "--max-time", "inf"),
        ("--max-time", "'inf'", "above 0", "'none'"),
    ),
    "more trials than anybody means": (
        (*LAUNCH, "--trials", "9" * 40),
        ("--trials", "less than", "1000000"),
    ),
    "more memory than there is": (
        (*LAUNCH, "--max-memory", "9" * 400 + "GB"),
        ("--max-memory", "8GB"),
    ),
    "a time without end": ((*LAUNCH, "--hang-limit", "9" * 400 + "h"), ("--hang-limit", "1h30m")),
    "a seed of many digits": (
        (*LAUNCH, "--sampler-seed", "9" * 5000),
        ("--sampler-seed", "whole number"),
    ),
    "a bound that is no number": (
        ("best", "--variant", "rmsnorm", "--max-time", "nan"),
        ("--max-time", "nan"),
    ),
    "an SQLite file with options": (
        ("status", "--storage", "sqlite:///x.db?mode=ro"),
        ("--storage", "mode"),
    ),
    "a database's name that is no text": (
        ("status", "--storage", "sqlite:///\udce4.db"),
        ("--storage", "no text"),
    ),
    "TF32 measured on a CPU": (
        ("bench", "--task", "demo", "--cpu", "--precision", "tf32"),
        ("--precision tf32", "fp32 or bf16"),
    ),
    "a seed that is none": (
        (*LAUNCH, "--sampler-seed", "-1"),
        ("--sampler-seed", "'-1'", "whole number", "'none'"),
    ),
    "TF32 on a CPU": ((*LAUNCH, "--precision", "tf32"), ("--precision tf32", "fp32 or bf16")),
    "a GPU's backend on a CPU": (
        (*LAUNCH, "--backend", "triton"),
        ("--backend triton", "auto or eager"),
    ),
    "a file that is no study": (
        ("study", "import", "none.json.gz"),
        ("none.json.gz", "tuner study export"),
    ),
    "no trials": ((*LAUNCH, "--trials", "0"), ("--trials", "0", "1", "tuner launch --help")),
    "trials that are no number": ((*LAUNCH, "--trials", "abc"), ("--trials", "'abc'", "integer")),
    "no epochs": ((*LAUNCH, "--max-epochs", "0"), ("--max-epochs", "0", "1")),
    "unknown flag": ((*LAUNCH, "--trails", "3"), ("--trails", "--trials", "tuner launch --help")),
    "unknown command": (("lanch", "--variant", "rmsnorm"), ("'lanch'", "'launch'", "tuner --help")),
    "unknown sampler": ((*LAUNCH, "--sampler", "tpee"), ("'tpee'", "did you mean 'tpe'", "nsga2")),
    "unknown backend": (
        (*LAUNCH, "--backend", "cuda"),
        ("--backend", "'cuda'", "'auto'", "'eager'"),
    ),
    "no duration": ((*LAUNCH, "--timeout", "soon"), ("--timeout", "'soon'", "1h30m")),
    "no time at all": ((*LAUNCH, "--timeout", "0s"), ("--timeout", "'0s'", "1h30m")),
    "not a database URL": (
        (*LAUNCH, "--storage", "trials.db"),
        ("--storage", "'trials.db'", "sqlite:///FILE", "postgresql://"),
    ),
    "an empty database URL": ((*LAUNCH, "--storage", ""), ("--storage", "''", "sqlite:///FILE")),
    "unsupported database": (
        (*LAUNCH, "--storage", "oracle://ann@host/x"),
        ("--storage", "'oracle'", "sqlite:///FILE", "postgresql://"),
    ),
    "SQLite without a file": (
        (*LAUNCH, "--storage", "sqlite://"),
        ("--storage", "sqlite:///storage/tuner.db"),
    ),
    "a worker on nothing": (("worker", "--study", "mine"), ("--gpu INDEX", "--cpu")),
    "a worker on both": (
        ("worker", "--study", "mine", "--gpu", "0", "--cpu"),
        ("--gpu INDEX", "--cpu"),
    ),
    "a worker on a GPU that is not there": (
        ("worker", "--study", "mine", "--gpu", "99"),
        ("--gpu:", "no GPU 99"),
    ),
    "a worker on a core that is not there": (
        ("worker", "--study", "mine", "--cpu", "--cores", "9999"),
        ("--cores", "9999", "there are"),
    ),
    "a worker on cores that are no numbers": (
        ("worker", "--study", "mine", "--cpu", "--cores", "a"),
        ("--cores", "'a'", "0,1"),
    ),
    "unknown variant to choose from": (
        ("best", "--variant", "rmsnrm"),
        ("'rmsnrm'", "did you mean 'rmsnorm'"),
    ),
    "unknown pick": (
        ("best", "--variant", "rmsnorm", "--pick", "best"),
        ("--pick", "'best'", "'knee'"),
    ),
    "unknown kind of values": (
        ("best", "--variant", "rmsnorm", "--pick", "knee", "--values", "many"),
        ("--values", "'many'", "'expected'"),
    ),
    "a margin that is no share": (
        ("best", "--variant", "rmsnorm", "--margin", "much"),
        ("--margin", "'much'", "1% or 0.01"),
    ),
    "a margin of half the MQL": (
        ("train", "--variant", "rmsnorm", "--margin", "50%", "--output", "m.safetensors"),
        ("--margin", "below 10%", "0.5"),
    ),
    "a launch with a margin of a whole MQL": (
        (*LAUNCH, "--margin", "1"),
        ("--margin", "below 10%"),
    ),
    "a margin of a point of the front": (
        ("best", "--variant", "rmsnorm", "--pick", "knee", "--margin", "1%"),
        ("--margin", "--pick same-quality", "--pick knee"),
    ),
    "a point of the front against another study": (
        ("best", "--variant", "rmsnorm", "--pick", "mql", "--against", "original"),
        ("--against", "--pick same-quality", "--pick mql"),
    ),
    "the same quality by single runs": (
        ("best", "--variant", "rmsnorm", "--values", "single"),
        ("--pick same-quality", "model of all runs", "--values single"),
    ),
    "unknown format": (
        ("best", "--variant", "rmsnorm", "--format", "yaml"),
        ("--format", "'yaml'", "'toml'"),
    ),
    "an estimate by a sampler that there is not": (
        ("estimate", "--variant", "simple", "--task", "demo", "--cpu", "--sampler", "nope"),
        ("unknown sampler 'nope'", "'tpe'"),
    ),
    "a budget of a ladder's trainings without any": (
        ("bench", "--cpu", "--ladder", "--train-budget", "10"),
        ("--train-budget is of trainings", "--train SEEDS"),
    ),
    "unknown data": (("data", "fetch", "weather"), ("'weather'", "etth")),
}


@pytest.mark.parametrize("mistake", FLAGS)
def test_a_wrong_flag_or_name_is_one_line(mistake: str, tmp_path: Path) -> None:
    arguments, says = FLAGS[mistake]
    refused(*arguments, folder=tmp_path, code=2, says=says)


def test_no_command_at_all_shows_the_help(tmp_path: Path) -> None:
    done = run(folder=tmp_path)
    assert done.code == 2
    assert done.out == ""
    assert "Usage: tuner" in done.err
    assert "launch" in done.err
    assert "error" not in done.err
