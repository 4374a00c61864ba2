"""A Debian 12 host with installed packages from a list of the test's: apt and dpkg-query read that
list, and apt only simulates what it would do."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from release.packages.hosts.machine import DEBIAN, REPOSITORY
from support.host.private_host import PATH, Result
from support.needed import skip_or_fail

# What `make-root` put into build/debian beside a minimal Debian.
_ENGINES = ("docker.io", "containerd", "runc", "crun", "podman")
_DAY_SECONDS = 86400


class AptHost:
    """programs: what its PATH has beside the tools that scripts use. stanzas: further packages."""

    def __init__(self, folder: Path, programs: tuple[str, ...] = (), stanzas: str = "") -> None:
        self._admin = folder / "dpkg"
        (self._admin / "updates").mkdir(parents=True)
        (self._admin / "info").mkdir()
        (self._admin / "status").write_text(_minimal_debian() + stanzas)
        self._bin = folder / "bin"
        self._bin.mkdir()
        for tool in ("bash", "sh", "dirname", "mkdir", "flock", "grep", "apt-get", "dpkg-query"):
            (self._bin / tool).symlink_to(
                shutil.which(tool, path=PATH) or skip_or_fail(f"no {tool}")
            )
        for program in programs:
            (self._bin / program).write_text("#!/bin/sh\n")
            (self._bin / program).chmod(0o755)
        self._conf = folder / "apt.conf"
        self._conf.write_text(
            f'Dir::State "{folder}/state";\nDir::State::status "{self._admin}/status";\n'
            f'Dir::State::lists "{_lists()}";\nDir::Cache "{folder}/cache";\n'
            # Of the lists alone, so it serves every test.
            f'Dir::Cache::srcpkgcache "{_lists()}.srcpkgcache.bin";\n'
            # Not this host's settings: those of a Debian image have apt keep no cache.
            'Dir::Etc::main "/dev/null";\nDir::Etc::parts "/dev/null";\n'
            'Debug::NoLocking "1";\n'
        )
        (folder / "state").mkdir()
        (folder / "cache").mkdir()

    def run(self, *argv: str) -> Result:
        environment = {
            "PATH": str(self._bin),
            "APT_CONFIG": str(self._conf),
            "DPKG_ADMINDIR": str(self._admin),
            "LC_ALL": "C",
        }
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
        return Result(done.returncode, done.stdout, done.stderr)


def installs(line: str) -> set[str]:
    """Names of the packages that a simulation installs."""
    return set(re.findall(r"(?m)^Inst (\S+)", line))


def removes(line: str) -> set[str]:
    return set(re.findall(r"(?m)^(?:Remv|Purg) (\S+)", line))


def _minimal_debian() -> str:
    if not os.path.exists(DEBIAN + ".made"):
        skip_or_fail("build/debian not made; run tests/support/make-root")
    with open(f"{DEBIAN}/var/lib/dpkg/status") as file:
        stanzas = file.read().split("\n\n")
    kept = [stanza for stanza in stanzas if not stanza.startswith(_engine_stanzas())]
    return "\n\n".join(kept).rstrip("\n") + "\n\n"


def _engine_stanzas() -> tuple[str, ...]:
    return tuple(f"Package: {name}\n" for name in _ENGINES)


def _lists() -> str:
    """Debian's package lists, fetched into build/ once a day; the host's stay as they are."""
    folder = REPOSITORY + "/build/apt-lists"
    os.makedirs(folder + "/partial", exist_ok=True)
    with open(folder + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = folder + ".fetched"
        if not os.path.exists(stamp) or time.time() - os.path.getmtime(stamp) > _DAY_SECONDS:
            options = ["-o", f"Dir::State::lists={folder}", "-o", "Debug::NoLocking=1"]
            done = subprocess.run(
                ["apt-get", *options, "update"], capture_output=True, text=True, check=False
            )
            if done.returncode:
                skip_or_fail(f"apt-get update: {done.stderr}")
            Path(stamp).touch()
    return folder
