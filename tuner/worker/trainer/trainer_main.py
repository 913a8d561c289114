"""`python -m tuner.worker.trainer.trainer_main`: what `TrainerProcess` starts."""

import sys

from tuner.worker.trainer.serve import Load, main


def _trainings() -> Load:
    from tuner.worker.trainer.on_device import load_onto  # torch

    return load_onto


if __name__ == "__main__":
    main(sys.argv[1:], _trainings)
