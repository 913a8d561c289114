"""What a verification is asked for, and what it says at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tuner.launch.outcome import Outcome
from tuner.launch.request import DeviceChoice, Number, Positive
from tuner.storage.url import DEFAULT_URL
from tuner.verdict.expected_front import Choice
from tuner.verdict.verified import Verified


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationRequest:
    """Which studies to verify together, and how thoroughly."""

    variants: str | Sequence[str]
    task: str = "etth"
    studies: str | None = None
    """Names of studies, or `group:NAME`, with commas; where not given all searches of
    `<task>-<variant>`."""
    top: Number | None = None
    """Configurations along each front, its knee included (5), or of each round (6)."""
    choice: Choice | None = None
    """None: what may be recommended, where there are trials enough to say so; else the front."""
    seeds: Number | None = None
    """Of each configuration: 10, of each round 6, of a confirmation 30, of an ablation 10."""
    stop_early: bool = False
    confirm: bool = False
    """Test what each study recommends, on untouched seeds, in place of a verification."""
    ablate: bool = False
    """Run what is recommended with one value at a time set back to the default, in place of a
    verification."""
    against: str | None = None
    """Of a confirmation: a variant, or `group:NAME`, whose default's quality is asked for; the
    first of several variants where none is named."""
    margin: float | None = None
    """Of a confirmation; the studies' own where none is said."""
    budget_s: Positive | None = None
    """Of a verification: its runs, and those of earlier ones, may have devices for so long; what
    has not begun by then is taken off the plan."""
    devices: DeviceChoice = field(default_factory=DeviceChoice)
    data_dir: Path | None = None
    storage: str = DEFAULT_URL
    timeout_s: Positive | None = None
    trust: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationOutcome:
    """How a verification ended, and what is verified by now."""

    ended: Outcome
    verified: dict[str, tuple[Verified, ...]]
    """By study, in the order of the request."""
    missing: tuple[str, ...]
    """What cannot be verified yet, and why."""
    notes: tuple[str, ...]
    """All lines that a person would have been told, in order."""
    printed: str | Mapping[str, str] = ""
    """What the engine would be told."""
