"""The sizes of a small search, measured once for all of these tests."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator

import pytest

from tests.support import forked_cli
from tests.support.small_estimates import SIZES, Small
from tests.support.small_study import TASK_TOML
from tuner.data.prepare import prepare
from tuner.data.task import load_task
from tuner.devices import CpuCores
from tuner.estimate.cost_model import SizeCosts
from tuner.estimate.measuring_process import MeasuringProcess, Subject, measured_costs
from tuner.launch.plan import definition_of
from tuner.spec.policy import StudySettings
from tuner.spec.study_file import load_study_file


@pytest.fixture(scope="package")
def small(tmp_path_factory: pytest.TempPathFactory) -> Small:
    folder = tmp_path_factory.mktemp("estimate")
    (folder / "s.toml").write_text(SIZES)
    (folder / "t.toml").write_text(TASK_TOML)
    task = load_task(str(folder / "t.toml"))
    file = load_study_file(str(folder / "s.toml"))
    digest = prepare(task, data_dir=None).data_hash
    return Small(definition_of(file, task, digest, StudySettings()), task, folder)


@pytest.fixture(scope="package")
def process(small: Small) -> Iterator[MeasuringProcess]:
    device = CpuCores((min(os.sched_getaffinity(0)),))
    subject = Subject(definition=small.definition, task=small.task, data_dir=None, device=device)
    with contextlib.ExitStack() as until_all_have_run:
        with pytest.MonkeyPatch.context() as patch:  # no longer: other packages may come meanwhile
            patch.setattr(subprocess, "Popen", forked_cli.popen())
            found = until_all_have_run.enter_context(MeasuringProcess(subject))
        yield found


@pytest.fixture(scope="package")
def costs(process: MeasuringProcess) -> SizeCosts:
    return measured_costs(process, seconds=20.0)
