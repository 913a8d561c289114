"""Runs a command, and turns every failure into one clear line and the right exit code."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

from tuner.cli.output import print_json
from tuner.cli.sigterm import WORDS, terminate
from tuner.display.terminal import OneLine
from tuner.display.text import shown
from tuner.errors import INTERRUPTED, TERMINATED, TunerError, UsageError, exit_code_of

SIZES = ("COLUMNS", "LINES", "TERMINAL_WIDTH")
"""What says how large a terminal is, for rich and typer."""
MOST_COLUMNS = 100_000


def run(arguments: list[str]) -> int:
    """The exit code of a command line: 0 done, 2 misuse,
    1 failure, 130 or 143 after an interruption.
    """
    _print_anything()
    try:
        return _call(arguments)
    except TunerError as error:
        return _fail(arguments, str(error), error.exit_code)
    except KeyboardInterrupt as error:
        code = exit_code_of(error)
        return _fail(arguments, WORDS[code], code)
    except OSError as error:
        return _fail(arguments, _describe(error), TunerError.exit_code)
    except Exception as error:
        # Misuse as the command-line parser reports it; typer brings click under a name of its own.
        if hasattr(error, "format_message"):
            return _misused(arguments, error)
        if (said := _foreseen(error)) is not None:
            return _fail(arguments, said, TunerError.exit_code)
        raise


def _foreseen(error: Exception) -> str | None:
    """What is to be said of a database that fails, or a package that is not there."""
    from tuner.storage.retry import DATABASE_FAILURES, failure_of

    if isinstance(error, DATABASE_FAILURES):
        return str(failure_of(error))
    if isinstance(error, ModuleNotFoundError) and error.name:
        return _missing(error.name)
    return None


def _missing(module: str) -> str:
    """Of a package that is needed and not there; our own modules are."""
    if module.partition(".")[0] == "tuner":
        return f"module {module} is missing: install tuner again"
    return f"package {module!r} is not installed here, and this takes it: pip install {module}"


def _print_anything() -> None:
    """Names are in any script: where an encoding lacks a character, its escape is printed instead
    of a traceback.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if logging.lastResort is not None:  # what prints warnings as long as nobody has set up a log
        logging.lastResort.setFormatter(OneLine("%(message)s"))


def _call(arguments: list[str]) -> int:
    """The command's exit code. That a reader of its output (`| head`)
    has seen enough is no failure.
    """
    try:
        code = _app(arguments)(arguments, standalone_mode=False, prog_name="tuner")
        if sys.stdout is not None:
            sys.stdout.flush()  # now, when a failure can still be told
    except SystemExit as ended:
        if not isinstance(ended.__context__, BrokenPipeError):  # how typer and rich end then
            raise
    except BrokenPipeError:
        pass
    else:
        return code if isinstance(code, int) else 0
    _leave_stdout()
    return 0


def _app(arguments: list[str]) -> Any:
    """All commands, in surroundings that their imports can rely on."""
    with _interrupted_at_once(arguments):
        _forget_odd_sizes()
        from tuner.files.environment import provide_home

        if (line := provide_home(os.environ)) and sys.stderr is not None:
            print(f"tuner: {line}", file=sys.stderr)  # noqa: T201 - this is the command line
        from tuner.cli.app import whole

        parser = whole()
        for name in arguments[:1]:
            parser.commands.get(name)  # its imports, too
        return parser


def _forget_odd_sizes() -> None:
    """A terminal of no columns, or of `wide` ones, is as good as one that does not say: rich and
    typer fail on it.
    """
    for name in SIZES:
        given = os.environ.get(name, "1")
        if not (re.fullmatch("[0-9]{1,9}", given) and 0 < int(given) <= MOST_COLUMNS):
            del os.environ[name]


@contextlib.contextmanager
def _interrupted_at_once(arguments: list[str]) -> Iterator[None]:
    """Ctrl-C or SIGTERM while everything is imported: nothing is begun,
    and an exception could get lost in somebody's module.
    """

    def end(number: int, frame: object) -> None:
        del frame
        code = TERMINATED if number == signal.SIGTERM else INTERRUPTED
        os._exit(_fail(arguments, WORDS[code], code))

    heard = []  # others are ignored, or a caller's own
    if threading.current_thread() is threading.main_thread():
        usual: dict[int, Any] = {
            signal.SIGINT: signal.default_int_handler,
            signal.SIGTERM: terminate,
        }
        heard = [each for each in usual.items() if signal.getsignal(each[0]) is each[1]]
    for number, _ in heard:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in heard:
            signal.signal(number, handler)


def _misused(arguments: list[str], error: Any) -> int:
    """What the parser refused: its sentence, what was given, and where the help is; no command at
    all gets the help.
    """
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.format_message(), file=sys.stderr)  # noqa: T201 - this is the command line
        return UsageError.exit_code
    message = " ".join(error.format_message().split()).replace("Value error, ", "").rstrip(".")
    cause = error.__cause__
    if hasattr(cause, "errors"):  # a validation error, which knows the value
        given = repr(cause.errors()[0]["input"])
        message += "" if given in message else f", got {given}"
    context = getattr(error, "ctx", None)
    if context is not None:
        message += f"; see '{context.command_path} --help'"
    return _fail(arguments, message, UsageError.exit_code)


def _fail(arguments: list[str], message: str, code: int) -> int:
    message = " ".join(message.splitlines())
    try:
        if "--json" in arguments:
            print_json({"error": {"message": message, "exit_code": code}})
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:  # it may be what failed, such as a file on a full disk
        _leave_stdout()
    if sys.stderr is not None:
        print(f"tuner: error: {shown(message)}", file=sys.stderr)  # noqa: T201 - this is the command line
    return code


def _leave_stdout() -> None:
    """What is still to be written goes nowhere:
    the interpreter would try once more at its end, and complain.
    """
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _describe(error: OSError) -> str:
    return f"{error.filename or 'writing or reading failed'}: {error.strerror or error}"
