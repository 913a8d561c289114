"""The files for who carries on agree with the rest: hooks, licence, image."""

from __future__ import annotations

import re
import tomllib

import yaml

from tests.support.paths import REPOSITORY


def read(name: str) -> str:
    return (REPOSITORY / name).read_text(encoding="utf-8")


def test_the_hooks_before_a_commit_run_all_that_make_check_runs() -> None:
    (local,) = yaml.safe_load(read(".pre-commit-config.yaml"))["repos"]
    hooks = {
        " ".join(hook["entry"].replace(".venv/bin/", "").split()[:2]) for hook in local["hooks"]
    }
    recipe = re.search(r"^check:.*\n((?:\t.*\n)+)", read("Makefile"), flags=re.MULTILINE)
    assert recipe is not None
    for line in recipe[1].splitlines():
        command = line.strip().replace("$(BIN)/", "").split()
        assert any(hook.split()[0] == command[0] for hook in hooks), line
    assert {"ruff format", "ruff check", "python docs/reference.py"} <= hooks


def test_a_hook_s_pattern_takes_the_files_that_the_reference_is_made_of() -> None:
    (local,) = yaml.safe_load(read(".pre-commit-config.yaml"))["repos"]
    (pattern,) = (hook["files"] for hook in local["hooks"] if hook["id"] == "reference")
    for name in ("tuner/cli/app.py", "docs/cli.md", "docs/demo.txt", "README.md"):
        assert re.match(pattern, name)


def test_the_licence_is_the_one_that_the_package_names() -> None:
    project = tomllib.loads(read("pyproject.toml"))["project"]
    assert project["license"] == "MIT"
    assert project["license-files"] == ["LICENSE"]
    assert f"Copyright (c) 2026 {project['authors'][0]['name']}" in read("LICENSE")


def test_the_image_is_built_with_the_licence() -> None:
    assert "LICENSE" in read("Dockerfile")
    assert "!LICENSE" in read(".dockerignore").splitlines()
