"""A mark in every figure that is written, so that a command knows its own files from others."""

from __future__ import annotations

import struct
import zlib

MARK = b"a figure of tuner"
COMMENT = b"<!-- " + MARK + b" -->"
PNG_HEADER_BYTES = 33
"""The signature and the first chunk, which says how large the picture is."""


def marked(figure: bytes, kind: str) -> bytes:
    """The same figure, of a `kind` such as `png`, with the mark where no reader shows it."""
    if kind == "png":
        text = b"tEXt" + b"Software\0" + MARK
        chunk = struct.pack(">I", len(text) - 4) + text + struct.pack(">I", zlib.crc32(text))
        return figure[:PNG_HEADER_BYTES] + chunk + figure[PNG_HEADER_BYTES:]
    if kind == "pdf":  # a comment; before the end it would move what the file's table points to
        return figure + b"\n%" + MARK + b"\n"
    tag = b"<svg" if kind == "svg" else b"<head"
    end = figure.index(b">", figure.index(tag)) + 1
    return figure[:end] + COMMENT + figure[end:]
