"""One error for everything that a user can mend: one line that says what, where and how."""

from __future__ import annotations

_MOST_CHARACTERS = 1000


class VcudaError(Exception):
    """Raised where the facts are, caught once, in ``main``. Prints as ``where: what; mend``.

    allocation: the id that log lines carry; "" where it concerns no container, or none that is
    known yet.
    """

    allocation = ""
    exit_code = 1

    def __init__(self, what: str, where: str, mend: str) -> None:
        super().__init__(what, where, mend)
        self.what, self.where, self.mend = what, where, mend

    def __str__(self) -> str:
        # A name from a hostile file must not break the line in two, nor fill a log.
        return _printable(f"{_short(self.where)}: {_short(self.what)}; {_short(self.mend)}")


class NotKnownYetError(VcudaError):
    """A process that must not wait gives up; one of the caller's own waits on."""


def with_id(line: str, allocation: str) -> str:
    """The line with the id of the allocation that it is about; "": of none."""
    return line + _printable(f" (allocation {_short(allocation)})") if allocation else line


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)


def _short(text: str) -> str:
    """What is too long without its middle: its end may say what is wrong with the name in it."""
    half = _MOST_CHARACTERS // 2
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:half]}...{text[-half:]}"
