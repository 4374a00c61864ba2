"""The error for everything that a user can correct: one line with what, where and a hint."""

from __future__ import annotations

_MOST_CHARACTERS = 1000


class VcudaError(Exception):
    """An error line, ``where: what; hint``. Each program catches it once, in ``main``.

    allocation: the allocation's id for log lines; "": none, or not known yet.
    """

    allocation = ""
    exit_code = 1

    def __init__(self, what: str, where: str, hint: str) -> None:
        super().__init__(what, where, hint)
        self.what, self.where, self.hint = what, where, hint

    def __str__(self) -> str:
        # A name from a hostile file may contain line feeds or be very long.
        return _printable(f"{_short(self.where)}: {_short(self.what)}; {_short(self.hint)}")


class NotKnownYetError(VcudaError):
    """Raised by a process that must not wait for a fact; the caller repeats the work in another."""


def with_id(line: str, allocation: str) -> str:
    """Append the allocation's id to the line, unless it is ""."""
    return line + _printable(f" (allocation {_short(allocation)})") if allocation else line


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)


def _short(text: str) -> str:
    """Cut the middle out of a long text: its beginning and its end may both matter."""
    half = _MOST_CHARACTERS // 2
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:half]}...{text[-half:]}"
