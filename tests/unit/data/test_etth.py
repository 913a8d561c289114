from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.web_server import serving
from tuner.data.prepare import prepare
from tuner.data.sources import SHA256, default_folder, fetch_etth, find_etth, read_etth
from tuner.data.task import load_task
from tuner.errors import DataError

NOWHERE = "http://127.0.0.1:9"  # the discard port: nothing listens there


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A web server, and the folder it serves."""
    folder = tmp_path / "site"
    folder.mkdir()
    with serving(folder) as url:
        yield url, folder


@pytest.fixture
def user_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tuner" / "etth"


def said(call: object, *args: object, **kwargs: object) -> str:
    assert callable(call)
    with pytest.raises(DataError) as caught:
        call(*args, **kwargs)
    message = str(caught.value)
    assert "\n" not in message
    assert caught.value.exit_code == 1
    return message


def test_files_are_downloaded_once_and_checked(
    etth_dir: Path, site: tuple[str, Path], user_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, folder = site
    for name in SHA256:
        shutil.copy(etth_dir / name, folder)
    assert default_folder() == user_cache
    assert fetch_etth(base_url=url) == user_cache
    assert sorted(path.name for path in user_cache.iterdir()) == sorted(SHA256)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "downloading ETTh1.csv" in captured.err
    assert list(read_etth(None, base_url=NOWHERE)) == list(SHA256)  # from the cache now


def test_finding_downloads_nothing(etth_dir: Path, user_cache: Path) -> None:
    assert find_etth(etth_dir) == etth_dir
    assert said(find_etth, None).startswith(
        f"{user_cache}/ETTh1.csv: no such file; put ETTh1.csv and ETTh2.csv into"
    )
    assert not user_cache.exists()


def test_offline_the_one_line_says_what_to_do(user_cache: Path) -> None:
    message = said(read_etth, None, base_url=NOWHERE)
    assert message.startswith(
        f"{user_cache}/ETTh1.csv: not there, and could not be downloaded from {NOWHERE}/ETTh1.csv ("
    )
    assert message.endswith("name their folder with --data-dir or TUNER_DATA_DIR")
    assert list(user_cache.iterdir()) == []


def test_a_file_the_server_does_not_have_is_one_line(
    site: tuple[str, Path], tmp_path: Path
) -> None:
    assert "could not be downloaded from" in said(fetch_etth, tmp_path / "here", base_url=site[0])


def test_a_download_that_is_not_the_known_file_is_refused(
    site: tuple[str, Path], tmp_path: Path
) -> None:
    url, folder = site
    (folder / "ETTh1.csv").write_text("date,OT\n")
    message = said(fetch_etth, tmp_path / "here", base_url=url)
    assert (
        f"{url}/ETTh1.csv: what was downloaded for {tmp_path}/here/ETTh1.csv has SHA-256 "
        in message
    )
    assert f"expected {SHA256['ETTh1.csv']}" in message
    assert list((tmp_path / "here").iterdir()) == []


def test_a_named_folder_without_the_files_is_an_error_and_no_fall_back(tmp_path: Path) -> None:
    message = said(prepare, load_task("etth"), data_dir=tmp_path)
    assert message.startswith(
        f"{tmp_path}/ETTh1.csv: no such file; put ETTh1.csv and ETTh2.csv into this folder"
    )


def test_a_damaged_file_is_named_with_both_sums(etth_dir: Path, tmp_path: Path) -> None:
    for name in SHA256:
        shutil.copy(etth_dir / name, tmp_path)
    with (tmp_path / "ETTh2.csv").open("ab") as file:
        file.write(b"\n")
    message = said(prepare, load_task("etth"), data_dir=tmp_path)
    assert message.startswith(f"{tmp_path}/ETTh2.csv: SHA-256 is ")
    assert (
        f"expected {SHA256['ETTh2.csv']}; the file is damaged or another version: delete it and"
        in message
    )


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert said(fetch_etth, tmp_path / "file" / "etth", base_url=NOWHERE).startswith(
        f"{tmp_path}/file/etth/ETTh1.csv: not there, and could not be downloaded from"
    )


def test_a_folder_in_place_of_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "ETTh1.csv").mkdir()
    assert "ETTh1.csv: cannot be read (Is a directory)" in said(read_etth, tmp_path)


def test_a_url_in_place_of_a_folder_is_where_the_cache_is_filled_from(
    etth_dir: Path, site: tuple[str, Path], user_cache: Path
) -> None:
    url, folder = site
    for name in SHA256:
        shutil.copy(etth_dir / name, folder)
    assert read_etth(Path(url)) == {name: (etth_dir / name).read_bytes() for name in SHA256}
    assert {path.name for path in user_cache.iterdir()} == set(SHA256)
    assert find_etth(Path(url)) == user_cache
