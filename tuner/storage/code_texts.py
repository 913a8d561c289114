"""Files with networks of users' own, as text and by hash. Nothing here runs them."""

from __future__ import annotations

import hashlib

from sqlalchemy import Engine, insert, select
from sqlalchemy.exc import IntegrityError

from tuner.storage.database_clock import database_now
from tuner.storage.schema import sources

MOST_BYTES = 1 << 20
"""Of one file."""


def fits(content: bytes) -> bool:
    """Whether a database takes it as text: UTF-8, and not too long."""
    if len(content) > MOST_BYTES or b"\0" in content:
        return False
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def put_source(engine: Engine, name: str, content: bytes) -> str:
    """Keep a file that `fits`, once; its SHA-256."""
    digest = hashlib.sha256(content).hexdigest()
    try:
        with engine.begin() as connection:
            there = select(sources.c.sha256).where(sources.c.sha256 == digest)
            if connection.execute(there).first() is None:
                row = {"sha256": digest, "name": name[:200], "content": content.decode()}
                connection.execute(insert(sources).values(**row, created_at=database_now()))
    except IntegrityError:  # somebody else was faster
        pass
    return digest


def source_of(engine: Engine, digest: str) -> bytes | None:
    """The file of this SHA-256; None where there is none, or where what is there is another: a
    database's content is a stranger's.
    """
    with engine.connect() as connection:
        query = select(sources.c.content).where(sources.c.sha256 == digest)
        found = connection.execute(query).scalar_one_or_none()
    if not isinstance(found, str):
        return None
    content = found.encode(errors="replace")
    return content if hashlib.sha256(content).hexdigest() == digest else None
