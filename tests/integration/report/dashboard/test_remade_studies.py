"""A study that was deleted and made again under its name is another one, to whoever looks on."""

from __future__ import annotations

import json
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.support.recorded_studies import record_study
from tuner.errors import StudyGoneError
from tuner.report.dashboard.server import make_dashboard
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.open import open_study
from tuner.verdict.verified import verifications_of

STUDY = "demo-rmsnorm"


def test_a_study_made_again_under_its_name_is_another_one_to_whoever_looks_on(
    tmp_path: Path,
) -> None:
    """SQLite gives it the number that the first one had, too."""
    url = f"sqlite:///{tmp_path}/tuner.db"
    record_study(url, variant="rmsnorm", trials=2, said={"of the first": 1.5})
    server = make_dashboard(parse_url(url), host="127.0.0.1", port=0)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def detail() -> dict[str, Any]:
        address = f"http://127.0.0.1:{server.server_port}/api/studies/1"
        found: dict[str, Any] = json.loads(urllib.request.urlopen(address).read())
        return found

    database = open_database(parse_url(url), create=False)
    try:
        first, shown = open_study(database, STUDY), detail()
        assert "test_mql (units of the data)" in shown["objective_names"]
        assert "of the first" in {each["key"] for each in shown["union_user_attrs"]}
        database.optuna.delete_study(1)
        record_study(url, variant="original", name=STUDY, trials=1, mql_split="val")
        again, shown = open_study(database, STUDY), detail()
        assert again.study_id == first.study_id
        assert "val_mql (units of the data)" in shown["objective_names"]
        assert [trial["number"] for trial in shown["trials"]] == [0]
        assert "of the first" not in {each["key"] for each in shown["union_user_attrs"]}
        spaces = {each["name"]: each["distribution"] for each in shown["union_search_space"]}
        assert set(spaces) == set(again.definition.space.stored())
        assert shown["note"]["body"].startswith("## original on demo")
        assert again.key() != first.key()
        for use in (
            lambda: first.ledger.claim("worker-1"),  # and would train what the first one was of
            lambda: verifications_of([first]).claim("worker-1"),
            first.optuna.get_trials,
        ):
            with pytest.raises(StudyGoneError):
                use()
    finally:
        server.shutdown()
        server.server_close()
        database.close()
