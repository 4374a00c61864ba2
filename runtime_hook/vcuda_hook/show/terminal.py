"""A terminal in raw mode with an alternate screen.

Its state is restored however the program ends, except by SIGKILL.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Sequence

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h\x1b[?1049l"
_ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_KEYS = {
    b"\x1b[A": "up", b"\x1bOA": "up", b"\x1b[B": "down", b"\x1bOB": "down",
    b"\x1b[5~": "page up", b"\x1b[6~": "page down", b" ": "page down",
    b"\x1b[H": "home", b"\x1b[1~": "home", b"\x1b[F": "end", b"\x1b[4~": "end",
    b"\x1bOP": "f1", b"\x1b[11~": "f1", b"\x1b[15~": "f5", b"\x1b[17~": "f6", b"\x1b[21~": "f10",
}  # fmt: skip


class Ended(Exception):
    """A signal asks the program to end, or the terminal was closed. number: the signal, or 0."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def is_usable() -> bool:
    """Whether standard output is a terminal that can show a screen."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def end_by(number: int) -> None:
    """End by the signal, so that its sender sees it as the cause; 0: return."""
    if number:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


class Terminal:
    """A context manager for the terminal. Keys come from standard input if that is a terminal."""

    def __enter__(self) -> Terminal:
        self._wake, self._woken = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._wake, False)
        self._keys, self._pressed = os.isatty(0), b""
        self._before = termios.tcgetattr(0) if self._keys else []
        caught = (*_ENDS, signal.SIGTSTP, signal.SIGWINCH)
        # Python writes each signal's number to this pipe; the handlers do nothing.
        self._handlers = {number: signal.signal(number, lambda *_: None) for number in caught}
        self._fd = signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        self._take()
        return self

    def __exit__(self, *_: object) -> None:
        self._give_back()
        signal.set_wakeup_fd(self._fd)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.close(self._wake)
        os.close(self._woken)

    def size(self) -> os.terminal_size:
        try:
            return os.get_terminal_size(1)
        except OSError:
            raise Ended(0) from None

    def show(self, lines: Sequence[str]) -> None:
        """Replace the screen's content. Raises Ended."""
        text = "\x1b[H" + "\r\n".join(f"{line}\x1b[K" for line in lines) + "\x1b[J"
        self._write(text)

    def key(self, until: float) -> str | None:
        """The next key before `until` (time.monotonic); "": the size may have changed; None: no
        key.

        Raises Ended.
        """
        while True:
            if self._pressed:
                return self._next()
            sources = [self._wake, *([0] if self._keys else [])]
            left = max(0.0, until - time.monotonic())
            ready, _, _ = select.select(sources, [], [], left)
            if not ready:
                return None
            if self._wake in ready:
                if self._signalled(os.read(self._wake, 64)):
                    return ""
            else:
                self._listen()

    def _listen(self) -> None:
        try:
            self._pressed = os.read(0, 1024)
        except OSError:
            pass
        self._keys = bool(self._pressed)  # a closed terminal sends SIGHUP too

    def _next(self) -> str:
        for keys, key in _KEYS.items():
            if self._pressed.startswith(keys):
                self._pressed = self._pressed[len(keys) :]
                return key
        keys, self._pressed = self._pressed[:1], self._pressed[1:]
        return keys.decode("ascii", "replace")

    def _signalled(self, numbers: bytes) -> bool:
        """Whether the screen must be drawn again. Raises Ended."""
        for number in numbers:
            if number in _ENDS:
                raise Ended(number)
            if number == signal.SIGTSTP:
                self._give_back()
                os.kill(os.getpid(), signal.SIGSTOP)
                self._take()
        return bool(numbers)

    def _take(self) -> None:
        if self._keys:
            tty.setcbreak(0, termios.TCSANOW)
        self._write(_ENTER)

    def _give_back(self) -> None:
        try:
            self._write(_LEAVE)
            if self._before:
                termios.tcsetattr(0, termios.TCSANOW, self._before)
        except (Ended, termios.error):
            pass  # the terminal was closed

    def _write(self, text: str) -> None:
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except OSError:
            raise Ended(0) from None
