"""The entry point: runs a command, turns every failure into one clear line and the right exit code."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from tuner.cli.app import app
from tuner.cli.output import print_json
from tuner.errors import INTERRUPTED, TunerError, UsageError


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 2 misuse, 1 failure, 130 or 143 after an interruption."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    sys.exit(_run(arguments))


def _run(arguments: list[str]) -> int:
    try:
        return _call(arguments)
    except TunerError as error:
        return _fail(arguments, str(error), error.exit_code)
    except KeyboardInterrupt:
        return _fail(arguments, "interrupted", INTERRUPTED)
    except OSError as error:
        return _fail(arguments, _describe(error), TunerError.exit_code)
    except Exception as error:
        # Misuse as the command-line parser reports it; typer brings click under a name of its own.
        if hasattr(error, "format_message"):
            return _misused(arguments, error)
        from tuner.storage.retry import DATABASE_FAILURES, cause_of

        if isinstance(error, DATABASE_FAILURES):
            message = f"the database failed: {cause_of(error)}; check it and run again"
            return _fail(arguments, message, TunerError.exit_code)
        raise


def _call(arguments: list[str]) -> int:
    """The command's exit code. That a reader of its output (`| head`) has seen enough is no failure."""
    try:
        code = app(arguments, standalone_mode=False, prog_name="tuner")
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


def _misused(arguments: list[str], error: Any) -> int:
    """What the parser refused: its sentence, what was given, and where the help is; no command at all gets the help."""
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
        print(f"tuner: error: {message}", file=sys.stderr)  # noqa: T201 - this is the command line
    return code


def _leave_stdout() -> None:
    """What is still to be written goes nowhere: the interpreter would try once more at its end, and complain."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _describe(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}" if where else f"writing or reading failed: {error.strerror or error}"
