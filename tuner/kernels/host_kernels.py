"""The elementwise work of a network on a CPU as kernels of our own (`host_kernels.cpp`).

Left to PyTorch, ReLU, dropout, residual and norm pass over a plane ten times and draw random bits
for every mask, which takes as long as the products. Here each direction passes over
it once, a window at a time. A mask is a hash of the element's number under a key of 64 bits, drawn
from torch's generator for each; its rate is a multiple of 2^-32.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tuner.errors import TunerError
from tuner.files.child import in_words, ran
from tuner.models.dropout import Elementwise, Stretch

_WORDS = 1 << 32


class _Dropout(NamedTuple):
    """As the kernels take it: an element is dropped where its word, a signed number, is below
    `bound`.
    """

    bound: int
    first: int
    second: int
    scale: float


class _Plane(NamedTuple):
    """(samples, segments, width) and its strides; the last one is 1."""

    samples: int
    segments: int
    width: int
    sample_stride: int
    segment_stride: int


class HostKernels(Elementwise):
    """For fp32 planes on a CPU; of other tensors it leaves the work to PyTorch.

    Args:
        library: the kernels, built.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def relu_dropout(
        self, x: Tensor, p: float, *, training: bool, stretch: Stretch | None = None
    ) -> Tensor:
        if not training or not _serves(x):
            return super().relu_dropout(x, p, training=training, stretch=stretch)
        if stretch is not None:
            x = stretch(x)
        result: Tensor = _ReluDropout.apply(self._library, x, p)  # type: ignore[no-untyped-call]
        return result

    def join(
        self, residual: Tensor, x: Tensor, p: float, norm: nn.Module, *, relu: bool, training: bool
    ) -> Tensor:
        # PyTorch's are as fast where nothing is dropped and no gradient wanted.
        if not (training and _serves(x) and _serves(residual)):
            return super().join(residual, x, p, norm, relu=relu, training=training)
        residual = residual.expand_as(x)
        if isinstance(norm, nn.LayerNorm) and norm.normalized_shape == x.shape[1:]:
            joined: Tensor = _JoinNorm.apply(  # type: ignore[no-untyped-call]
                self._library, residual, x, p, norm.weight, norm.bias, norm.eps, relu
            )
            return joined
        added: Tensor = _Join.apply(self._library, residual, x, p, relu)  # type: ignore[no-untyped-call]
        mixed: Tensor = norm(added)
        return mixed


def _serves(x: Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype == torch.float32 and x.dim() == 3  # noqa: PLR2004


class _ReluDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, library: ctypes.CDLL, x: Tensor, p: float) -> Tensor:
        x = _along_rows(x)
        result = x.new_empty(x.shape)
        mask = _draw(p)
        library.relu_dropout(*_at(x, result), *_plane(x), *mask, torch.get_num_threads())
        ctx.save_for_backward(result)
        ctx.library, ctx.scale = library, mask.scale
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor, None]:
        (result,) = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        grad_x = _through(ctx.library.relu_dropout_backward, gradient, result, ctx.scale)
        return None, grad_x, None


def _through(backward: Any, gradient: Tensor, kept: Tensor, scale: float) -> Tensor:
    """The gradient of what was dropped out of, by what the forward pass kept."""
    result = torch.empty_like(gradient)
    at = _at(gradient, kept, result)
    backward(*at, kept.numel(), scale, torch.get_num_threads())
    return result


class _Join(torch.autograd.Function):
    """The sum, in the memory of `x`."""

    @staticmethod
    def forward(
        ctx: Any, library: ctypes.CDLL, residual: Tensor, x: Tensor, p: float, relu: bool
    ) -> Tensor:
        added, kept, ctx.scale = _join(library, residual, x, p, relu, None)
        ctx.save_for_backward(kept)
        ctx.library = library
        return added

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (kept,) = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        grad_x = _through(ctx.library.kept_backward, gradient, kept, ctx.scale)
        return None, gradient, grad_x, None, None


class _Norm(NamedTuple):
    """Of `_join`: the affine step, the result's memory, and what a backward pass needs."""

    weight: Tensor
    bias: Tensor
    eps: float
    result: Tensor
    moments: Tensor


class _JoinNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        library: ctypes.CDLL,
        residual: Tensor,
        x: Tensor,
        p: float,
        weight: Tensor,
        bias: Tensor,
        eps: float,
        relu: bool,
    ) -> Tensor:
        norm = _Norm(weight, bias, eps, x.new_empty(x.shape), x.new_empty(len(x), 2))
        added, kept, ctx.scale = _join(library, residual, x, p, relu, norm)
        ctx.save_for_backward(added, kept, weight, norm.moments)
        ctx.library = library
        return norm.result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        added, kept, weight, moments = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        grad_residual, grad_x = torch.empty_like(added), torch.empty_like(added)
        threads = torch.get_num_threads()
        parts = added.new_zeros(threads, 2, weight.numel())
        affine = added.new_empty(2, *weight.shape)
        at = _at(gradient, added, kept, weight, moments, grad_residual, grad_x, parts, affine)
        ctx.library.join_norm_backward(*at, len(added), weight.numel(), ctx.scale, threads)
        return None, grad_residual, grad_x, None, affine[0], affine[1], None, None


