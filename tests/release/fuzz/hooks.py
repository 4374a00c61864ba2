"""Fuzzer of the state that a hook gets on standard input."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

from release.fuzz.launcher_parsers import LauncherParser
from release.fuzz.properties import MOST_LINE, check_same
from support.files import write
from support.ledger.samples import left_in, record
from vcuda_hook.hooks import main
from vcuda_oci.container import hook_state
from vcuda_oci.container.identity import is_pod
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model import jsontree
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.pages import limits

_HIDDEN_PID = (b"\\u0070", b"\\u0069", b"\\u0064")


class State:
    """A hook refuses what is no state in one line, and releases what its own container held.

    The driver root is empty, so a creating hook never comes to change a process's namespaces.
    """

    def __init__(self, folder: str) -> None:
        self.launcher, self.ledger = LauncherParser(), Ledger(folder + "/state")
        os.makedirs(folder + "/nothing")
        lines = [f'state-dir = "{folder}/state"', f'driver-root = "{folder}/nothing"']
        self.settings = write(folder + "/config.toml", "\n".join(lines))
        write(folder + "/bundle/config.json", '{"annotations": {"vcuda.io/core": "30"}}')
        self.folder = folder

    def __call__(self, content: bytes) -> None:
        content = content.replace(b"@folder@", os.fsencode(self.folder))
        if not os.path.exists(self.ledger.allocations + "/box.json"):
            with self.ledger:
                self.ledger.write(record(), limits.page_of(record()))
        held = left_in(self.ledger.state_dir)
        for kind in ("createRuntime", "prestart"):
            status, result = call([kind], self.settings, content)
            assert status in (0, 1)
            assert result == "" if status == 0 else is_one_line(result)
            assert left_in(self.ledger.state_dir) == held
        status, result = call(["poststop"], self.settings, content)
        assert status == 0
        assert not result or is_one_line(result)
        state = read(content)
        if result or (state and state["id"] != "box"):
            assert left_in(self.ledger.state_dir) == held
        elif state and not is_pod(hook_state.parse_state(content).annotations):
            assert left_in(self.ledger.state_dir) == []
        # A NUL ends the text for C, and only a letter of its own is one.
        if state and not any(part in content for part in (b"\0", *_HIDDEN_PID)):
            self.check_pid(content, state)

    def check_pid(self, content: bytes, state: dict[str, Any]) -> None:
        """The procfs hook finds the process that we find, or none."""
        pid = hook_state.parse_state(content).pid
        if -(1 << 63) <= pid < 1 << 63:
            check_same(pid, self.launcher.pid_of(content))


def read(content: bytes) -> dict[str, Any]:
    """The state where it is one, else {}."""
    try:
        hook_state.parse_state(content)
        return dict(jsontree.loads(content.decode()))
    except (VcudaError, ValueError):
        return {}


def is_one_line(stderr: str) -> bool:
    return stderr.count("\n") == 1 and stderr.endswith("\n") and len(stderr) <= MOST_LINE


def call(words: list[str], settings: str, content: bytes) -> tuple[int, str]:
    """Exit status and stderr of the program, run here: to start it takes longer than it runs."""
    kept, code = sys.argv, 0
    sys.argv = ["vcuda-container-hook", "--config", settings, *words]
    with file_as(0, content), file_as(2, b"") as stderr:
        try:
            main.main()
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            sys.argv = kept
        length = os.lseek(stderr, 0, os.SEEK_END)
        return code, os.pread(stderr, length, 0).decode()


@contextlib.contextmanager
def file_as(number: int, content: bytes) -> Iterator[int]:
    """A file with this content behind the descriptor, for a while."""
    file, kept = os.memfd_create("stream"), os.dup(number)
    os.write(file, content)
    os.lseek(file, 0, os.SEEK_SET)
    os.dup2(file, number)
    try:
        yield file
    finally:
        os.dup2(kept, number)
        os.close(kept)
        os.close(file)
