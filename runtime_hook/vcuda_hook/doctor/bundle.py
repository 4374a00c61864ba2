"""``vcuda doctor --bundle FILE``: one archive with what a maintainer needs, and no known secrets.

Each part is read, cut to _MOST_BYTES and redacted by a process of its own, with a time limit. A
part that cannot be read is replaced by the reason. Engines' files and containers' config.json, with
their environments and annotations, are never read.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vcuda_oci.host import host
from vcuda_oci.ledger import events, unhealthy
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model import names
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.system import files, kernel_tables
from vcuda_oci.system.settings_file import Config

from ..live import in_time, turn_figures, usage
from ..live.status import statuses
from ..text import table
from . import finding, redact
from .report import SECONDS, examine, settings_or_defaults

_MOST_BYTES = 2 << 20
_COMMAND_SECONDS = 5
_FOLDER = "vcuda-bundle"
_RELEASE = ("ID=", "VERSION_ID=")
_UNITS = ("vcuda.service", "vcuda-node-agent.service", "vcuda-softgpu.service", "run-vcuda.mount")


@dataclass
class Part:
    """name: in the archive. read: its content, as a JSON tree or as text. last: its end matters."""

    name: str
    what: str
    read: Callable[[Config], Any]
    last: bool = False


def _about(settings: Config) -> dict[str, Any]:
    # Debian's is a link.
    release = files.read("/etc/os-release", _MOST_BYTES, follow=True).decode(errors="replace")
    return {
        "version": names.VERSION,
        "time": time.time(),
        "uptime_seconds": time.clock_gettime(time.CLOCK_BOOTTIME),
        "uid": os.geteuid(),
        "python": sys.version.split()[0],
        "kernel": " ".join(os.uname()[i] for i in (0, 2, 3, 4)),
        "release": [line for line in release.splitlines() if line.startswith(_RELEASE)],
        "cgroup_v2": os.path.exists("/sys/fs/cgroup/cgroup.controllers"),
        "settings_file": settings.path,
        "state_dir": settings.state_dir,
        "driver_root": settings.driver_root,
    }


def _doctor(settings: Config) -> list[dict[str, str]]:
    return [finding.as_json(each) for each in examine(settings.path, SECONDS)]


def _settings(settings: Config) -> str:
    try:
        return files.read_settings(settings.path, _MOST_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return "not there: the defaults count\n"


def _gpus(settings: Config) -> dict[str, Any]:
    facts = host.load(settings.driver_root, settings.state_dir + "/host.json")
    return {
        "driver_version": facts.version,
        "driver_folder": facts.folder,
        "libraries": sorted(facts.libraries),
        "device_nodes": sorted(facts.nodes),
        "gpus": [_gpu(gpu) for gpu in facts.gpus],
        "unhealthy": unhealthy.reasons(settings.state_dir),
    }


def _gpu(gpu: Gpu) -> dict[str, Any]:
    keys = ("index", "name", "uuid", "model", "memory_bytes", "arch", "divided", "parent")
    return {key: getattr(gpu, key) for key in keys}


def _records(settings: Config) -> dict[str, Any]:
    ledger = Ledger(settings.state_dir)
    allocations, broken = ledger.read()
    return {
        "records": [
            {
                "record": each.as_json(),
                "status": status.word,
                "limits": usage.limits(ledger, each),
                "usage": usage.whole_page(ledger, each),
            }
            for each, status in zip(allocations, statuses(allocations))
        ],
        "broken": [{"path": path, "reason": reason} for path, reason in broken],
    }


def _turns(settings: Config) -> dict[str, Any]:
    found = turn_figures.read(settings.state_dir)
    return {
        uuid: {
            "lost_ns": turns.lost_ns,
            "of": {id: each._asdict() for id, each in turns.of.items()},
        }
        for uuid, turns in found.items()
    }


def _events(settings: Config) -> str:
    lines = [json.dumps(redact.tree(each)) for each in events.read(settings.state_dir)]
    return "".join(line + "\n" for line in lines)


def _mounts(settings: Config) -> list[dict[str, Any]]:
    return [
        {"point": mount.point, "root": mount.root, "kind": mount.kind}
        for mount in kernel_tables.mounts()
        if mount.point == settings.state_dir or mount.kind in ("cgroup", "cgroup2")
    ]


def _log(_: Config) -> str:
    units = [word for unit in _UNITS for word in ("-u", unit)]
    return _output("journalctl", "--no-pager", "--quiet", "--lines=2000", "--boot", *units)


def _kernel(_: Config) -> str:
    lines = _output("dmesg").splitlines(keepends=True)
    return "".join(line for line in lines if "NVRM" in line or "nvidia" in line or "vcuda" in line)


def _output(*words: str) -> str:
    done = subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_COMMAND_SECONDS,
        check=False,
    )
    return done.stdout.decode(errors="replace")


PARTS = (
    Part("about.json", "versions of vcuda, kernel and distribution", _about),
    Part("doctor.json", "what 'vcuda doctor' found", _doctor),
    Part("settings.toml", "the settings file", _settings),
    Part("gpus.json", "GPUs, driver, device nodes", _gpus),
    Part("records.json", "shares, their state, limits and use", _records),
    Part("turns.json", "turns of each GPU", _turns),
    Part("events.jsonl", "what happened to shares since the boot", _events, last=True),
    Part("mounts.json", "mounts of the state folder and of cgroups", _mounts),
    Part("services.log", "the journal of vcuda's services since the boot", _log, last=True),
    Part("kernel.log", "the kernel's lines about the driver", _kernel, last=True),
)


def bundle(arguments: argparse.Namespace, config_path: str) -> int:
    """List the parts, then write the archive. Raises VcudaError: the file exists or cannot be
    written."""
    settings, _ = settings_or_defaults(config_path)
    parts = list(zip(PARTS, _contents(settings)))
    rows = [(part.name, str(len(content)), part.what) for part, content in parts]
    if arguments.json:
        listed = [{"name": name, "bytes": int(size), "what": what} for name, size, what in rows]
        table.print_json(listed)
    else:
        table.print_table(("PART", "BYTES", "WHAT"), rows)
    if arguments.dry_run:
        return 0
    sys.stdout.flush()
    _write(arguments.bundle, _archive(parts))
    if not arguments.json:
        print(f"written: {arguments.bundle}; read it before you pass it on")
    return 0


def _contents(settings: Config) -> list[bytes]:
    """The content of each part; the reason, where a process gave none in time."""
    questions = [lambda part=part: _content(part, settings) for part in PARTS]
    answers = in_time.ask(questions, 2 * SECONDS)
    texts = [
        _as_json({"unknown": a.reason}) if isinstance(a, in_time.Unanswered) else a for a in answers
    ]
    return [text.encode(errors="replace")[:_MOST_BYTES] for text in texts]


def _content(part: Part, settings: Config) -> str:
    try:
        answer = part.read(settings)
    except (OSError, ValueError, VcudaError, subprocess.SubprocessError) as error:
        answer = {"unknown": str(error)}
    if not isinstance(answer, str):
        return _as_json(answer)
    cut = answer[-_MOST_BYTES:] if part.last else answer[:_MOST_BYTES]
    if part.last and len(cut) < len(answer):
        cut = cut.partition("\n")[2]  # half of a line may be a secret without what names it
    return redact.text(cut)


def _as_json(tree: Any) -> str:
    return json.dumps(redact.tree(tree), indent=2) + "\n"


def _archive(parts: Sequence[tuple[Part, bytes]]) -> bytes:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for part, content in parts:
            entry = tarfile.TarInfo(f"{_FOLDER}/{part.name}")
            entry.size, entry.mode, entry.mtime = len(content), 0o600, int(time.time())
            archive.addfile(entry, io.BytesIO(content))
    return gzip.compress(plain.getvalue())


def _write(path: str, content: bytes) -> None:
    """Create the file for its owner alone; never through a link, never over another file.

    The folder stays open, so that a failure removes the file there, even if another folder is at
    its path by then.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    folder, name = os.path.split(path)
    try:
        at = os.open(folder or ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise VcudaError(f"cannot be created: {error.strerror}", path, "name a new file") from error
    try:
        fd = os.open(name, flags, 0o600, dir_fd=at)
        try:
            with open(fd, "wb") as file:
                file.write(content)
        except OSError as error:
            os.unlink(name, dir_fd=at)
            raise VcudaError(f"cannot be written: {error.strerror}", path, "free space") from error
    except OSError as error:
        raise VcudaError(f"cannot be created: {error.strerror}", path, "name a new file") from error
    finally:
        os.close(at)
