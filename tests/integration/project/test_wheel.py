"""Wheel and source archive carry what they must: study files, licence; installed where nothing else
is, the wheel runs the demo."""

from __future__ import annotations

import json
import site
import subprocess
import sys
import tarfile
import tomllib
import venv
from pathlib import Path

import pytest

from tests.support.forked_cli import given
from tests.support.paths import REPOSITORY
from tests.support.small_study import TASK_TOML


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
def fresh(built: Path) -> Path:
    """An environment with the wheel alone; what the wheel needs stands in ours, behind it."""
    (wheel,) = built.glob("*.whl")
    folder = built / "fresh"
    venv.create(folder)
    pip = [sys.executable, "-m", "pip", "--python", f"{folder}/bin/python", "install", "--quiet"]
    subprocess.run([*pip, "--no-index", "--no-deps", "--no-compile", str(wheel)], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    (packages / "behind.pth").write_text("\n".join(site.getsitepackages()), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def unpacked(fresh: Path) -> Path:
    """Its packages."""
    (package,) = fresh.glob("lib/python3*/site-packages/tuner")
    return package.parent


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


def test_every_file_of_the_package_travels_in_the_wheel(unpacked: Path) -> None:
    for ours, theirs, names in (
        ("tuner", "tuner", "**/*"),
        ("studies", "tuner/studies", "*.toml"),
        ("storage/kubernetes", "tuner/kubernetes", "*.yaml"),
    ):
        files = [path for path in (REPOSITORY / ours).glob(names) if path.is_file()]
        kept = [path for path in files if path.suffix != ".pyc"]
        assert kept, names
        for path in kept:
            there = unpacked / theirs / path.relative_to(REPOSITORY / ours)
            assert there.read_bytes() == path.read_bytes()


def test_installed_where_nothing_else_is_it_runs_the_demo(fresh: Path, tmp_path: Path) -> None:
    def run(*command: str) -> str:
        environment = given({"PYTHONPATH": None, "CUDA_VISIBLE_DEVICES": ""})
        done = subprocess.run(
            [f"{fresh}/bin/{command[0]}", *command[1:]],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert Path(run("python", "-c", "import tuner; print(tuner.__file__)")).is_relative_to(fresh)
    (tmp_path / "short.toml").write_text(TASK_TOML, encoding="utf-8")  # of the demo's data
    small = ["--task", "short.toml", "--trials", "1", "--max-epochs", "1"]
    said = run("tuner", "launch", "--variant", "rmsnorm", *small, "--cpu", "--workers=1", "--json")
    (study,) = json.loads(said)["studies"]
    assert (study["name"], study["trials"]["complete"]) == ("tiny-rmsnorm", 1)
