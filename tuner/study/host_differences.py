"""What tells hosts that work at a study apart, and may be seen in its times or errors: versions of
torch and of tuner; and clocks that are wrong, which changes nothing but is worth knowing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tuner.storage.queue.roster import HostFacts

WRONG_CLOCK_S = 60.0
"""A clock that is further than this from the database's is worth a line."""
_VERSIONS = {"torch": "torch_version", "tuner": "tuner_version"}


def newcomer_in_words(study: str, mine: HostFacts, others: Iterable[HostFacts]) -> list[str]:
    """What to say before a worker's first claim at a study, where `others` have worked."""
    lines = []
    others = list(others)
    for program, name in _VERSIONS.items():
        here, there = getattr(mine, name), _values(others, name)
        if here is not None and there and here not in there:
            lines.append(
                f"study {study} has been worked at with {program} {' and '.join(there)}, this host "
                f"has {here}: times and errors of the two may differ"
            )
    return lines


def clock_in_words(facts: HostFacts, host: str) -> str | None:
    """What to say of a host's clock; None where it is right, or nothing is known of it."""
    skew = facts.clock_skew_s
    if skew is None or abs(skew) <= WRONG_CLOCK_S:
        return None
    ahead = "ahead of" if skew > 0 else "behind"
    off = f"the clock of {host} is {abs(skew):.0f} s {ahead} the database's"
    return f"{off}; only the database's counts"


def all_in_words(facts: Sequence[tuple[str, HostFacts]]) -> list[str]:
    """What tells the hosts apart that have worked at a study, by (host, facts)."""
    lines = []
    for program, name in _VERSIONS.items():
        if len(found := _values([each for _, each in facts], name)) > 1:
            lines.append(f"worked at with {program} {', '.join(found)}")
    clocks = [clock_in_words(each, host) for host, each in facts]
    return lines + list(dict.fromkeys(line for line in clocks if line is not None))


def _values(facts: Iterable[HostFacts], name: str) -> list[str]:
    found = {str(value) for each in facts if (value := getattr(each, name)) is not None}
    return sorted(found)
