"""A server that serves no more connections is named with what to set."""

from __future__ import annotations

import pytest
from sqlalchemy.exc import OperationalError

from tuner.errors import StorageError
from tuner.storage.database import in_one_line
from tuner.storage.url import parse_url


@pytest.mark.parametrize(
    "said",
    [
        "FATAL:  sorry, too many clients already",
        'FATAL:  too many connections for role "tuner_worker"',
        "FATAL:  remaining connection slots are reserved for roles with the SUPERUSER attribute",
    ],
)
def test_too_few_connections_say_what_to_set(said: str) -> None:
    remedy = r"max_connections: one for each worker.*several-machines\.md"
    with (
        pytest.raises(StorageError, match=remedy),
        in_one_line(parse_url("postgresql://ann@host/tuner")),
    ):
        raise OperationalError("", {}, Exception(said))
