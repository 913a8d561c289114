"""Wheel and source archive carry what they must: study files, licence; the command works from any
folder."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with both archives as a release has them: the wheel is built from the source
    archive."""
    folder = tmp_path_factory.mktemp("dist")
    command = [
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--outdir",
        str(folder),
        str(REPOSITORY),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def unpacked(built: Path) -> Path:
    """The wheel, unpacked as pip would."""
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(built / "site")
    return built / "site"


def test_the_licence_travels_in_both_archives(built: Path, unpacked: Path) -> None:
    text = (REPOSITORY / "LICENSE").read_text()
    assert text.startswith("MIT License\n")
    (information,) = unpacked.glob("tuner-*.dist-info")
    assert (information / "licenses" / "LICENSE").read_text() == text
    assert "License-Expression: MIT\n" in (information / "METADATA").read_text()
    (source,) = built.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "LICENSE",
        "README.md",
        "CHANGELOG.md",
        "pyproject.toml",
        "studies/original.toml",
    } <= names


def test_the_package_names_its_urls(unpacked: Path) -> None:
    urls = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["urls"]
    (information,) = unpacked.glob("tuner-*.dist-info")
    metadata = (information / "METADATA").read_text()
    for name, url in urls.items():
        assert url.startswith("https://")
        assert f"Project-URL: {name}, {url}\n" in metadata


def test_the_study_files_travel_in_the_wheel(unpacked: Path) -> None:
    shipped = {
        path.name: path.read_text() for path in (unpacked / "tuner" / "studies").glob("*.toml")
    }
    assert shipped == {
        path.name: path.read_text() for path in (REPOSITORY / "studies").glob("*.toml")
    }
    assert (unpacked / "tuner" / "py.typed").is_file()
    assert (unpacked / "tuner/kubernetes/workers.yaml").is_file()


def test_the_installed_command_knows_its_variants_in_any_folder(
    unpacked: Path, tmp_path: Path
) -> None:
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
