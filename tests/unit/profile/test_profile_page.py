"""A profile as page, document and terminal: complete, and nothing of a stranger's is acted upon."""

from __future__ import annotations

import dataclasses
import json
from html.parser import HTMLParser

from tuner.display.terminal import make_console
from tuner.profile.profile_page import as_document, as_page, print_profile
from tuner.profile.profile_records import Advice, Operation, Operations, Profile
from tuner.training.stage_marks import Stage

HOSTILE = "<script>alert(1)</script>[red]\x1b[31m"


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.outside += [name for name, _ in attrs if name in ("src", "href", "onload")]


def hostile(profile: Profile) -> Profile:
    advice = (Advice(change=HOSTILE, why=HOSTILE, gain=2.0, epoch_s=1.0, fault=True),)
    top = (Operation(name=HOSTILE, calls=1, seconds=1e-3),)
    return dataclasses.replace(
        profile,
        subject=HOSTILE,
        bottleneck=HOSTILE,
        advice=advice,
        operations=Operations(top=top),
        notes=(HOSTILE,),
        contamination=HOSTILE,
    )


def test_the_page_needs_nothing_else_and_escapes_what_comes_from_outside(profiled: Profile) -> None:
    page = as_page(hostile(profiled))
    tags = Tags()
    tags.feed(page)
    assert "script" not in tags.seen
    assert tags.outside == []
    assert tags.seen.count("svg") == 3  # the epoch, the timeline, the throughput
    assert "\x1b" not in page


def test_the_terminal_shows_names_as_they_are(profiled: Profile, capsys: object) -> None:
    console = make_console()
    with console.capture() as shown:
        print_profile(hostile(profiled), console)
    assert "\x1b" not in shown.get()
    assert "[red]" in shown.get()
    del capsys


def test_the_document_is_json_with_every_stage(profiled: Profile) -> None:
    document = json.loads(json.dumps(as_document(profiled)))
    assert set(document["stages"]["seconds"]) == {stage.value for stage in Stage}
    assert abs(sum(document["stages"]["shares"].values()) - 1) < 1e-9
    assert document["pace"]["window_s"] > 0
    assert document["bottleneck"].endswith(".")