def _join(
    library: ctypes.CDLL, residual: Tensor, x: Tensor, p: float, relu: bool, norm: _Norm | None
) -> tuple[Tensor, Tensor, float]:
    """The sum, of which elements of `x` it kept something, and by what they are multiplied."""
    x = x.contiguous()
    residual = _along_rows(residual)
    kept = torch.empty(x.shape, dtype=torch.uint8)
    mask = _draw(p)
    of_norm: list[int | None] = [None] * 4
    if norm is not None:
        of_norm = [*_at(norm.weight, norm.bias, norm.result, norm.moments)]
    library.join_norm(
        *_at(x, residual, kept),
        *of_norm,
        *_plane(residual),
        relu,
        p > 0,
        *mask,
        0.0 if norm is None else norm.eps,
        torch.get_num_threads(),
    )
    return x, kept, mask.scale


def _draw(p: float) -> _Dropout:
    """A fresh mask's key, from torch's generator; without a rate, nothing is drawn."""
    if p == 0:
        return _Dropout(-_WORDS // 2, 0, 0, 1.0)
    key = int(torch.empty((), dtype=torch.int64).random_())
    n_dropped = min(round(p * _WORDS), _WORDS - 1)
    first, second = key >> 32, key & (_WORDS - 1)
    return _Dropout(n_dropped - _WORDS // 2, first, second, _WORDS / (_WORDS - n_dropped))


def _along_rows(x: Tensor) -> Tensor:
    """With numbers that follow each other along the last axis, as the kernels read it."""
    return x if x.stride(2) == 1 else x.contiguous()


def _plane(x: Tensor) -> _Plane:
    return _Plane(*x.shape, *x.stride()[:2])


def _at(*tensors: Tensor) -> list[int]:
    return [tensor.data_ptr() for tensor in tensors]


# Builds the kernels of `host_kernels.cpp` with the machine's C++ compiler, once, and loads them.


SOURCE = Path(__file__).with_name("host_kernels.cpp")
OPTIONS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-fopenmp",
    "-fPIC",
    "-shared",
    "-fno-math-errno",
    "-fno-trapping-math",
)
LONGEST_BUILD_S = 120.0


def why_not_built() -> str | None:
    """Why no kernel can be built here, in one line; None where a compiler is there to do it."""
    if not sys.platform.startswith("linux"):
        return "the kernels for a CPU are built on Linux only"
    if _compiler() is None:
        return "the kernels for a CPU are built with a C++ compiler, and there is no g++"
    return None


def _compiler() -> str | None:
    return os.environ.get("CXX") or shutil.which("g++")


@functools.cache
def library() -> ctypes.CDLL:
    """The kernels, built if they are not yet there.

    Raises:
        TunerError: they cannot be built or loaded.
    """
    compiler = _compiler()
    if compiler is None:
        raise TunerError("the kernels for a CPU need g++, and there is none; use --backend eager")
    try:
        folder = _cache()
        place = folder / f"{_key(compiler)}.so"
        if not place.exists():
            _build(compiler, place)
        return _typed(ctypes.CDLL(str(place)))
    except (OSError, TunerError) as error:
        why = " ".join(str(error).split())
    raise TunerError(
        f"the kernels for a CPU could not be built with {compiler}: {why}; use --backend eager"
    )


def _typed(library: ctypes.CDLL) -> ctypes.CDLL:
    """With the types of the kernels' arguments."""
    at, n, flag, word, number = (
        ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_uint32, ctypes.c_float
    )  # fmt: skip
    plane: list[Any] = [n] * 5
    mask: list[Any] = [flag, word, word, number]
    library.relu_dropout.argtypes = [at, at, *plane, *mask, flag]
    library.relu_dropout_backward.argtypes = [at, at, at, n, number, flag]
    library.join_norm.argtypes = [*[at] * 7, *plane, flag, flag, *mask, number, flag]
    library.join_norm_backward.argtypes = [*[at] * 9, n, n, number, flag]
    library.kept_backward.argtypes = [at, at, at, n, number, flag]
    return library


def _cache() -> Path:
    """The user's own folder for them, or a new one that only this process knows."""
    from platformdirs import user_cache_dir

    # No home, or one that cannot be written: a build takes a second.
    with contextlib.suppress(OSError, RuntimeError):
        folder = Path(user_cache_dir("tuner")) / "host-kernels"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if os.access(folder, os.W_OK):
            return folder
    return Path(tempfile.mkdtemp(prefix="tuner-host-kernels-"))


def _key(compiler: str) -> str:
    version = _compiled(compiler, "--version")
    parts = [SOURCE.read_text(encoding="utf-8"), version, *OPTIONS, _processor()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _processor() -> str:
    """What `-march=native` goes by: a cache may be shared by unlike machines."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        told = [line for line in lines if line.startswith(("model name", "flags", "Features"))]
        return "\n".join(sorted(set(told)))
    return platform.machine()


def _build(compiler: str, place: Path) -> None:
    """Into a name of its own, then renamed: a process beside this one sees all of it or nothing."""
    handle, name = tempfile.mkstemp(suffix=".so", dir=place.parent)
    os.close(handle)
    unfinished = Path(name)
    try:
        _compiled(compiler, *OPTIONS, "-o", name, str(SOURCE))
        unfinished.replace(place)
    finally:
        unfinished.unlink(missing_ok=True)


def _compiled(*words: str) -> str:
    """What the compiler printed; raises TunerError where it fails."""
    done = ran(words, within_s=LONGEST_BUILD_S)
    if done.code:
        raise TunerError(done.said.strip().partition("\n")[0] or in_words(done.code))
    return done.printed
