"""Run a program on a pseudo-terminal and read its screen."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Sequence

import pyte

_PATIENCE_SECONDS = 30


class Terminal:
    """The program leads its own session. output: every byte that the program wrote."""

    def __init__(self, command: Sequence[str], width: int = 80, height: int = 24) -> None:
        self._screen = pyte.Screen(width, height)
        self._stream = pyte.ByteStream(self._screen)
        self.output = b""
        # This end stays open, so that the terminal settings after the program's end can be read.
        self._fd, self.line = pty.openpty()
        self.resize(width, height)
        self.before = termios.tcgetattr(self.line)
        self.pid = os.fork()
        if not self.pid:
            os.setsid()
            fcntl.ioctl(self.line, termios.TIOCSCTTY, 0)
            for standard in (0, 1, 2):
                os.dup2(self.line, standard)
            # COLUMNS would count in place of the terminal's width. A library of the parent's, such
            # as readline, may have set it behind os.environ.
            environment = {**os.environ, "TERM": "xterm-256color"}
            environment.pop("COLUMNS", None)
            os.execve(command[0], list(command), environment)

    def resize(self, width: int, height: int) -> None:
        self._screen.resize(height, width)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("4H", height, width, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def until(self, holds: Callable[[list[str]], object]) -> list[str]:
        """Wait until `holds` is true of the screen's lines; return them."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not holds(lines := [line.rstrip() for line in self._screen.display]):
            assert time.monotonic() < deadline, "\n".join(lines)
            self._read(1)
        return lines

    def end(self, number: int = 0) -> int:
        """Send the signal, if one is named, and wait; return the wait status."""
        if number:
            os.kill(self.pid, number)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            self._read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._read(0)
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)

    def is_as_before(self) -> bool:
        """Whether settings, cursor and screen are as before the program."""
        shown = [self.output.rfind(word) for word in (b"\x1b[?25h", b"\x1b[?1049l")]
        hidden = [self.output.rfind(word) for word in (b"\x1b[?25l", b"\x1b[?1049h")]
        is_shown = all(at > before for at, before in zip(shown, hidden))
        return is_shown and termios.tcgetattr(self.line) == self.before

    def close(self) -> None:
        os.close(self._fd)
        os.close(self.line)

    def _read(self, seconds: float) -> None:
        while select.select([self._fd], [], [], seconds)[0]:
            part = os.read(self._fd, 1 << 16)
            self.output += part
            self._stream.feed(part)
            seconds = 0
