"""The native parsers, built with AddressSanitizer and asked for their answers to the same bytes."""

from __future__ import annotations

import struct
import subprocess
from typing import IO

from support.files import ROOT

PROGRAM = ROOT + "/build/fuzz/launcher-answers"


class LauncherParser:
    """What launcher_parsers.h says, in Python. Raises ParserDied with what the sanitizer wrote."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def may_hold_request(self, config: bytes) -> bool:
        return self._answer(b"c" + config) == b"1"

    def read_words(self, words: list[bytes]) -> tuple[bytes, bytes, bytes, bytes]:
        """The config.json that they name, the log, its format, and the claim packet."""
        answer = self._answer(b"w" + b"".join(word + b"\0" for word in words))
        path, log, log_format, packet = answer.split(b"\0", 3)
        return path, log, log_format, packet

    def read_settings(self, content: bytes) -> list[bytes]:
        """runtime and state-dir."""
        return self._answer(b"s" + content).split(b"\0")[:2]

    def log_entries(self, line: bytes) -> list[bytes]:
        """The line's entry as JSON and as text, what follows the last newline too."""
        return self._answer(b"l" + line).split(b"\n")

    def pid_of(self, state: bytes) -> int:
        return int(self._answer(b"p" + state))

    def _answer(self, question: bytes) -> bytes:
        pipes: tuple[IO[bytes] | None, ...] = (self._process.stdin, self._process.stdout)
        to, back = pipes
        assert to and back
        try:
            to.write(struct.pack("=I", len(question)) + question)
            to.flush()
        except BrokenPipeError:
            pass  # its last words say more
        head = back.read(4)
        if len(head) < 4:
            raise ParserDied(self._process.communicate()[1].decode(errors="replace"))
        return back.read(struct.unpack("=I", head)[0])


class ParserDied(Exception):
    pass
