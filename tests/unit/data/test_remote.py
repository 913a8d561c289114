"""Data in a folder or at a URL."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.web_server import serving
from tuner.data import sources as cache
from tuner.data.sources import file_in, told_to_others, url_of
from tuner.errors import DataError, UsageError


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    "url", ["https://host/data", "http://host:8080/a/b", "file:///mnt/shared/data"]
)
def test_a_url_is_known_also_as_a_path_writes_it(url: str) -> None:
    assert url_of(Path(url)) == url
    assert told_to_others(Path(url)) == url


def test_a_folder_is_no_url_whatever_it_is_called() -> None:
    for name in ("data", "/mnt/https", "ftp:/x", "./http", "C:/data"):
        assert url_of(Path(name)) is None
    assert url_of(None) is None
    assert told_to_others(Path("data")) == str(Path("data").absolute())


def test_a_url_with_a_password_is_not_taken() -> None:
    with pytest.raises(UsageError, match="since it would be logged") as met:
        url_of(Path("https://ann:secret@host/data"))
    assert "secret" not in str(met.value)


def test_a_file_is_fetched_once_or_anew(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "my data.csv").write_text("one")
    with serving(folder) as url:
        first = file_in(Path(url), "my data.csv", reuse=True)
        (folder / "my data.csv").write_text("two")
        assert file_in(Path(url), "my data.csv", reuse=True).read_text() == "one"
        assert file_in(Path(url), "my data.csv", reuse=False).read_text() == "two"
    assert first.is_relative_to(tmp_path / "cache")
    by_file = file_in(Path(folder.as_uri()), "my data.csv", reuse=False)
    assert by_file.read_text() == "two"


def test_what_cannot_be_had_is_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "big.csv").write_bytes(b"x" * (1 << 17))
    with serving(folder) as url:
        with pytest.raises(DataError, match=r"downloaded from .*/none.csv \(File not found\)"):
            file_in(Path(url), "none.csv", reuse=True)
        monkeypatch.setattr(cache, "MOST_BYTES", 1 << 16)
        with pytest.raises(DataError, match="copy it by hand"):
            file_in(Path(url), "big.csv", reuse=True)
        monkeypatch.setattr(cache, "MOST_BYTES", 1 << 20)
        monkeypatch.setattr(cache, "WHOLE_S", -1.0)
        with pytest.raises(DataError, match="has not come in"):
            file_in(Path(url), "big.csv", reuse=True)
    with pytest.raises(DataError, match="could not be downloaded"):
        file_in(Path("http://127.0.0.1:9"), "a.csv", reuse=True)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
