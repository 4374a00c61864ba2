"""The launcher alone: Python and the runtime behind it are recorders of their calls."""

from __future__ import annotations

import json
from typing import Any

from support.files import write
from support.wrapper.installed_wrapper import Installed, Recorder

ASKS = json.dumps({"annotations": {"vcuda.io/core": "30"}})
PLAIN = json.dumps({"process": {"env": ["PATH=/bin"]}})
START = (
    "import sys; sys.path.insert(0, '{path}'); import vcuda_oci.packed; "
    "from vcuda_oci.start.main import main; main(sys.argv[1:])"
)


class Launcher:
    """The launcher with a recorder in place of Python, and two bundles."""

    def __init__(self, folder: Any, machine: str = "amd64") -> None:
        self.folder = str(folder)
        self.python = Recorder(self.folder + "/python")
        self.installed = Installed(self.folder + "/prefix", self.python.path, machine)
        self.runtime = self.installed.runtime
        self.cwd = self.folder + "/cwd"
        write(self.cwd + "/config.json", PLAIN)
        write(self.cwd + "/asking.json", ASKS)
        write(self.folder + "/plain/config.json", PLAIN)
        write(self.folder + "/plain/asking.json", PLAIN)
        write(self.folder + "/asks/config.json", ASKS)

    def reset(self) -> None:
        self.installed.configure(runtime=self.runtime.path)
        self.runtime.forget()
        self.python.forget()

    def call(self, *words: str, **options: Any) -> tuple[str, list[str]]:
        """Return which of the two recorders was called, and its argv."""
        self.runtime.forget()
        self.python.forget()
        ran = self.installed.call(*words, cwd=self.cwd, **options)
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")
        called = {"runtime": self.runtime.calls(), "python": self.python.calls()}
        [(program, [(argv, _, _)])] = [
            (program, calls) for program, calls in called.items() if calls
        ]
        return program, argv

    def to_runtime(self, *words: str) -> tuple[str, list[str]]:
        return "runtime", [self.runtime.path, *words]

    def to_python(self, *words: str) -> tuple[str, list[str]]:
        start = START.format(path=self.installed.python_path)
        ours = ["-I", "-S", "-B", "-c", start, self.installed.settings, self.runtime.path]
        return "python", [self.python.path, *ours, *words]
