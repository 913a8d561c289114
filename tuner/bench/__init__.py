"""`tuner bench`: our backends, darts and neuralforecast on the same job, interleaved in one run."""

from tuner.bench.entrants import Plan, make_plan
from tuner.bench.report import (
    Circumstances,
    Row,
    as_documents,
    print_table,
    summarise,
    write_results,
)
from tuner.bench.rounds import FreshProcessError, run_bench

__all__ = [
    "Circumstances",
    "FreshProcessError",
    "Plan",
    "Row",
    "as_documents",
    "make_plan",
    "print_table",
    "run_bench",
    "summarise",
    "write_results",
]
