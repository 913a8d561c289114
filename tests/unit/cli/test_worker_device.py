"""`tuner worker --gpu`: which GPU it takes and sees, and that a fresh trainer has it, too. The GPUs
are made up."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tuner.cli.main import main
from tuner.devices import CpuCores, Gpu
from tuner.devices.gpu import _visible
from tuner.devices.lock import assign_beside
from tuner.worker.process import ContextLostError

UUIDS = ["GPU-a", "GPU-b"]


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Gpu]:
    """Two GPUs, of which a process sees what its environment says; nothing is worked on."""

    def listed(environment: dict[str, str]) -> tuple[Gpu, ...]:
        visible = _visible(UUIDS, environment.get("CUDA_VISIBLE_DEVICES"))
        return tuple(
            Gpu(index, UUIDS[number], "Example", number) for index, number in enumerate(visible)
        )

    monkeypatch.setenv("TUNER_LOCK_DIR", str(tmp_path / "locks"))
    monkeypatch.setattr("tuner.devices.list_gpus", listed)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    return list(listed({}))


def taken(monkeypatch: pytest.MonkeyPatch, *words: str, lost: int = 0) -> list[Gpu | CpuCores]:
    """The device that the command works on, each time; it is lost so often."""
    devices: list[Gpu | CpuCores] = []

    def work(order: object, device: Gpu | CpuCores, *_: object, **__: object) -> int:
        devices.append(device)
        if len(devices) <= lost:
            raise ContextLostError("CUDA error: out of luck")
        return 0

    monkeypatch.setattr("tuner.worker.session.work", work)
    with pytest.raises(SystemExit) as ended:
        main(["worker", "--study", "mine", *words])
    assert ended.value.code in (0, None)
    return devices


def test_several_for_one_trial_are_seen_and_have_a_worker_all(
    monkeypatch: pytest.MonkeyPatch, gpus: list[Gpu], capsys: pytest.CaptureFixture[str]
) -> None:
    assert taken(monkeypatch, "--gpu", "0,1") == [Gpu.together(gpus)]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    with pytest.raises(SystemExit):
        main(["worker", "--study", "mine", "--gpu", "free"])
    assert "each of the 2 GPUs here has a worker" in capsys.readouterr().err


def test_free_passes_over_gpus_that_have_a_worker(
    monkeypatch: pytest.MonkeyPatch, gpus: list[Gpu]
) -> None:
    other = assign_beside(gpus[0])
    assert taken(monkeypatch, "--gpu", "free") == [gpus[1]]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-b"
    other.leave()


def test_a_gpu_that_is_named_is_taken_whoever_has_it(
    monkeypatch: pytest.MonkeyPatch, gpus: list[Gpu]
) -> None:
    other = assign_beside(gpus[0])
    assert taken(monkeypatch, "--gpu", "0") == [gpus[0]]
    other.leave()


@pytest.mark.parametrize("wanted", ["free", "1"])
def test_a_fresh_trainer_goes_on_with_the_same_gpu(
    monkeypatch: pytest.MonkeyPatch, gpus: list[Gpu], wanted: str
) -> None:
    other = assign_beside(gpus[0])
    assert taken(monkeypatch, "--gpu", wanted, lost=1) == [gpus[1]] * 2
    other.leave()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--gpu", "frei"), "--gpu: 'frei' is neither the index of a GPU nor 'free'"),
        (("--gpu", "-1"), "--gpu: '-1' is neither the index of a GPU nor 'free'"),
        (("--gpu", "7"), "--gpu: there is no GPU 7: there are 0, 1"),
        (("--gpu", "free", "--cpu"), "either --gpu INDEX (or --gpu free) or --cpu"),
    ],
)
def test_what_names_no_gpu_is_one_line(
    gpus: list[Gpu], capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["worker", "--study", "mine", *words])
    err = capsys.readouterr().err
    assert ended.value.code == 2
    assert said in err
    assert err.count("\n") == 1


def test_a_machine_without_gpus_and_one_without_a_free_one_say_so(
    gpus: list[Gpu], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assignments = [assign_beside(gpu) for gpu in gpus]
    for visible, code, said in (
        ("0,1", 1, "each of the 2 GPUs here has a worker"),
        ("", 2, "no GPU is visible here"),
    ):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        with pytest.raises(SystemExit) as ended:
            main(["worker", "--study", "mine", "--gpu", "free"])
        assert ended.value.code == code
        assert said in capsys.readouterr().err
    for assignment in assignments:
        assignment.leave()
