from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from tuner.cli.main import main
from tuner.devices import share_out_cores
from tuner.errors import StorageError
from tuner.launch.where import Where
from tuner.storage.sqlite import cautions, network_mount
from tuner.storage.url import parse_url

MOUNTS = r"""
/dev/vda1 / ext4 rw,relatime 0 0
proc /proc proc rw 0 0
server:/export /home nfs4 rw,vers=4.2 0 0
/dev/vdb1 /home/ann/fast\040disk xfs rw 0 0
//nas/share /mnt/share cifs rw 0 0
ann@host:/ /mnt/far fuse.sshfs rw 0 0
/dev/vdc1 /mnt/over nfs rw 0 0
/dev/vdd1 /mnt/over ext4 rw 0 0
broken
"""


Mounted = Callable[[str], None]


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mounted:
    """Say what is mounted here, as the kernel does."""
    file = tmp_path / "proc" / "self" / "mounts"
    file.parent.mkdir(parents=True)
    monkeypatch.setattr("psutil.PROCFS_PATH", str(tmp_path / "proc"))

    def write(text: str) -> None:
        file.write_text(text, encoding="utf-8")

    return write


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/srv/tuner.db", None),
        ("/home/ann/tuner.db", ("nfs4", "/home")),
        ("/home/ann/fast disk/tuner.db", None),
        ("/homework/tuner.db", None),
        ("/mnt/share/deep/er/tuner.db", ("cifs", "/mnt/share")),
        ("/mnt/far/tuner.db", ("fuse.sshfs", "/mnt/far")),
        ("/mnt/over/tuner.db", None),
    ],
)
def test_the_innermost_mount_says_what_a_path_lies_on(
    path: str, found: tuple[str, str] | None, mounted: Mounted
) -> None:
    mounted(MOUNTS)
    assert network_mount(Path(path)) == found


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "lustre", "gpfs", "beegfs", "9p", "ceph"]
)
def test_a_network_filesystem_is_known_by_its_kind(kind: str, mounted: Mounted) -> None:
    mounted(f"/dev/vda1 / ext4 rw 0 0\nserver /data {kind} rw 0 0\n")
    assert network_mount(Path("/data/x.db")) == (kind, "/data")


def test_a_link_is_followed_to_where_the_file_is(tmp_path: Path, mounted: Mounted) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "near").symlink_to(tmp_path / "far")
    mounted(f"server {tmp_path}/far nfs rw 0 0\n")
    assert network_mount(tmp_path / "near" / "tuner.db") == ("nfs", f"{tmp_path}/far")


def test_each_danger_is_one_line(tmp_path: Path, mounted: Mounted) -> None:
    address = parse_url(f"sqlite:///{tmp_path}/tuner.db")
    mounted("/dev/vda1 / ext4 rw 0 0\n")
    assert cautions(address, workers=4) == []
    mounted(f"server {tmp_path} nfs4 rw 0 0\n")
    network, crowd = cautions(address, workers=5)
    assert network.startswith(
        f"the database {tmp_path}/tuner.db lies on a network filesystem (nfs4 at {tmp_path})"
    )
    assert crowd.startswith("5 workers share an SQLite database")
    for line in (network, crowd):
        assert "\n" not in line
        assert "PostgreSQL" in line
    assert cautions(parse_url("postgresql://ann@host/tuner"), workers=50) == []


def test_a_launch_says_it_before_it_opens_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    where = Where(devices=share_out_cores(5, range(5)))
    five = SimpleNamespace(where=where, files={}, together=1)
    plan = SimpleNamespace(of_data=(), of_networks=(), definitions={})
    monkeypatch.setattr("tuner.launch.launcher.make_aim", lambda *_, **__: five)
    monkeypatch.setattr("tuner.launch.launcher.make_plan", lambda *_, **__: plan)

    def refuse(*_: object, **__: object) -> None:
        raise StorageError("nothing is opened here")

    monkeypatch.setattr("tuner.launch.launcher.open_database", refuse)
    arguments = [
        "launch",
        "--variant",
        "rmsnorm",
        "--cpu",
        "--storage",
        f"sqlite:///{tmp_path}/tuner.db",
    ]
    with pytest.raises(SystemExit):
        main(arguments)
    warning, error = capsys.readouterr().err.splitlines()
    assert warning.startswith("tuner: 5 workers share an SQLite database")
    assert error == "tuner: error: nothing is opened here"
