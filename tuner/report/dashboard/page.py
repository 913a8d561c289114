"""optuna-dashboard's page without what a read-only dashboard cannot do."""

from __future__ import annotations

_LABELS = ("rename study", "delete study", "delete artifact", "skip trial")
_ICONS = (
    "AddBox",
    "Delete",
    "DriveFileRenameOutline",
    "Edit",
    "EditNote",
    "Replay",
    "RestoreFromTrash",
    "Save",
    "Settings",
    "StopCircle",
    "Undo",
    "UploadFile",
)
"""Of buttons that write: create, delete, rename, edit a note, undo and configure a preference, fail
a trial, upload."""
_HIDDEN = (
    *(f'[aria-label="{label}"]' for label in _LABELS),
    *(f'button:has([data-testid="{icon}Icon"])' for icon in _ICONS),
    ".MuiCard-root:not(:has(.MuiCard-root)):has(input[type=file])",  # where a file is dropped
    "button[type=submit]",  # a trial's form
    "button.MuiButton-outlinedError",  # "worst" of trials that somebody compares by eye
)
_PREFERRED = '[aria-label="trial-button"]{pointer-events:none}'
"""A press on a trial says that it is better than the others."""
STYLE = "".join(f"{selector}{{display:none!important}}" for selector in _HIDDEN) + _PREFERRED
"""Each rule by itself: a browser that does not know
one of them drops all that it shares a rule with."""
_END = b"</head>"


def read_only_page(page: bytes) -> bytes:
    """The page with a style that hides what writes.
    Whatever is overlooked here is refused all the same.
    """
    before, end, after = page.partition(_END)
    return before + f"<style>{STYLE}</style>".encode() + end + after if end else page
