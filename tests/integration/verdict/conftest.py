"""A verdict is on one kind of database: what it reads is the same on each, as the tests of storage
and of studies show."""

from tests.support.databases import postgresql_alone as database_url

__all__ = ["database_url"]
