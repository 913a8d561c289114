"""Our backends, darts and neuralforecast on the same job, batch and device, interleaved in one run: `tuner bench`."""

from tuner.bench.figures import Row, summarise
from tuner.bench.plan import Plan, make_plan
from tuner.bench.report import Circumstances, as_documents, print_table, write_results
from tuner.bench.run import FreshProcessError, run_bench

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
