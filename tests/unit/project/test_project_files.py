"""The files for who carries on agree with the rest: hooks, licence, image."""

from __future__ import annotations

import re
import subprocess
import sys
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


def test_make_alone_says_what_each_target_does() -> None:
    done = subprocess.run(
        ["make", "--no-print-directory"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    told = dict(re.findall(r"^make ([a-z-]+): (.+)$", done.stdout, flags=re.MULTILINE))
    (targets,) = re.findall(r"^\.PHONY: (.*)$", read("Makefile"), flags=re.MULTILINE)
    assert sorted(told) == sorted(targets.split())
    assert len(done.stdout.splitlines()) == len(told)


def test_a_public_host_runs_the_demo_and_the_tests_on_a_fresh_checkout() -> None:
    path = REPOSITORY / ".github" / "workflows" / "test.yml"
    schema = ["check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(path)]
    checked = subprocess.run(
        [sys.executable, "-m", *schema], capture_output=True, text=True, check=False, timeout=240
    )
    assert checked.returncode == 0, checked.stdout
    job = yaml.safe_load(read(".github/workflows/test.yml"))["jobs"]["test"]
    assert [step["run"] for step in job["steps"] if "run" in step][-2:] == ["make demo", ".ci/run"]
    assert read(".ci/run").splitlines()[-1] == "make test"
    wanted = tomllib.loads(read("pyproject.toml"))["project"]["requires-python"]
    assert job["strategy"]["matrix"]["python"][0] == wanted.removeprefix(">=")


def test_the_licence_is_the_one_that_the_package_names() -> None:
    project = tomllib.loads(read("pyproject.toml"))["project"]
    assert project["license"] == "MIT"
    assert project["license-files"] == ["LICENSE"]
    assert f"Copyright (c) 2026 {project['authors'][0]['name']}" in read("LICENSE")


def test_the_image_is_built_with_the_licence() -> None:
    assert "LICENSE" in read("Dockerfile")
    assert "!LICENSE" in read(".dockerignore").splitlines()


def test_pages_that_the_code_names_are_there() -> None:
    numbered = {path.name[:4] for path in (REPOSITORY / "docs" / "decisions").glob("*.md")}
    named = 0
    for path in [*(REPOSITORY / "tuner").rglob("*.py"), *(REPOSITORY / "studies").rglob("*.toml")]:
        text = path.read_text(encoding="utf-8")
        for page in re.findall(r"\bdocs/[\w/-]+\.md\b", text):
            named += 1
            assert (REPOSITORY / page).exists(), f"{path.name} names {page}"
        for number in re.findall(r"\bdocs/decisions/(\d+)\b", text):
            named += 1
            assert number in numbered, f"{path.name} names decision {number}"
    assert named > 20


def test_the_decisions_are_fifteen_of_half_a_page_each() -> None:
    pages = sorted((REPOSITORY / "docs" / "decisions").glob("*.md"))
    assert [path.name[:4] for path in pages] == [f"{number:04d}" for number in range(1, 16)]
    for path in pages:
        text = path.read_text(encoding="utf-8")
        assert text.startswith(f"# {int(path.name[:4])}. "), path.name
        assert len(text.split()) <= 250, path.name


def test_the_map_and_the_guide_name_files_that_are_there() -> None:
    here = {path.name for path in (REPOSITORY / "tests").rglob("*.py")}
    for page in ("docs/how-it-works.md", "CONTRIBUTING.md"):
        for name in re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.py)`", read(page)):
            there = (REPOSITORY / "tuner" / name, REPOSITORY / name)
            assert any(path.exists() for path in there) or name in here, f"{page}: {name}"
