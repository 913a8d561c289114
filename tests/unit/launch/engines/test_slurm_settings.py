from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import UsageError
from tuner.launch.engines.on_slurm import SlurmSettings, batch_script, limit_s
from tuner.launch.engines.placement import read_settings

KEYS = ("partition", "account", "qos", "reservation", "time", "gres", "constraint", "nodelist")


def read(text: str | None) -> SlurmSettings:
    return read_settings(SlurmSettings, text, table="slurm")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800),
        ("30:20", 1820),
        ("2:00:00", 7200),
        ("1-0", 86400),
        ("1-12:30", 131400),
        ("1-12:30:05", 131405),
    ],
)
def test_a_time_limit_is_read_as_slurm_reads_it(text: str, seconds: int) -> None:
    assert limit_s(text) == seconds


def test_what_is_said_is_what_slurm_is_told() -> None:
    said = read("partition=gpu,account=lab,time=2:00:00,gres=gpu:h100:1,cores=8,memory=64G")
    assert (said.partition, said.time, said.cores) == ("gpu", "2:00:00", 8)
    assert said.gres == "gpu:h100:1"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("time=now", "no time limit"),
        ("time=1:00", "leaves a worker nothing"),
        ("notice=5", "notice"),
        ("partition=--wrap", "partition"),
        ("partition=a b", "partition"),
        ("gres=gpu;id", "gres"),
        ("constraint=a\n#SBATCH --uid=0", "constraint"),
        ("setup=module load cuda", "setup"),
        ("cores=0", "cores"),
        ("nodes=3", "nodes"),
    ],
)
def test_what_slurm_could_misread_is_refused_in_one_line(text: str, what: str) -> None:
    with pytest.raises(UsageError, match=what) as refused:
        read(text)
    assert "\n" not in str(refused.value)


@given(
    key=st.sampled_from(KEYS),
    value=st.text(alphabet=st.sampled_from("a1-=,:.|&()[]*!'\"`$;#\\ \n\r\t\u2028\0"), min_size=1),
)
def test_no_value_adds_an_option_or_a_line(key: str, value: str) -> None:
    try:
        settings = SlurmSettings.model_validate({key: value})
    except ValueError:
        return
    text = script(settings)
    plain = script(SlurmSettings(gres="gpu:1"))
    more = 0 if key == "gres" else 1
    assert len(text.splitlines()) == len(plain.splitlines()) + more
    (line,) = (line for line in text.splitlines() if line.startswith(f"#SBATCH --{key}="))
    assert line == f"#SBATCH --{key}={value}"
    assert not set(value) & set(" \"'\\`$;#\n\t")


def script(settings: SlurmSettings, **changes: Any) -> str:
    told: dict[str, Any] = {"workers": 2, "on_cpu": False, "folder": Path("/work")}
    return batch_script(settings, ["python", "-m", "tuner"], **told | changes)


def test_lines_of_a_shell_come_from_a_file_only(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text('[slurm]\npartition = "gpu"\nsetup = ["module load cuda"]\n')
    text = script(read(str(file)))
    assert text.index("#SBATCH --partition=gpu") < text.index("\nmodule load cuda\n")
    assert text.index("\nmodule load cuda\n") < text.index("python -m tuner")
    file.write_text('[slurm]\nsetup = ["a\\nb"]\n')
    with pytest.raises(UsageError, match="control character"):
        read(str(file))
