"""A process that is stopped while it times something: its timing is not to be trusted."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from pathlib import Path

SCRIPT = """
    import sys, time
    from tuner.devices import CpuCores, Watch
    from tuner.devices.watch import stops

    stops().count()
    for _ in range(2):
        watch = Watch(CpuCores((0,)))
        print("timing", flush=True)
        sys.stdin.readline()
        print([watch.finish().contaminated, "stopped" in watch.finish().why], flush=True)
"""


def test_a_process_that_was_stopped_says_so_of_that_timing_alone(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SCRIPT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    said = []
    with process:
        for stopped in (True, False):
            assert process.stdout.readline() == "timing\n"
            if stopped:
                process.send_signal(19)
                time.sleep(0.1)
                process.send_signal(18)
            print("go on", file=process.stdin, flush=True)
            said.append(process.stdout.readline())
    assert said[0] == "[True, True]\n"
    assert said[1].endswith("False]\n")
