"""`tuner`, but in a bench rmsnorm loses the device's context. With a line in the file `processes`
for each process."""

from __future__ import annotations

import sys
from pathlib import Path

from tuner.bench.contender import Round
from tuner.bench.entrants import Ours
from tuner.cli import main

run = Ours.run


def losing(self: Ours, epochs: int) -> Round:
    if self.entry.variant == "rmsnorm":
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    return run(self, epochs)


if __name__ == "__main__":
    with Path("processes").open("a") as processes:
        print(*sys.argv[1:], file=processes)
    Ours.run = losing  # type: ignore[method-assign]
    sys.executable = str(
        Path("python-of-tests").absolute()
    )  # which runs this file, whatever module it is told to
    main()
