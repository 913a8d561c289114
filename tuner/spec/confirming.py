"""How a recommendation is confirmed: on how many seeds, and how surely.

A policy that the search looks ahead to, and that the verdict keeps.
"""

from __future__ import annotations

CONFIRMATION_SEEDS = 30
"""Of a confirmation, unless somebody says otherwise: what is recommended has to pass it."""
LEVEL = 0.04
"""Of the test. "No worse" is said in at most 5 % of cases where it is worse by the margin, or more:
a tail of bad seeds leaves this much to spare (benchmarks/verdict)."""
