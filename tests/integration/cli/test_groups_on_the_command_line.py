"""What commands make of a group of searches: listed, picked from, exported, and compared with
others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.forked_cli import Done
from tests.support.forked_cli import run_here as run
from tests.support.recorded_studies import record_group
from tuner.export.train import read_recipe
from tuner.spec.study_file import studies_folder

NAMES = ["demo-rmsnorm", "demo-rmsnorm-2", "demo-rmsnorm-3"]
GROUP = {"name": "demo-rmsnorm", "studies": NAMES}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three searches of one variant and one of another, where the default database is."""
    made = tmp_path_factory.mktemp("groups")
    (made / "storage").mkdir()
    url = f"sqlite:///{made}/storage/tuner.db"
    record_group(url, variant="rmsnorm", searches=3)
    record_group(url, variant="original", searches=1)
    return made


def works(folder: Path, *arguments: str) -> Done:
    done = run(*arguments, folder=folder)
    assert done.code == 0, done.err
    return done


def test_status_shows_groups(folder: Path) -> None:
    document = works(folder, "status", "--json").json()
    assert document["groups"] == [GROUP, {"name": "demo-original", "studies": ["demo-original"]}]
    places = [(each["name"], each["group"], each["search"]) for each in document["studies"]]
    assert places[:3] == [(name, "demo-rmsnorm", n) for n, name in enumerate(NAMES, 1)]
    table = works(folder, "status").out
    assert "2 of demo-rmsnorm" in table
    assert "1 of demo-original" not in table
    one = works(folder, "status", "--json", "--study", "group:demo-rmsnorm").json()
    assert [each["name"] for each in one["studies"]] == NAMES
    alone = works(folder, "status", "--json", "--study", NAMES[1]).json()
    assert alone["groups"] == [{"name": "demo-rmsnorm", "studies": NAMES[1:2]}]
    unknown = run("status", "--study", "group:demo-rmsnrm", folder=folder)
    assert unknown.code == 2
    assert "unknown group 'demo-rmsnrm' (did you mean 'demo-rmsnorm'" in unknown.err


def test_studies_are_named_alike_in_all_commands(folder: Path) -> None:
    one, two, other = f"study:{NAMES[0]}", NAMES[1], "demo-original"
    ways = (f"{one},{two},{two}", f"{two}, {NAMES[0]}", f"group:demo-rmsnorm,{one}")
    for way, there in zip(ways, (NAMES[:2], NAMES[1::-1], NAMES), strict=True):
        seen = works(folder, "status", "--json", "--study", way).json()["studies"]
        assert [each["name"] for each in seen] == there
        works(folder, "plot", "front", "--study", way, "--output", "named.html", "--force")
    for words in ((f"study:{other}", one), (f"study:{other}", "--study", one), ("--study", one)):
        said = works(folder, "explain", *words)
        assert NAMES[0] in said.out
    report = works(folder, "compare", "--study", f"{other}, {two}", "--json").json()
    assert [each["studies"] for each in report["groups"]] == [[other], [two]]
    works(folder, "trial", "1", "--study", one)
    works(folder, "study", "show", one)
    for given, why in (
        (("trial", "1", "--study", "group:demo-rmsnorm"), "means 3 studies; name one of demo-rms"),
        (("best", "--study", f"{one},{other}"), "means studies of several groups; name one"),
        (("compare",), "name variants, or studies with --study"),
    ):
        refused = run(*given, folder=folder)
        assert (refused.code, why in refused.error) == (2, True), refused.err


def test_best_says_of_which_search_it_is(folder: Path) -> None:
    pick = ("--pick", "mql")
    found = works(folder, "best", "--variant", "rmsnorm", "--task", "demo", *pick, "--json").json()
    each = [works(folder, "best", "--study", name, *pick, "--json").json() for name in NAMES]
    assert [one["study"] for one in each] == NAMES
    lowest = min(each, key=lambda one: one["values"]["test_mql"])
    assert (found["study"], found["trial"]) == (lowest["study"], lowest["trial"])
    assert (found["provenance"]["group"], found["provenance"]["searches"]) == ("demo-rmsnorm", 3)
    text = works(folder, "best", "--study", "group:demo-rmsnorm", *pick).out
    assert "(one of 3 searches, demo-rmsnorm)" in text
    which = run("best", "--study", "group:demo-rmsnorm", "--trial", "1", folder=folder)
    assert which.code == 2
    assert "trial 1 of which search? name it by --study; group 'demo-rmsnorm' has: " in which.err


def test_what_best_writes_is_read_again(folder: Path) -> None:
    pick = ("--pick", "knee")
    written = works(folder, "best", "--variant", "rmsnorm", "--task", "demo", *pick).out
    (folder / "best.toml").write_text(written)

    assert read_recipe(folder / "best.toml").origin["provenance"]["searches"] == 3


def test_comparisons_and_figures_take_all_searches(folder: Path) -> None:
    report = works(folder, "compare", "original", "rmsnorm", "--task", "demo", "--json").json()
    assert report["groups"] == [{"name": "demo-original", "studies": ["demo-original"]}, GROUP]
    assert [row["study"] for row in report["rows"]][::2] == ["demo-original", *NAMES]
    explained = works(folder, "explain", "group:demo-rmsnorm", "--json").json()
    assert len(explained["studies"]) == 3
    works(folder, "plot", "front", "--study", "group:demo-rmsnorm", "--output", "front.html")
    page = (folder / "front.html").read_text()
    assert all(name in page for name in NAMES)


def test_export_and_import_keep_the_group_and_another_name_leaves_it(folder: Path) -> None:
    exported = works(folder, "study", "export", NAMES[1], "--output", "second.json.gz")
    assert "; search 2 of group demo-rmsnorm" in exported.out
    elsewhere = ["--storage", f"sqlite:///{folder}/elsewhere.db"]
    works(folder, "study", "import", "second.json.gz", *elsewhere)
    (found,) = works(folder, "status", "--json", *elsewhere).json()["studies"]
    assert (found["name"], found["group"], found["search"]) == (NAMES[1], "demo-rmsnorm", 2)
    again = works(
        folder, "study", "import", "second.json.gz", "--name", "mine", "--json", *elsewhere
    )
    assert (again.json()["group"], again.json()["search"]) == ("mine", 1)


def test_an_import_over_another_space_says_what_it_kept_and_why_not_the_rest(folder: Path) -> None:
    works(folder, "study", "export", NAMES[0], "--output", "first.json.gz")
    text = (studies_folder() / "rmsnorm.toml").read_text(encoding="utf-8")
    narrow = text.replace("low = 32", "low = 64").replace('name = "rmsnorm"', 'name = "narrow"')
    (folder / "narrow.toml").write_text(narrow, encoding="utf-8")
    asked = ("study", "import", "first.json.gz", "--space", "narrow.toml", "--name", "narrow")
    made = works(folder, *asked, "--json").json()
    (reason,) = made["left_out"]
    lost = made["left_out"][reason]
    kept = sum(made["trials"][state] for state in ("complete", "pruned", "failed"))
    assert (reason, made["variant"], kept + lost) == ("hidden_size", "narrow", 12)
    said = works(folder, *asked[:-1], "again").out
    assert f"{kept} of 12 finished trials lie in the new space; the others are outside it" in said
    assert f"in hidden_size ({lost})" in said
