"""The process that the agent's children are forked from, so that what they import is shared.

A child with an interpreter of its own has 5 to 20 MiB that others have as well. This process is
forked itself, before the agent has begun anything: grpc must not be forked at work, and no child
may hold a lock of the agent's.

A packet that it reads is a JSON object. To start a child: name (the agent's number for it), module,
arguments, and three descriptors: its stdin, its stdout, and where its exit status is written when
it has ended (negative: the signal that ended it). To send one a signal: name and signal.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import signal
import socket
import sys
import traceback
from typing import TYPE_CHECKING

from . import confine, rights

if TYPE_CHECKING:
    from typing import Any, NoReturn

_MOST_BYTES = 65536
_DESCRIPTORS = 3
# Whoever ends the agent's whole group means the agent, which then ends its children.
_IGNORED = (signal.SIGTERM, signal.SIGINT)
_HELD_BACK = (*_IGNORED, signal.SIGCHLD)
# Source: prctl(2).
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


class ForkServer:
    """requests: a socket of packets, whose other end is the agent's."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._children: dict[int, tuple[int, int]] = {}  # name and descriptor for the end, by pid

    def serve(self) -> None:
        """Until the agent has closed its end, or has ended."""
        _call_it(__name__)
        confine.confine(rights.FORK_SERVER)
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: self._reap())
        while True:
            packet, descriptors, _, _ = socket.recv_fds(self._requests, _MOST_BYTES, _DESCRIPTORS)
            if not packet:
                return
            # Nobody is reaped between a look for him and what is done with his pid, and what a
            # child is sent waits until it is one.
            signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)
            request = json.loads(packet)
            if "signal" in request:
                self._send_signal(request)
            else:
                self._start(request, descriptors)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD_BACK)

    def _start(self, request: dict[str, Any], descriptors: list[int]) -> None:
        stdin, stdout, tell = descriptors
        server = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            os.close(tell)  # unwritten: nothing has ended
        else:
            if pid == 0:
                others = [tell, *(tell for _, tell in self._children.values())]
                self._requests.close()
                _become(request["module"], request["arguments"], (stdin, stdout), others, server)
            self._children[pid] = request["name"], tell
        os.close(stdin)
        os.close(stdout)

    def _send_signal(self, request: dict[str, Any]) -> None:
        for pid, (name, _) in self._children.items():
            if name == request["name"]:
                os.kill(pid, request["signal"])

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                _, tell = self._children.pop(pid)
                with contextlib.suppress(BrokenPipeError):
                    os.write(tell, b"%d" % os.waitstatus_to_exitcode(status))
                os.close(tell)


def _become(
    module: str, arguments: list[str], streams: tuple[int, int], others: list[int], server: int
) -> NoReturn:
    """The child whose `main` is called; it ends as a program of its own would.

    streams: its stdin and stdout. others: what is not for it. server: the fork server's pid.
    """
    status = 1
    try:
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        for descriptor in (*streams, *others):
            os.close(descriptor)
        # Anew: what waits in the agent's buffer is not the child's to write.
        sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD_BACK)
        _call_it(module)
        _confine(module, arguments)
        # It does not outlive the fork server, which does not outlive the agent. The kernel forgets
        # this signal when a process changes its uid.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() == server:
            importlib.import_module(module).main(*arguments)
        status = 0
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        else:
            status = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(status)


def _confine(module: str, arguments: list[str]) -> None:
    confine.confine(rights.of(module))
    needed_files = getattr(importlib.import_module(module), "needed_files", None)
    if needed_files:
        confine.only_files(*needed_files(*arguments))


def _call_it(module: str) -> None:
    """By the module's own name, of which the kernel keeps 15 letters."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, module.rpartition(".")[2].encode())
