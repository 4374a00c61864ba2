"""The process that the agent's children are forked from, so that they share imported modules.

A child with its own interpreter needs 5 to 20 MiB for modules that all children import. The agent
forks this process before it does anything else: a process that uses grpc must not fork, and a child
must not inherit a held lock.

Each request is one packet with a JSON object. A request that starts a child has `name` (the agent's
number for it), `module`, `arguments` and three descriptors: the child's stdin, its stdout, and the
pipe for its exit status (negative: the signal that ended it). A request that signals a child has
`name` and `signal`.
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
from typing import Any, NoReturn

from vcuda_oci.guest import process as guest_process
from vcuda_oci.system.settings_file import Config

from . import confine, rights

_MOST_BYTES = 65536
_DESCRIPTORS = 3
# A signal to the agent's process group is for the agent, which then ends its children.
_IGNORED = (signal.SIGTERM, signal.SIGINT)
_BLOCKED = (*_IGNORED, signal.SIGCHLD)
# Source: prctl(2).
_PR_SET_PDEATHSIG = 1


class ForkServer:
    """Starts, signals and reaps children. requests: the packet socket to the agent. settings: the
    agent's, which each child gets as they were when the agent started.
    """

    def __init__(self, requests: socket.socket, settings: Config) -> None:
        self._requests, self._settings = requests, settings
        self._children: dict[int, tuple[int, int]] = {}  # name and status pipe, by pid

    def serve(self) -> None:
        """Answer requests until the agent closes its end or ends."""
        guest_process.set_own_name("fork_server")
        confine.confine(rights.FORK_SERVER)
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: self._reap())
        while True:
            packet, descriptors, _, _ = socket.recv_fds(self._requests, _MOST_BYTES, _DESCRIPTORS)
            if not packet:
                return
            # Block SIGCHLD: a child must not be reaped between finding its pid and signalling it.
            # Block the others too: a signal to a new child must wait until its handlers are set.
            signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
            request = json.loads(packet)
            if "signal" in request:
                self._send_signal(request)
            else:
                self._start(request, descriptors)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _BLOCKED)

    def _start(self, request: dict[str, Any], descriptors: list[int]) -> None:
        stdin, stdout, status = descriptors
        server = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            os.close(status)  # closed empty: the child could not be started
        else:
            if pid == 0:
                others = [status, *(pipe for _, pipe in self._children.values())]
                self._requests.close()
                arguments = (self._settings, *request["arguments"])
                _become(request["module"], arguments, (stdin, stdout), others, server)
            self._children[pid] = request["name"], status
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
                _, pipe = self._children.pop(pid)
                with contextlib.suppress(BrokenPipeError):
                    os.write(pipe, b"%d" % os.waitstatus_to_exitcode(status))
                os.close(pipe)


def _become(
    module: str,
    arguments: tuple[Any, ...],
    streams: tuple[int, int],
    others: list[int],
    server: int,
) -> NoReturn:
    """Run `main(*arguments)` of a module in the forked child, then exit as a program would.

    streams: the child's stdin and stdout. others: descriptors to close. server: the fork server's
    pid.
    """
    status = 1
    try:
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        for descriptor in (*streams, *others):
            os.close(descriptor)
        # Reopen both: the child must not write what the agent left in its own output buffer.
        sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _BLOCKED)
        guest_process.set_own_name(module.rpartition(".")[2])
        _confine(module, arguments)
        # End the child with the fork server, which ends with the agent. Set this after the uid: the
        # kernel clears the signal when a process changes its uid.
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


def _confine(module: str, arguments: tuple[Any, ...]) -> None:
    confine.confine(rights.of(module))
    needed_files = getattr(importlib.import_module(module), "needed_files", None)
    if needed_files:
        confine.only_files(*needed_files(*arguments))
