"""What a command may write over."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tuner.cli.init import check_place
from tuner.cli.replace import check_free
from tuner.errors import UsageError


def never(path: Path) -> bool:
    raise AssertionError(f"{path} was read")


def test_a_pipe_is_not_read_for_whoever_wrote_it(tmp_path: Path) -> None:
    """From standard output, where that is a pipe, nothing ever comes."""
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    check_free(pipe, never, force=False)


@pytest.mark.parametrize("name", ["pipe.toml", "link.toml"])
def test_a_task_file_is_written_over_no_link_and_no_pipe(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "link.toml").symlink_to("elsewhere/task.toml")
    with pytest.raises(UsageError, match="is a link, a pipe or a device; name a plain file"):
        check_place(tmp_path / name, kind="task", force=True)


def test_a_file_of_somebody_and_a_folder_are_refused(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs.json"
    theirs.write_text("{}")
    with pytest.raises(UsageError, match="was not written by this command"):
        check_free(theirs, lambda _path: False, force=False)
    check_free(theirs, never, force=True)
    with pytest.raises(UsageError, match="is a folder; name a file"):
        check_free(tmp_path, never, force=False)
