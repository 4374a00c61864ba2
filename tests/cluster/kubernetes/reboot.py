"""A reboot of the node: every process of it ends, and what a tmpfs holds is empty.

The control plane stays: it stands for other machines.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
import uuid

from cluster.kubernetes.control_plane import NODE, Service
from cluster.kubernetes.node import Node
from contract.chart.rendering import AGENT
from support.host import cgroups

_BOOT = "/proc/sys/kernel/random/boot_id"
_UNMOUNT = r"""cut -d' ' -f5 /proc/self/mountinfo | sort -r | while read -r point; do
    case "$point" in
    "$1"/*|/run/*ns/*|/var/lib/kubelet/pods/*) umount -l "$point" ;;
    esac
done"""
# Of containerd's shims, of CRI-O, and of runc. CRI-O's default runtime root is crun's.
_REMOVE = """cd /run
rm -rf "$1"/* "$2"/* containerd/* runc/* crun/* crio/* netns/* utsns/* ipcns/*"""


class HostAgent:
    """The agent as a service of the host, with the kubelet's account, as systemd would run it."""

    def __init__(self, node: Node) -> None:
        self._told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._told.settimeout(60)
        path = node.host.path("notify")
        self._told.bind(path)
        program = node.host.path("image-bin", AGENT)
        words = ["--kubeconfig", node.cluster.kubeconfig("kubelet"), "--node-name", NODE]
        command = ["env", "NOTIFY_SOCKET=" + path, program, *words]
        self.service = Service(node.host, "host-agent", *command)
        self.wait_ready()

    def wait_ready(self) -> None:
        while b"READY=1" not in self._told.recv(4096):
            pass

    def close(self) -> None:
        self.service.end()
        self._told.close()


def reboot(node: Node, agent: HostAgent | None = None) -> None:
    """agent: is ready before the kubelet starts, as the unit's Before=kubelet.service says."""
    node.kubelet.end(signal.SIGKILL)
    if agent:
        agent.service.end(signal.SIGKILL)
    # Programs of the node tell what is from before its boot by the kernel's time since then. Both
    # that and the starts of containers are whole seconds here.
    time.sleep(2)
    since = int(time.clock_gettime(time.CLOCK_BOOTTIME))
    node.host.booted = ("unshare", "--time", f"--boottime=-{since}", "--")
    node.engine.restart(lambda: _empty(node))
    host = node.host
    host.run(["umount", _BOOT])
    host.check(["mount", "--bind", host.write("boot_id", f"{uuid.uuid4()}\n"), _BOOT])
    if agent:
        agent.service.start()
        agent.wait_ready()
    node.kubelet.start()


def _empty(node: Node) -> None:
    state = node.engine.state
    _end_processes(node)
    node.host.check(["sh", "-euc", _UNMOUNT, "sh", state])
    # A tmpfs of the host's own is not seen from outside.
    node.host.check(["sh", "-euc", _REMOVE, "sh", state, node.product.state_dir(node.engine)])


def _end_processes(node: Node) -> None:
    """End those of all containers, and the shims, which name the engine's socket."""
    while shims := _naming(node.engine.socket):
        for pid in shims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    cgroups.kill(node.host.cgroup_parent)


def _naming(word: str) -> list[int]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
            if word.encode() in file.read().split(b"\0"):
                found.append(int(pid))
    return found
