"""How a recommendation is confirmed: on how many seeds, and how surely.

A policy that the search looks ahead to, and that the verdict keeps.
"""

from __future__ import annotations

CONFIRMATION_SEEDS = 90
"""Of a confirmation, unless somebody says otherwise: what is recommended has to pass it. Fewer
confirm so much less that a search of the same total cost ends slower (docs/decisions/0026)."""
STEPS = 3
"""How many configurations of a search are tested one after the other, at most."""
LEVEL = 0.04
"""Of the test. "No worse" is said in at most 5 % of cases where it is worse by the margin, or more:
a tail of bad seeds leaves this much to spare. Of bad seeds that are rare and very bad it does not
hold: they do not occur (benchmarks/verdict)."""
LEAST_RUNS = 5
"""Of its own, without which nothing is recommended where a verification has run, or where a search
runs configurations again: a surface may be rougher than the model believes. A confirmation may test
what has run less often."""
