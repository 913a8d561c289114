"""Sections of a document that a command writes, between markers."""

from __future__ import annotations

import re
from collections.abc import Sequence


def replaced(text: str, name: str, lines: Sequence[str]) -> str:
    """`text` with `lines` between its markers `<!-- NAME -->` and `<!-- /NAME -->`.

    Raises:
        SystemExit: it has no such markers.
    """
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", flags=re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(
            f"there is no <!-- {name} --> with a <!-- /{name} -->; put them where the section belongs"
        )
    return pattern.sub(
        lambda found: found[1] + "".join(f"{line}\n" for line in lines) + found[2], text
    )
