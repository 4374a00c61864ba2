"""``vcuda run``: run a container with a share of a GPU, by runc or crun and without a daemon.

This process execs the low-level runtime, as the wrapper does, so signals, terminal and exit code
are the runtime's, and the container sees the same as under an engine. The wrapper's own function
edits the config. The launcher is left out: its path of config.toml is compiled in, and here the
command line chooses settings and runtime.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import sys
from typing import NoReturn

from vcuda_oci.container import bundle, request
from vcuda_oci.container.container import container_of
from vcuda_oci.ledger import liveness
from vcuda_oci.model import jsontree, names
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.start import main
from vcuda_oci.system import settings_file

from ..live import low_level
from . import overlay, program, spec, watch

REQUEST_WORDS = (
    "core", "memory", "placement",
    "policy", "core-limit", "weight", "priority", "latency", "idle-suspend",
    "isolation",
)  # fmt: skip


def run(arguments: argparse.Namespace, settings: settings_file.Config) -> NoReturn:
    """Exec the low-level runtime. Raises VcudaError: refused, with nothing claimed."""
    if os.geteuid() != 0:
        raise VcudaError("starting containers takes root", "vcuda run", "run it with sudo")
    container_id = arguments.name or f"run-{secrets.token_hex(4)}"
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}", container_id):
        raise VcudaError(
            f"'{container_id[:80]}' cannot name a container",
            "--name",
            "use up to 64 letters, digits and _.+-",
        )
    low_level = find_runtime(arguments.runtime or settings.runtime)
    words = request_words(arguments)
    volumes = [parse_volume(text) for text in arguments.volume]
    for pair in arguments.env:
        if not re.match(r"[^=]+=", pair):
            raise VcudaError(f"'{pair}' is not a variable", "--env", "write NAME=value")
    if not arguments.command and not arguments.bundle:
        raise VcudaError("no command", "vcuda run", "end it like: -- nvidia-smi")

    try:
        folder = os.getcwd()
    except FileNotFoundError:  # the working folder was removed
        folder = "/"
    scratch = settings.state_dir + "/run"
    claimant = [os.getpid(), liveness.start_time(os.getpid())]
    parent = parse_cgroup_parent(arguments.cgroup_parent)
    group = spec.cgroup_of(container_id, claimant, parent)
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if arguments.bundle:
        source = os.path.abspath(arguments.bundle)
        tree, lower = spec.from_bundle(
            source, scratch + "/root", arguments.command, arguments.env, volumes, terminal
        )
    else:
        lower = os.path.abspath(arguments.rootfs or "/")
        cwd = arguments.workdir or (folder if _is_inside(folder, lower) else "/")
        tree = spec.plain(
            container_id,
            group,
            scratch + "/root",
            arguments.command,
            arguments.env,
            volumes,
            cwd,
            terminal,
        )
    if parent:  # it overrides the bundle's own
        tree.setdefault("linux", {})["cgroupsPath"] = group
    spec.ask(tree, words)

    root = f"{settings.state_dir}/{os.path.basename(low_level)}"
    command = bundle.Command(["--root", root, "run", "--bundle", scratch, container_id])
    watch.watch_this_process(claimant, settings.state_dir, root, container_id, group)
    overlay.private_scratch(scratch)
    overlay.mount_above(lower, scratch)
    mounted = [destination for _, destination in settings.extra_mounts]
    program.check(tree, scratch + "/root", mounted)
    with open(command.config_path, "w") as file:
        file.write(jsontree.dumps(tree))
    raw = request.RawRequest(words, "command line")
    container = container_of(tree, container_id, scratch)
    creation = main.creation_of(command, low_level, os.getpid(), names.COMMAND)
    main.share_gpu(command, container, raw, settings, creation)
    os.chdir("/")
    main.exec_runtime(low_level, command.words)


def find_runtime(name: str) -> str:
    """The low-level runtime's full path. Raises VcudaError: not found."""
    if "/" in name:
        found = os.path.abspath(name) if os.access(name, os.X_OK) else None
    else:
        found = low_level.find(name)
    if found is None:
        raise VcudaError("no such runtime", name, "install runc or crun, or name one by --runtime")
    if os.path.basename(os.path.realpath(found)) == names.PROGRAM:
        raise VcudaError("is vcuda's own wrapper", found, "name the runtime below it: runc, crun")
    return found


def request_words(arguments: argparse.Namespace) -> dict[str, str]:
    """The request by annotation key, as an engine would pass it."""
    if not arguments.core:
        raise VcudaError("no --core", "vcuda run", "add how much compute: --core 30 is 30 %")
    given = {key: getattr(arguments, key.replace("-", "_")) for key in REQUEST_WORDS}
    words = {key: value for key, value in given.items() if value is not None}
    if arguments.gpu:
        words["gpu"] = ",".join(arguments.gpu)
    return words


def parse_volume(text: str) -> tuple[str, str, bool]:
    """Parse "SRC:DST[:ro]" to (source, destination, read-only). Raises VcudaError: invalid."""
    source, _, rest = text.partition(":")
    destination, _, option = rest.partition(":")
    if not source or not destination.startswith("/") or option not in ("", "ro", "rw"):
        raise VcudaError(f"'{text}' is not a volume", "--volume", "write /host/folder:/folder[:ro]")
    source = os.path.abspath(source)
    if not os.path.exists(source):
        raise VcudaError("does not exist", source, "make it, or name another --volume")
    return source, destination, option == "ro"


def parse_cgroup_parent(text: str) -> str:
    """The path in the hierarchy; "": the root. Raises VcudaError: invalid, or no such cgroup."""
    if text.strip("/") == "":
        return ""
    if not text.startswith("/") or os.path.normpath(text) != text:
        hint = "write its path as in /proc/PID/cgroup: /system.slice/train.service"
        raise VcudaError(f"'{text}' is not a cgroup's path", "--cgroup-parent", hint)
    found = watch.mounted_cgroup(text)
    if not found:
        raise VcudaError("no such cgroup", text, "make it, or name another --cgroup-parent")
    return found


def _is_inside(folder: str, lower: str) -> bool:
    """Whether the container has `folder` too: it is on the root file system."""
    return lower == "/" and os.stat(folder).st_dev == os.stat("/").st_dev
