"""What is raised. Every exception of shardline is an Error."""

from __future__ import annotations

from typing import Sequence, Tuple

from ._results import Diagnostic


class Error(Exception):
    """An answer that there is none. ``str()`` has every fault as text, each with its source line."""

    diagnostics: Tuple[Diagnostic, ...]
    """Every fault that was found, with its place; empty where a fault is of no text."""

    def __init__(self, text: str, diagnostics: Sequence[Diagnostic] = ()) -> None:
        super().__init__(text.rstrip("\n"), tuple(diagnostics))
        self.diagnostics = tuple(diagnostics)

    def __str__(self) -> str:
        return str(self.args[0])

    @property
    def file(self) -> str:
        """Of the first fault; empty where it has no place in a text."""
        return self.diagnostics[0].file if self.diagnostics else ""

    @property
    def line(self) -> int:
        """From 1; 0 likewise."""
        return self.diagnostics[0].line if self.diagnostics else 0

    @property
    def column(self) -> int:
        """From 1; 0 likewise."""
        return self.diagnostics[0].column if self.diagnostics else 0

    @property
    def key(self) -> str:
        """Of the first fault the path of its key, for instance ``workload.input``, or the argument; empty: neither."""
        return self.diagnostics[0].key if self.diagnostics else ""


class BadInput(Error, ValueError):
    """Of an argument, or of a file that it names: exit code 2 of the program."""


def of_argument(name: str, text: str) -> BadInput:
    """The fault of the argument ``name``, in a text of no file."""
    return BadInput(text, [Diagnostic(file="", line=0, column=0, key=name, message=text, details=())])


class NoPlan(Error):
    """No plan fits or meets the target: exit code 3 of the program.

    Only ``check()`` of a result raises it: that there is no plan is an answer, with the nearest plan and what
    was left out.
    """


class Interrupted(Error):
    """The function given as ``cancelled`` said so. Ctrl-C raises KeyboardInterrupt."""


class InternalError(Error):
    """A bug of shardline: exit code 1 of the program."""
