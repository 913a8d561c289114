"""A database with the roles of storage/postgres/, its tables made by the owner."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import REPOSITORY
from tests.support.postgres_cluster import Cluster
from tuner.storage.database import initialise
from tuner.storage.url import parse_url

SQL = REPOSITORY / "storage" / "postgres"
ROLES = ("owner", "worker", "reader")


@dataclass(frozen=True, slots=True)
class ThreeRoles:
    """Where the database is, for whom, and the files with their passwords."""

    cluster: Cluster
    database: str
    secrets: Path

    def url(self, role: str, *, with_password: bool = True) -> str:
        password = self.password(role) if with_password else None
        return self.cluster.url(self.database, user=f"tuner_{role}", password=password)

    def password(self, role: str) -> str:
        return (self.secrets / f"{role}-password").read_text(encoding="utf-8").strip()


def three_roles(
    cluster: Cluster, secrets: Path, *, worker_password: str = "", tables: bool = True
) -> ThreeRoles:
    """What docker-compose.yml does when it comes up for the first time; without `tables` up to its
    service `init`."""
    for role in ROLES:
        password = worker_password if role == "worker" else ""
        (secrets / f"{role}-password").write_text(
            (password or f"{role}'s p@ss\"word $HOME") + "\n", encoding="utf-8"
        )
    found = ThreeRoles(cluster, cluster.create_database(), secrets)
    cluster.psql(found.database, SQL / "roles.sql")
    cluster.psql(found.database, SQL / "passwords.sql", TUNER_SECRETS=str(secrets))
    if tables:
        initialise(parse_url(found.url("owner")))
    return found
