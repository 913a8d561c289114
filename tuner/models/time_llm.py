"""Time-LLM: patches of each target's past, said in a language model's own words, go through that
frozen model after a prompt about the window; a linear head forecasts all quantiles.

Each target is on its own, and covariates are not read. What only depends on the window is made
once: its prompt's tokens, which are kept. What depends on trained weights cannot be: the
prototypes, made of all word embeddings in every step. The prompt's way through the language model
does not either, but would take layers x tokens x width x 4 bytes of each window and target in
bf16: it is computed again.

Legend: B windows, L steps of the past, T steps ahead, C targets, Q quantiles, N = B * C, P patches,
H hidden size, W tokens of a prompt, V words, D width of the language model, K prototypes.

Source: Jin et al. 2024, ICLR, arXiv:2310.01728.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.nn import functional

from tuner.config import ModelShapes
from tuner.errors import UsageError, first_line
from tuner.models.frozen_part import HoldsFrozen
from tuner.models.layers import ReversibleInstanceNorm
from tuner.models.llm_folder import TimeLlmSettings

# The frozen language model, from files alone.


KINDS = ("gpt2", "llama", "mistral", "qwen2")
"""What config.json calls the models that read from left to right and are tried here."""


def language_model(folder: Path, layers: int) -> Any:
    """The first `layers` of the model in a folder, with its word embeddings: float32, on the CPU.

    Raises:
        UsageError: it is of another kind, has fewer layers, or its files do not fit each other.
    """
    from transformers import AutoConfig, AutoModel

    try:
        config = AutoConfig.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        )
        if config.model_type not in KINDS:
            raise UsageError(
                f"{folder}: is of the kind {config.model_type!r}; time-llm takes {', '.join(KINDS)}"
            )
        if layers > config.num_hidden_layers:
            raise UsageError(
                f"llm_layers is {layers}, and the language model in {folder} has "
                f"{config.num_hidden_layers}; lower [space.llm_layers] and its default"
            )
        config.num_hidden_layers = layers
        if getattr(config, "layer_types", None):
            config.layer_types = config.layer_types[:layers]
        with torch.random.fork_rng(devices=[]):  # its first weights are drawn, and then replaced
            model = AutoModel.from_config(
                config, attn_implementation="sdpa", trust_remote_code=False
            ).float()
        model.load_state_dict(_weights(folder, model))
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise UsageError(f"{folder}: no language model of it ({first_line(error)})") from None
    return model


def _weights(folder: Path, model: Any) -> dict[str, Tensor]:
    """Of the layers that `model` has, float32. Raises ValueError where one is missing."""
    wanted, found = model.state_dict().keys(), {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as held:
            for name in held.keys():  # noqa: SIM118 - it is no mapping
                mine = name.removeprefix(f"{model.base_model_prefix}.")
                if mine in wanted:
                    found[mine] = held.get_tensor(name)
    if lacking := sorted(wanted - found.keys()):
        raise ValueError(f"its safetensors lack {lacking[0]}")
    return found


# What is said of each window in front of its patches.


MOST_KEPT = 1 << 20
"""Prompts, some 500 MB of them: with more all are made again, as they come."""


def top_lags(windows: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.int64]:
    """After how many steps each window, (N, L), is most like itself: (N, at most `count`)."""
    length = windows.shape[1]
    centred = windows - windows.mean(axis=1, keepdims=True)
    power = np.abs(np.fft.rfft(centred, axis=1)) ** 2
    alike = np.fft.irfft(power, n=length, axis=1)[:, 1 : length // 2 + 1]
    return np.argsort(-alike.round(9), axis=1, kind="stable")[:, :count] + 1


class Prompts:
    """The tokens of each window's prompt, made once and kept on the host.

    Args:
        tokenizer: of the package `tokenizers`.
        about: how every prompt begins.
        length: W, of every prompt.
        lags: of which so many are named.
        filler: the token in front of a shorter prompt.
    """

    def __init__(self, tokenizer: Any, about: str, length: int, lags: int, filler: int) -> None:
        self._tokenizer = tokenizer
        self._about = about
        self._length = length
        self._lags = lags
        self._filler = filler
        self._rows: dict[int, int] = {}
        self._table = torch.empty(0, length, dtype=torch.int32)
        self.made = 0
        """Prompts that were written and tokenised so far."""

    def tokens(self, windows: Tensor, keys: Tensor) -> Tensor:
        """(N, L) and their `keys` (N,) -> (N, W), on the device of the windows."""
        names: list[int] = keys.tolist()
        new = {name: place for place, name in enumerate(names) if name not in self._rows}
        if len(self._rows) + len(new) > MOST_KEPT:
            self._rows, self._table = {}, self._table[:0]
            new = {name: place for place, name in enumerate(names)}
        if new:
            values = windows[[*new.values()]].cpu().double().numpy()
            made = torch.tensor(self._written(values), dtype=torch.int32)
            self._keep(made, new)
        rows = torch.tensor([self._rows[name] for name in names])
        return self._table[rows].to(windows.device)

    def _keep(self, made: Tensor, names: Mapping[int, int]) -> None:
        first = len(self._rows)
        if first + len(made) > len(self._table):  # twice as large, not once for each batch
            empty = made.new_empty(max(first, len(made)) + len(made), self._length)
            self._table = torch.cat([self._table[:first], empty])
        self._table[first : first + len(made)] = made
        self._rows |= {name: first + n for n, name in enumerate(names)}

    def _written(self, windows: npt.NDArray[np.float64]) -> list[list[int]]:
        texts = [
            f"{self._about} Input statistics: min value {low:.3g}, max value {high:.3g}, median "
            f"value {middle:.3g}, the trend of input is {'upward' if rise > 0 else 'downward'}, "
            f"top {len(lags)} lags are {', '.join(map(str, lags))}."
            for low, high, middle, rise, lags in zip(
                windows.min(axis=1),
                windows.max(axis=1),
                np.median(windows, axis=1),
                windows[:, -1] - windows[:, 0],
                top_lags(windows, self._lags).tolist(),
                strict=True,
            )
        ]
        self.made += len(texts)
        encoded = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        return [self._filled(each.ids) for each in encoded]

    def _filled(self, tokens: Sequence[int]) -> list[int]:
        kept = [*tokens[-self._length :]]
        return [self._filler] * (self._length - len(kept)) + kept


@functools.lru_cache(maxsize=4)
def prompts_of(
    file: Path, _sha256: str, about: str, length: int, lags: int, filler: int
) -> Prompts:
    """By the tokenizer in a file, one for all trainings of a process that say the same of their
    windows; the rest as `Prompts`.

    Raises:
        UsageError: a tokenizer.json that cannot be read.
    """
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # noqa: BLE001 - the package raises nothing more special
        raise UsageError(f"{file}: is no tokenizer ({first_line(error)})") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return Prompts(tokenizer, about, length, lags, filler)


# The network around it.


class Reprogramming(nn.Module):
    """Cross-attention from patches to prototypes: a patch becomes a mixture of words."""

    def __init__(self, hidden_size: int, n_heads: int, width: int, dropout: float) -> None:
        super().__init__()
        self.n_heads, self.dropout = n_heads, dropout
        self.query = nn.Linear(hidden_size, hidden_size * n_heads)
        self.key = nn.Linear(width, hidden_size * n_heads)
        self.value = nn.Linear(width, hidden_size * n_heads)
        self.out = nn.Linear(hidden_size * n_heads, width)

    def forward(self, patches: Tensor, prototypes: Tensor) -> Tensor:
        """(N, P, H), (K, D) -> (N, P, D)."""
        asked = self.query(patches).flatten(0, 1)  # the same keys for all: one long sequence
        query, key, value = (
            each.unflatten(-1, (self.n_heads, -1)).transpose(0, 1).unsqueeze(0)
            for each in (asked, self.key(prototypes), self.value(prototypes))
        )
        dropped = self.dropout if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(query, key, value, dropout_p=dropped)
        said: Tensor = self.out(mixed.squeeze(0).transpose(0, 1).flatten(1))
        return said.view(*patches.shape[:2], -1)


class TimeLLM(HoldsFrozen):
    """Called as (past, future, static) -> (B, T, C, Q); of `past` it reads the targets alone.

    Args:
        shapes: of the task.
        settings: of the variant.

    Raises:
        UsageError: settings that do not fit the task, or the language model.
    """

    multipliers: Tensor
    why_eager = "each window's prompt is looked up on the host"

    def __init__(self, shapes: ModelShapes, settings: TimeLlmSettings) -> None:
        _check_past(shapes, settings)
        super().__init__(language_model(Path(settings.folder), settings.llm_layers))
        self.shapes, self.settings = shapes, settings
        config = self.frozen.config
        n_words, width = self.frozen.get_input_embeddings().weight.shape
        n_patches = (shapes.input_size - settings.patch_length) // settings.patch_step + 2
        _check_room(settings, n_patches, width, config)
        hidden = settings.hidden_size
        self.prompts = prompts_of(
            Path(settings.folder) / "tokenizer.json",
            settings.folder_sha256,
            _about(shapes, settings.words),
            settings.prompt_tokens,
            settings.top_lags,
            _filler(config, n_words),
        )
        self.norm = ReversibleInstanceNorm(shapes.n_targets)
        self.embed = nn.Conv1d(
            settings.patch_length, hidden, 3, padding=1, padding_mode="circular", bias=False
        )
        self.prototypes = nn.Linear(n_words, settings.n_prototypes)
        self.reprogram = Reprogramming(hidden, settings.n_heads, width, settings.dropout)
        self.dropout = nn.Dropout(settings.dropout)
        self.head = nn.Linear(n_patches * hidden, shapes.horizon * shapes.n_quantiles)
        drawn = torch.Generator().manual_seed(0)
        odd = torch.randint(-(2**62), 2**62, (shapes.input_size,), generator=drawn) | 1
        self.register_buffer("multipliers", odd, persistent=False)

    def forward(
        self, past: Tensor, future: Tensor | None = None, static: Tensor | None = None
    ) -> Tensor:
        """(B, L, C + P + F), and what is not read -> (B, T, C, Q)."""
        del future, static
        windows = past[..., : self.shapes.n_targets]
        tokens = self.prompt_tokens(windows)  # (N, W)
        normed, statistics = self.norm(windows)
        normed = torch.addcmul(self.norm.bias, normed, self.norm.weight)
        out = self.head(self.dropout(self._read(self._patches(normed), tokens).flatten(1)))
        sizes = self.shapes.n_targets, self.shapes.horizon, self.shapes.n_quantiles
        forecast = out.to(past.dtype).view(-1, *sizes).transpose(1, 2)
        restored: Tensor = self.norm.inverse(forecast, statistics)
        return restored

    def see(self, past: Tensor) -> None:
        self.prompt_tokens(past[..., : self.shapes.n_targets])

    @torch.no_grad()
    def prompt_tokens(self, windows: Tensor) -> Tensor:
        """(B, L, C) -> (N, W)."""
        rows = windows.float().transpose(1, 2).flatten(0, 1).contiguous()  # (N, L)
        # Whole numbers, so on every device the same: a key of 64 bits that no two windows share.
        # They are seen before the network goes to their device.
        keys = (rows.view(torch.int32).long() * self.multipliers.to(rows.device)).sum(dim=1)
        return self.prompts.tokens(rows, keys)

    def _patches(self, normed: Tensor) -> Tensor:
        """(B, L, C) -> (N, P, H)."""
        settings = self.settings
        rows = normed.transpose(1, 2)
        padded = functional.pad(rows, (0, settings.patch_step), mode="replicate").flatten(0, 1)
        patches = padded.unfold(1, settings.patch_length, settings.patch_step)
        embedded: Tensor = self.embed(patches.transpose(1, 2)).transpose(1, 2)
        return self.dropout(embedded)  # type: ignore[no-any-return]

    def _read(self, patches: Tensor, tokens: Tensor) -> Tensor:
        """(N, P, H), (N, W) -> (N, P, H): what the language model makes of the patches."""
        words = self.frozen.get_input_embeddings()
        prototypes = self.prototypes(words.weight.T.to(self.prototypes.weight.dtype)).T  # (K, D)
        said = self.reprogram(patches, prototypes)
        with torch.autocast(patches.device.type, enabled=False):  # it is in its own precision
            sentence = torch.cat([words(tokens), said.to(words.weight.dtype)], dim=1)
            read = self.frozen(inputs_embeds=sentence, use_cache=False).last_hidden_state
        of_patches: Tensor = read[:, tokens.shape[1] :, : patches.shape[2]]
        return of_patches.to(self.head.weight.dtype)


def build_time_llm(shapes: ModelShapes, arguments: Mapping[str, Any]) -> TimeLLM:
    """Raises UsageError for settings, a folder or a task that does not go with them."""
    return TimeLLM(shapes, TimeLlmSettings.of(arguments))


def _about(shapes: ModelShapes, words: str) -> str:
    """How the prompt of every window of a task begins."""
    data = f"Dataset description: {words} " if words else ""
    return (
        f"{data}Task description: forecast the next {shapes.horizon} steps given the previous "
        f"{shapes.input_size} steps."
    )


def _filler(config: Any, n_words: int) -> int:
    ends = config.eos_token_id
    first = ends[0] if isinstance(ends, list) and ends else ends
    return first if isinstance(first, int) and 0 <= first < n_words else 0


def _check_past(shapes: ModelShapes, settings: TimeLlmSettings) -> None:
    if shapes.input_size < settings.patch_length:
        raise UsageError(
            f"time-llm: patch_length {settings.patch_length} is more than the {shapes.input_size} "
            "steps of the past; set a smaller one under [model_settings]"
        )


def _check_room(settings: TimeLlmSettings, n_patches: int, width: int, config: Any) -> None:
    if settings.hidden_size > width:
        raise UsageError(
            f"time-llm: hidden_size {settings.hidden_size} is more than the {width} features of "
            "the language model; lower [space.hidden_size]"
        )
    room, needed = config.max_position_embeddings, settings.prompt_tokens + n_patches
    if needed > room:
        raise UsageError(
            f"time-llm: {settings.prompt_tokens} tokens and {n_patches} patches are {needed}, and "
            f"the language model takes {room}; lower prompt_tokens under [model_settings]"
        )
