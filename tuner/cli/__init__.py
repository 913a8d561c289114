"""The command line: parse, call, print.
Everything heavy is imported inside the command that needs it.
"""

from tuner.cli.main import main

__all__ = ["main"]
