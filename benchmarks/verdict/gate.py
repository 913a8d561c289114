"""How often does the gate block a model that is as good, and how often does it find one that is not?

    python benchmarks/verdict/gate.py --page benchmarks/verdict/gate.md

Pairs of models whose defaults' MQLs have the noise over seeds that retunes recorded (`noise_of_mql` in truths.py, on its
jobs in turn), and whose logarithms of time a standard deviation of 0.12 to 0.2, drawn for each pair of models. What is
planted is 3 % of MQL or a factor of 1.3 of time; the last cases are worse by exactly the margin, or have tails. Each pair
goes the way of what is shipped (`tuner.verdict.gate.judge`), look after look. Writes the page.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))
import numpy as np

from benchmarks.shared.circumstances import circumstances
from benchmarks.verdict.truths import RETUNED, TRUTHS, noise_of_mql, truth
from tuner.verdict.gate import LOOKS, MOST_PAIRS, Answer, judge
from tuner.verdict.verified import Sample

LOG_TIME = (0.12, 0.2)
FAILED = 0.1
HEAD = "| case | worse | undecided | as good | trainings, mean |\n|---|---|---|---|---|"


@dataclass(frozen=True, slots=True)
class Case:
    """Of what the changed model is, as factors of the other's."""

    name: str
    mql: float = 1.0
    time: float = 1.0
    only_mql: bool = False
    tails: bool = False
    """Noise of t, 3 df, and a tenth of all trainings fails."""


CASES = (
    Case("equal"),
    Case("equal, `--only mql`", only_mql=True),
    Case("MQL + 3 %", mql=1.03),
    Case("time 1.3 times", time=1.3),
    Case("MQL + 1 %, the margin", mql=1.01),
    Case("time 1.1 times, the margin", time=1.1),
    Case("both margins", mql=1.01, time=1.1),
    Case("equal, tails, 10 % fail", tails=True),
)


def sample(
    case: Case, job: str, sd: float, mql: float, time: float, random: np.random.Generator
) -> Sample:
    """Trainings of one model on all seeds."""
    on = truth(job)
    default = on.where(on.default)
    epochs = np.full(MOST_PAIRS, math.exp(float(on.log_epochs(default)[0])))
    noise = noise_of_mql(epochs, random, on.noise)
    off = sd * random.standard_normal(MOST_PAIRS)
    there = np.ones(MOST_PAIRS, dtype=bool)
    if case.tails:
        noise = noise.std() * random.standard_t(3, MOST_PAIRS) / math.sqrt(3)
        off = sd * random.standard_t(3, MOST_PAIRS) / math.sqrt(3)
        there = random.random(MOST_PAIRS) >= FAILED
    mqls, seconds = mql * (float(on.mql(default)[0]) + noise), time * np.exp(off)
    seeds = np.flatnonzero(there).tolist()
    return Sample(
        seconds={seed: float(seconds[seed]) for seed in seeds},
        mql={seed: float(mqls[seed]) for seed in seeds},
        runs=MOST_PAIRS,
        misses=MOST_PAIRS - len(seeds),
    )


def answers(case: Case, pairs: int) -> Iterator[tuple[Answer, int]]:
    """Of so many pairs of models: the answer, and after how many pairs of trainings."""
    jobs = [made.name for made in (*TRUTHS, *RETUNED) if made.report]
    for number in range(pairs):
        random = np.random.default_rng([number, CASES.index(case)])
        job, sd = jobs[number % len(jobs)], float(random.uniform(*LOG_TIME))
        new = sample(case, job, sd, case.mql, case.time, random)
        old = sample(case, job, sd, 1.0, 1.0, random)
        found = judge(new, old, range(MOST_PAIRS), most=MOST_PAIRS, only_mql=case.only_mql)
        assert found is not None, "all looks are there"
        yield found.answer, found.pairs


def exact(count: int, of: int) -> str:
    """A share with its exact interval of 95 %."""
    from scipy.stats import binomtest

    ends = binomtest(count, of).proportion_ci(method="exact")
    return f"{count / of:.1%} [{ends.low:.1%}, {ends.high:.1%}]"


def line(case: Case, found: list[tuple[Answer, int]]) -> str:
    said = [answer for answer, _ in found]
    shares = [exact(said.count(Answer.WORSE), len(said))]
    shares += [f"{said.count(each) / len(said):.1%}" for each in (Answer.UNDECIDED, Answer.GOOD)]
    return f"| {case.name} | {' | '.join(shares)} | {2 * np.mean([n for _, n in found]):.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=400, help="of models, for each case")
    parser.add_argument("--page", type=Path, required=True)
    options = parser.parse_args()
    found = {case.name: list(answers(case, options.pairs)) for case in CASES}
    rows = [line(case, found[case.name]) for case in CASES]
    print("\n".join(rows))

    def share(name: str, answer: Answer) -> str:
        return f"{np.mean([each is answer for each, _ in found[name]]):.1%}"

    where = circumstances("simulated")
    text = [
        "# Does the gate block what is as good, and find what is not?",
        "",
        (
            f"**It blocks {share('equal', Answer.WORSE)} of equal models, and finds {share('MQL + 3 %', Answer.WORSE)} of "
            f"those with MQL + 3 % and {share('time 1.3 times', Answer.WORSE)} of those with 1.3 times the time.**"
        ),
        "",
        "```",
        where["command"],
        "```",
        "",
        (
            f"{options.pairs} pairs of models a case, with recorded noise: of MQL 0.7 %, of log time 0.12 to 0.2. "
            f"`tuner gate` looks after {', '.join(map(str, LOOKS))} pairs of trainings. Simulated {where['date'][:10]} "
            f"(tuner {where['versions']['tuner']}, numpy {where['versions']['numpy']}, revision "
            f"{str(where['git_revision'])[:8]}), with exact intervals of 95 %:"
        ),
        "",
        HEAD,
        *rows,
    ]
    options.page.write_text("\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
