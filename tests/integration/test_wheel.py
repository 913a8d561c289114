"""The wheel carries everything: study files travel inside, and the command works from any folder."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from the repository, unpacked as pip would."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(REPOSITORY)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_the_study_files_travel_in_the_wheel(unpacked: Path) -> None:
    shipped = {path.name: path.read_text() for path in (unpacked / "tuner" / "studies").glob("*.toml")}
    assert shipped == {path.name: path.read_text() for path in (REPOSITORY / "studies").glob("*.toml")}
    assert (unpacked / "tuner" / "py.typed").is_file()


def test_the_scripts_that_upgrade_a_database_travel_in_the_wheel(unpacked: Path) -> None:
    scripts = "tuner/storage/migrations/versions"
    shipped = {path.name for path in (unpacked / scripts).glob("*.py")}
    assert shipped == {path.name for path in (REPOSITORY / scripts).glob("*.py")}
    assert "version_2.py" in shipped


def test_the_installed_command_knows_its_variants_in_any_folder(unpacked: Path, tmp_path: Path) -> None:
    # -I would hide the unpacked wheel too; PYTHONSAFEPATH keeps the current folder out of the way.
    result = subprocess.run(
        [sys.executable, "-m", "tuner", "variants", "--json"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(unpacked), "PYTHONSAFEPATH": "1", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert '"rmsnorm"' in result.stdout
