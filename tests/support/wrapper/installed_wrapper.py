"""Install the wrapper below a prefix, with a low-level runtime that records its calls."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from support import compiled
from support.files import ROOT, write
from support.host import arm64

SOURCES = ROOT + "/oci/launcher"
MAINS = ("main.c", "hook.c", "procfs_hook.c")
WARNINGS = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"]
# By machine. arm64 programs are cross-compiled as for the packages and run in the emulator.
COMPILERS = {
    "amd64": ["gcc"],
    "arm64": [arm64.CC, "-specs", ROOT + "/build/arm64/musl/musl-gcc.specs"],
}


class Recorder:
    """`path`: the executable. calls(): (argv, environ, ignored signals) of each call so far."""

    def __init__(self, folder: str) -> None:
        os.makedirs(folder)
        self.folder, self.path = folder, folder + "/recorder"
        source = ROOT + "/tests/support/wrapper/recorder.c"
        compiled.make(self.path, ["gcc", *WARNINGS, "-static", source], [source])

    def calls(self) -> list[tuple[list[str], list[str], int]]:
        found = []
        records = [name for name in os.listdir(self.folder) if name.startswith("called.")]
        for number in range(len(records)):
            with open(f"{self.folder}/called.{number}", "rb") as file:
                argc, *words = [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
            count = int(argc)
            found.append((words[:count], words[count + 1 :], int(words[count], 16)))
        return found

    def forget(self) -> None:
        for name in os.listdir(self.folder):
            if name.startswith("called."):
                os.unlink(f"{self.folder}/{name}")


class Installed:
    """launcher, hook: the native programs, compiled for this prefix. settings: its config.toml."""

    def __init__(
        self, prefix: Any, python: str = "/usr/bin/python3", machine: str = "amd64"
    ) -> None:
        self.prefix, self.python = str(prefix), python
        self.settings = self.prefix + "/etc/config.toml"
        self.python_path = self.prefix + "/lib/vcuda/python"
        self.launcher = self.prefix + "/bin/vcuda-container-runtime"
        self.hook = self.prefix + "/bin/vcuda-container-hook"
        self.runtime = Recorder(self.prefix + "/runtime")
        os.makedirs(self.prefix + "/bin")
        # With the bytecode of what the tests' own process has imported: without it, each start
        # compiles what it imports. A file that another process is writing has a longer name.
        unfinished = shutil.ignore_patterns("*.pyc.*")
        for package in ("oci/vcuda_oci", "runtime_hook/vcuda_hook"):
            target = f"{self.python_path}/{os.path.basename(package)}"
            shutil.copytree(f"{ROOT}/{package}", target, ignore=unfinished)
        write(self.prefix + "/lib/vcuda/libvcuda.so.1", "")
        shutil.copy(ROOT + "/build/lib/vcuda-turn-keeper", self.prefix + "/lib/vcuda")
        places = {"CONFIG": self.settings, "PYTHON": python, "PYTHON_PATH": self.python_path}
        self._compile(COMPILERS[machine], {f"VCUDA_{name}": at for name, at in places.items()})
        if machine == "arm64":
            arm64.emulate(self.launcher)
            arm64.emulate(self.hook)
        self.configure(runtime=self.runtime.path)

    def _compile(self, compiler: list[str], places: dict[str, str]) -> None:
        """Compile both programs. A file that names no place is compiled once for all prefixes."""
        headers, objects = sorted(glob.glob(f"{SOURCES}/*/*.h")), {}
        with tempfile.TemporaryDirectory() as folder:
            for source in sorted(glob.glob(f"{SOURCES}/*/*.c")):
                with open(source) as file:
                    own = [name for name in places if name in file.read()]
                flags = [f'-D{name}="{places[name]}"' for name in places if own]
                name = os.path.basename(source)
                objects[name] = f"{folder}/{name}.o"
                words = [*compiler, *WARNINGS, "-I" + SOURCES, *flags, "-c", source]
                if own:
                    subprocess.run([*words, "-o", objects[name]], check=True)
                else:
                    compiled.make(objects[name], words, [source, *headers])
            parts = [path for name, path in objects.items() if name not in MAINS]
            for program, name in ((self.launcher, "main.c"), (self.hook, "hook.c")):
                words = [*compiler, "-static", "-o", program, objects[name], *parts]
                subprocess.run(words, check=True)

    @classmethod
    def counting_python_starts(cls, prefix: str, machine: str = "amd64") -> Installed:
        """Install with a Python that writes a line at each start; `python_starts` counts them."""
        python = prefix + "/python"
        source = ROOT + "/tests/support/wrapper/recording_python.c"
        compiled.make(python, ["gcc", *WARNINGS, source], [source])
        return cls(prefix, python, machine)

    def python_starts(self) -> int:
        try:
            with open(self.python + ".started") as lines:
                return len(lines.readlines())
        except FileNotFoundError:
            return 0

    def forget_python_starts(self) -> None:
        if os.path.exists(self.python + ".started"):
            os.unlink(self.python + ".started")

    def configure(self, **settings: str) -> None:
        lines = [f"{key.replace('_', '-')} = '{value}'\n" for key, value in settings.items()]
        write(self.settings, "".join(lines))

    @contextlib.contextmanager
    def claim_server(self, *before: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run `vcuda serve` with these settings until the block ends. before: a command prefix.

        The server runs on the Python of the tests, which can be another one than the wrapper's.
        """
        start = f"import sys; sys.path.insert(0, {self.python_path!r}); "
        start += "from vcuda_hook.cli.main import main; sys.exit(main(sys.argv[1:]))"
        words = ["-I", "-S", "-B", "-c", start, "--config", self.settings, "serve"]
        folder, notify = tempfile.mkdtemp(), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notify.bind(folder + "/notify")
        environment = {"NOTIFY_SOCKET": folder + "/notify", "PATH": "/usr/bin:/bin"}
        server = subprocess.Popen([*before, sys.executable, *words], env=environment)
        try:
            notify.settimeout(30)
            assert notify.recv(64) == b"READY=1"
            yield server
        finally:
            if server.poll() is None:
                server.terminate()
                assert server.wait(30) == 0
            notify.close()
            shutil.rmtree(folder)

    def call(self, *words: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([self.launcher, *words], capture_output=True, **options)
