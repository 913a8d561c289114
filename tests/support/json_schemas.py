"""What the documents of `--json` hold: JSON Schemas of those that other programs rely on."""

from __future__ import annotations

from typing import Any

NUMBER = {"type": "number"}
COUNT = {"type": "integer", "minimum": 0}
TEXT = {"type": "string", "minLength": 1}


def record(**properties: Any) -> dict[str, Any]:
    """An object that has all these keys (a contract: keys may be added, none may go)."""
    return {"type": "object", "required": list(properties), "properties": properties}


def listed(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


PARAMS = record(
    learning_rate=NUMBER, weight_decay=NUMBER, dropout=NUMBER, hidden_size=COUNT, batch_size=COUNT
)
VALUES = record(wall_clock_s=NUMBER, test_mql=NUMBER)
SPREAD = record(median=NUMBER, low=NUMBER, high=NUMBER)
BEST = record(
    variant=TEXT,
    task=TEXT,
    study=TEXT,
    trial=COUNT,
    pick={"enum": ["same-quality", "mql", "time", "knee"]},
    chosen_on={"enum": ["single", "expected", "verified"]},
    why=TEXT,
    expected={},
    recommendation={},
    params=PARAMS,
    values=VALUES,
    verified={
        "oneOf": [{"type": "null"}, record(seeds=COUNT, wall_clock_s=SPREAD, test_mql=SPREAD)]
    },
    provenance=record(
        data_hash=TEXT,
        definition_hash=TEXT,
        seed=COUNT,
        device=TEXT,
        group=TEXT,
        search=COUNT,
        searches=COUNT,
    ),
)
GROUPS = listed(record(name=TEXT, studies={**listed(TEXT), "minItems": 1}))
STUDY = record(
    name=TEXT,
    group=TEXT,
    search=COUNT,
    variant=TEXT,
    task=TEXT,
    trials=record(complete=COUNT, running=COUNT, waiting=COUNT, pruned=COUNT, failed=COUNT),
    budget=COUNT,
    front=listed(record(trial=COUNT, params=PARAMS, values=VALUES, verified={})),
    verification=record(waiting=COUNT, running=COUNT, finished=COUNT, skipped=COUNT),
    policy=record(
        sampler=TEXT,
        prune={"type": "boolean"},
        max_time_s={"type": ["number", "null"]},
        reruns=COUNT,
    ),
    hypervolume={"type": ["number", "null"]},
    workers=listed(
        record(
            worker=TEXT, host=TEXT, pid=COUNT, device=TEXT, val_loss={"type": ["number", "null"]}
        )
    ),
)
STATUS = record(studies=listed(STUDY), groups=GROUPS)
LAUNCHED = {
    "allOf": [
        STUDY,
        record(
            changed={"type": "object", "additionalProperties": record(**{"from": {}, "to": {}})}
        ),
    ]
}
LAUNCH = record(
    outcome={"enum": ["filled", "timed_out", "interrupted", "terminated"]},
    studies={**listed(LAUNCHED), "minItems": 1},
    groups={**GROUPS, "minItems": 1},
)
DOCTOR = record(
    healthy={"type": "boolean"},
    checks=listed(record(name=TEXT, level={"enum": ["ok", "notice", "error"]}, detail=TEXT)),
)
DEFAULTS = record(learning_rate=NUMBER, weight_decay=NUMBER, batch_size=COUNT)
VARIANTS = record(
    variants=listed(
        record(name=TEXT, core_change=TEXT, why=TEXT, defaults=DEFAULTS, space={"type": "object"})
    )
)
ERROR = record(error=record(message=TEXT, exit_code={"enum": [1, 2]}))
