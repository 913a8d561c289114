"""What glibc is told about freed memory, in a process of its own: it holds to its end."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
import torch
from tuner.training.engines.eager import give_back_freed_memory, keep_freed_memory

def faults_of_a_step():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    kept = [torch.ones(1_500_000 + 1000 * i) for i in range(12)]
    del kept
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    return int(open("/proc/self/statm").read().split()[1])

taken = keep_freed_memory()
for _ in range(3):
    faults_of_a_step()
again = min(faults_of_a_step() for _ in range(5))  # a busy kernel may take pages back at times
full = resident()
give_back_freed_memory()
print(int(taken), again, full - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator here is not glibc's")
def test_a_steps_memory_is_kept_for_the_next_and_given_back_at_the_end() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", SCRIPT], check=True, capture_output=True, text=True
    ).stdout
    taken, faults, given_back = map(int, answer.split())
    assert taken
    assert faults < 100  # of the 17,600 pages that a step uses
    assert given_back > 10_000
