"""What was compiled ahead, by a process that sees no GPU, is what a training on one finds."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.collected_kernels import TASK, search, trained
from tuner.config import Backend
from tuner.data.prepare import prepare
from tuner.data.windows import to_device
from tuner.files.child import last_line
from tuner.launch.background import CompilingProcess
from tuner.trial.ahead.compile_order import Order, read_stamp, stamp_path

triton = pytest.importorskip("triton", reason="Triton is not installed")

from tuner.training.engines.fused_engine import TritonEngine  # noqa: E402 - needs it


@pytest.mark.slow
def test_a_training_compiles_nothing_that_was_compiled_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    capability = torch.cuda.get_device_capability()
    meant = search(backend=Backend.TRITON)
    order = Order(
        capability=capability,
        searches=[meant],
        data_dir=None,
        jobs=len(os.sched_getaffinity(0)),
    )
    process = CompilingProcess.start(order, os.environ, tmp_path / "kernels.log")
    while (code := process.look()) is None:
        time.sleep(0.1)
    process.child.end()
    assert code == 0, last_line(process.log)
    ready = read_stamp(stamp_path(tmp_path, meant, capability))
    assert ready is not None
    assert len(ready.kernels) == process.progress.compiled
    met: dict[str, bool] = {}

    def note(*, src: Any, cache_hit: bool, **_: Any) -> None:
        met[src.name] = cache_hit and met.get(src.name, True)

    monkeypatch.setattr(triton.knobs.compilation, "listener", note)
    config, model = trained()
    engine = TritonEngine(config, to_device(prepare(TASK), "cuda"), model.to("cuda"))
    engine.warm_up()
    engine.close()
    assert {"enter_forward", "head_train", "block_backward", "sum_products"} <= met.keys()
    assert [name for name, found in met.items() if not found] == []
