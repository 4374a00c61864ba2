"""Fuzzers of a start's input: config.json, arguments, the claim packet, config.toml."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket

from release.fuzz.launcher_parsers import LauncherParser
from release.fuzz.properties import check_line, check_same
from support.files import write
from support.gpu.driver_root import DriverRoot
from support.ledger.samples import left_in
from vcuda_oci.container import bundle, request
from vcuda_oci.container.container import container_of
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model import jsontree, names
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.start import claim_socket, main
from vcuda_oci.system import settings_file

PATH_MAX = os.pathconf("/", "PC_PATH_MAX")
ASKS = b'{"annotations": {"vcuda.io/core": "30"}, "root": {"path": "rootfs"}}'
_SLASHES = re.compile(b"/+")
_KEPT = ["host.json"]  # what is known of the driver belongs to no container


class Node:
    """A driver root with two GPUs, a state folder, and one bundle."""

    def __init__(self, folder: str) -> None:
        self.ledger = Ledger(folder + "/state")
        driver = DriverRoot(folder + "/driver", count=2)
        lines = [f'state-dir = "{folder}/state"', f'driver-root = "{driver.path}"']
        self.settings = write(folder + "/config.toml", "\n".join(lines))
        self.bundle = folder + "/bundle"
        os.makedirs(self.bundle + "/rootfs/usr/lib64")
        self.config = self.bundle + "/config.json"

    def check(self, before: bytes, refused: bool) -> bool:
        """A share is recorded and written into the config, or neither; released again.

        Returns whether there was one.
        """
        with open(self.config, "rb") as file:
            after = file.read()
        if refused or after == before:
            assert (after, sorted(left_in(self.ledger.state_dir) or _KEPT)) == (before, _KEPT)
            return False
        mounts = [mount for mount in json.loads(after)["mounts"] if isinstance(mount, dict)]
        (limits,) = [mount for mount in mounts if mount.get("destination") == names.GUEST_LIMITS]
        holder = os.path.basename(os.path.dirname(limits["source"]))
        allocations, broken = self.ledger.read()
        assert ([held.id for held in allocations], broken) == ([holder], [])
        with self.ledger:
            self.ledger.remove(holder)
        assert left_in(self.ledger.state_dir) == _KEPT
        return True


class Config:
    """Any config.json is refused in one line, left as it is, or edited with a share recorded.

    The launcher sends each that asks to Python.
    """

    def __init__(self, folder: str) -> None:
        self.node, self.launcher = Node(folder), LauncherParser()

    def __call__(self, content: bytes) -> None:
        write(self.node.config, content)
        command = bundle.Command(["create", "--bundle", self.node.bundle, "box"])
        may = self.launcher.may_hold_request(content)
        refused = False
        try:
            spec = bundle.load_config(self.node.config)
            asked = request.find(container_of(spec))
            assert may or asked is None, "the launcher missed a request"
            main.apply_request(command, self.node.settings, "/nowhere/runc", os.getpid())
        except VcudaError as error:
            check_line(error)
            refused = True
        self.node.check(content, refused)


class Packet:
    """Any packet through the claim socket is done, refused in one line, or left to Python."""

    def __init__(self, folder: str) -> None:
        self.node = Node(folder)
        self.before = os.getcwd()
        self.folder = folder

    def __call__(self, packet: bytes) -> None:
        write(self.node.config, ASKS)
        if packet.count(b"\0") > 1:  # with settings of ours: the default ones are this host's
            packet = b"".join(
                [*(os.fsencode(w) + b"\0" for w in (self.node.settings, "/nowhere/runc")), packet]
            )
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        os.chdir(self.folder)  # the caller's folder is what the claim socket answers in
        with ours, theirs:
            theirs.send(packet[: claim_socket.MOST_BYTES])
            theirs.shutdown(socket.SHUT_WR)
            answer = claim_socket._answer(ours)
        os.chdir(self.before)
        reply, (line, *ids) = answer[:1], answer[1:].decode().split("\0")
        if reply == claim_socket.REFUSED:
            check_line(VcudaError(line, "", ""))
        else:
            assert (reply, line, len(ids)) in (
                (claim_socket.DONE, "", 1),
                (claim_socket.CLOSED, "", 0),
            )
        self.node.check(ASKS, reply != claim_socket.DONE)
        for name in set(os.listdir(self.folder)) - {"state", "driver", "config.toml", "bundle"}:
            shutil.rmtree(f"{self.folder}/{name}", ignore_errors=True)


class Words:
    """Both halves read the runtime's words alike, and Python's half gets all of them."""

    def __init__(self, folder: str) -> None:
        self.launcher = LauncherParser()

    def __call__(self, content: bytes) -> None:
        words = content.split(b"\0")
        command = bundle.Command([os.fsdecode(word) for word in words])
        mine = [command.config_path, command.log, command.log_format]
        *theirs, packet = self.launcher.read_words(words)
        for ours, its in zip(map(os.fsencode, mine), theirs):
            # Of slashes the other half may write one more, which decides about this length alone.
            if len(ours) != PATH_MAX - 1:
                named = ours if len(ours) < PATH_MAX else b""  # nothing could be opened there
                check_same(_SLASHES.sub(b"/", named), _SLASHES.sub(b"/", its))
        message = b"".join(word + b"\0" for word in words)
        assert packet == (message if len(message) <= claim_socket.MOST_BYTES else b"")


class Settings:
    """Any config.toml is read, by both halves alike, or refused in one line."""

    def __init__(self, folder: str) -> None:
        self.launcher, self.path = LauncherParser(), folder + "/config.toml"

    def __call__(self, content: bytes) -> None:
        write(self.path, content)
        theirs = self.launcher.read_settings(content)
        try:
            settings = settings_file.load(self.path)
        except VcudaError as error:
            check_line(error)
            return
        mine = [settings.runtime.encode(), settings.state_dir.encode()]
        if all(len(value) < PATH_MAX for value in mine):
            check_same(mine, theirs)


class LogLine:
    """A line in the engine's log is one entry of it, whatever the line holds."""

    def __init__(self, folder: str) -> None:
        self.launcher = LauncherParser()

    def __call__(self, line: bytes) -> None:
        line = line.partition(b"\0")[0]
        left = re.sub(rb'[^ -~]|["\\]', b"", line)[: PATH_MAX - 1].decode()
        as_json, as_text, rest = self.launcher.log_entries(line + b"\0")
        time = "2000-01-01T00:00:00Z"
        assert jsontree.loads(as_json.decode()) == {"time": time, "level": "error", "msg": left}
        assert (as_text.decode(), rest) == (f'time="{time}" level=error msg="{left}"', b"")
