"""Run questions that may hang, each in its own process, with a time limit.

A driver, an engine or a file system that hangs cannot be interrupted in this process. A process
that waits in the kernel cannot even be killed; it is left behind.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

_PAUSE_S = 0.005
_LAST_WORDS_S = 0.2


class Unanswered(NamedTuple):
    """reason: why there is no answer, such as "no answer in 10 s"."""

    reason: str


class _Asked:
    """pid: 0 once it has ended, as `status` says. answer: a file in memory."""

    def __init__(self, question: Callable[[], Any]) -> None:
        self.answer, self.status = os.memfd_create("answer"), 0
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.setpgid(0, 0)  # a process group, so that its children can be killed too
                # A child that stays behind must not keep this program's output open for its reader.
                quiet = os.open(os.devnull, os.O_RDWR)
                for stream in (0, 1, 2):
                    os.dup2(quiet, stream)
                os.write(self.answer, json.dumps(question()).encode())
                code = 0
            except BaseException:
                os.write(self.answer, traceback.format_exc().encode())
            finally:
                os._exit(code)

    def has_ended(self) -> bool:
        if self.pid:
            ended, self.status = os.waitpid(self.pid, os.WNOHANG)
            self.pid = 0 if ended else self.pid
        return self.pid == 0

    def result(self) -> Any:
        """The answer of a child that has ended, or the reason why there is none."""
        with open(self.answer, "rb") as file:
            file.seek(0)
            text = file.read()
        if os.WIFSIGNALED(self.status):
            name = signal.Signals(os.WTERMSIG(self.status)).name
            return Unanswered(f"the process that asked ended with {name}")
        if self.status != 0:
            sys.stderr.write(text.decode())
            return Unanswered("the process that asked failed")
        return json.loads(text)

    def end(self) -> None:
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:  # the child had not made its process group yet
            os.kill(self.pid, signal.SIGKILL)
        os.close(self.answer)


def ask(questions: Sequence[Callable[[], Any]], seconds: float) -> list[Any]:
    """The answers, through JSON; Unanswered: a timeout, a crash, or an exception, which is reported
    on stderr.

    All questions run at once. After the time limit a child and its process group are killed.
    """
    asked = [_Asked(question) for question in questions]
    late: list[_Asked] = []
    try:
        _wait(asked, seconds)
    finally:
        late += [one for one in asked if not one.has_ended()]
        for one in late:
            one.end()
        _wait(late, _LAST_WORDS_S)
    return [
        Unanswered(f"no answer in {seconds:g} s") if one in late else one.result() for one in asked
    ]


def _wait(asked: Sequence[_Asked], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not all(one.has_ended() for one in asked) and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
