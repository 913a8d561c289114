"""The local folder with the language model that `time-llm` keeps frozen: which one it is, whether
all is there, and its hash; and the network's other settings. No torch is imported, and nothing is
downloaded.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tuner.errors import UsageError, unknown_name
from tuner.files.durable import file_sha256
from tuner.files.environment import LLM_VARIABLE
from tuner.models.names import TIME_LLM

FOLDER, HASH = "folder", "folder_sha256"
"""The settings that say where it lies, and what its files hold."""
NEEDED = {
    "config.json": "config.json",
    "weights (model.safetensors)": "*.safetensors",
    "tokenizer.json": "tokenizer.json",
}
MOST_FILES = 1000


def with_hash(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with the folder that is used here, and the hash of what it holds.

    Where they have a hash already, the folder is one that fits it.

    Raises:
        UsageError: nothing to read it with, no such folder, one without what is needed, or another
            one than the hash says.
    """
    if find_spec("transformers") is None:
        raise UsageError(f'{TIME_LLM} needs: pip install "tuner[llm]"')
    wanted, other = settings.get(HASH), ""
    for folder in _folders(settings):
        held = folder_sha256(folder)
        if wanted in (None, held):
            return {**settings, FOLDER: str(folder), HASH: held}
        other = other or f"{folder} (sha256 {held[:12]} here, {str(wanted)[:12]} there)"
    raise UsageError(
        f"{other}: is not the language model that this was made with; restore its files, or name "
        f"the right folder: {LLM_VARIABLE}=FOLDER"
    )


def _folders(settings: Mapping[str, Any]) -> list[Path]:
    """Those that there are: the study file's, then the environment's."""
    named = [str(settings.get(FOLDER) or ""), os.environ.get(LLM_VARIABLE, "")]
    folders = [Path(each).expanduser().absolute() for each in named if each]
    if not folders:
        raise UsageError(
            f"{TIME_LLM} needs the folder of a language model, which nobody fetches for you: set "
            f"{LLM_VARIABLE}=FOLDER, or {FOLDER} under [model_settings] of a study file of your own"
        )
    there = [each for each in folders if each.is_dir()]
    if not there:
        raise UsageError(
            f"{folders[0]}: there is no such folder; {TIME_LLM} needs a language model there, or "
            f"{LLM_VARIABLE}=FOLDER"
        )
    return there


def folder_sha256(folder: Path) -> str:
    """Of all its files' names and hashes, but for hidden ones.

    Raises:
        UsageError: it lacks what a language model needs, or is no folder of one.
    """
    lacking = [name for name, pattern in NEEDED.items() if not any(folder.glob(pattern))]
    if lacking:
        raise UsageError(
            f"{folder}: holds no {' and no '.join(lacking)}; name the folder of a language model, "
            f"as 'hf download gpt2 --local-dir gpt2' makes it"
        )
    names = (each.relative_to(folder) for each in folder.rglob("*"))
    seen = (name for name in names if not any(part.startswith(".") for part in name.parts))
    files = [*itertools.islice((each for each in seen if (folder / each).is_file()), MOST_FILES)]
    if len(files) == MOST_FILES:
        raise UsageError(f"{folder}: holds {MOST_FILES} files or more; name the model's alone")
    held = [[name.as_posix(), file_sha256(folder / name)] for name in sorted(files)]
    return hashlib.sha256(json.dumps(held).encode()).hexdigest()


def without_path(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What of them identifies a study: the folder may lie anywhere."""
    return {name: value for name, value in settings.items() if name != FOLDER}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLlmSettings:
    """What the network is built with; each is a fixed setting of a study, or searched."""

    hidden_size: int
    """The width of a patch, and so many features of the language model's output are read."""
    dropout: float
    folder: str
    folder_sha256: str
    words: str = ""
    """What the data are, for the prompt."""
    llm_layers: int = 6
    """The first so many of the language model."""
    prompt_tokens: int = 128
    """Of which a longer prompt keeps the last; a shorter one is filled up in front."""
    top_lags: int = 5
    patch_length: int = 16
    patch_step: int = 8
    n_heads: int = 8
    n_prototypes: int = 1000

    @staticmethod
    def of(arguments: Mapping[str, Any]) -> TimeLlmSettings:
        """Raises UsageError, one line that names what is wrong, of settings or folder."""
        fields = {each.name: each for each in dataclasses.fields(TimeLlmSettings)}
        for name, value in arguments.items():
            if name not in fields:
                raise unknown_name(f"setting of variant {TIME_LLM!r}", name, [*fields][2:])
            whole, whole_given = fields[name].type == "int", type(value) is int
            if whole and not (whole_given and value >= 1):
                raise UsageError(
                    f"variant {TIME_LLM!r}: {name} must be a whole number of at least 1, not "
                    f"{value!r}"
                )
            if fields[name].type == "str" and not isinstance(value, str):
                raise UsageError(f"variant {TIME_LLM!r}: {name} must be text, not {value!r}")
        return TimeLlmSettings(**with_hash(arguments))
