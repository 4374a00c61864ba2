"""The rights of each of the agent's processes, as docs/security.md lists them."""

from __future__ import annotations

from typing import NamedTuple

from . import system_calls

# No account and no DynamicUser= has it. Source: systemd, "Users, Groups, UIDs and GIDs on systemd
# systems": 65520…65533 are unused.
HTTP_UID = 65523

_PAGES = ("DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER")
_REPAIR = ("CHOWN", "LINUX_IMMUTABLE")
# The driver loads its modules and makes its nodes when NVML is asked first.
_DRIVER = ("CHOWN", "MKNOD", "SYS_MODULE")


class Rights(NamedTuple):
    """capabilities: without CAP_. uid: of the process, and its group. forbidden: system calls."""

    capabilities: frozenset[str]
    forbidden: tuple[str, ...] = (*system_calls.NEVER, *system_calls.MODULES, *system_calls.HANDLES)
    uid: int = 0
    only_threads: bool = False  # it starts no process, and its sockets are unix or IP


_NO_MODULES = (*system_calls.NEVER, *system_calls.MODULES)
# This and the page keeper open pages of ended containers by their handles.
AGENT = Rights(frozenset((*_PAGES, *_REPAIR, "SYS_PTRACE")), _NO_MODULES)
OF = {
    "vcuda_plugin.agent.process.claim_socket": Rights(
        frozenset((*_PAGES, *_REPAIR, *_DRIVER, "SYS_PTRACE")), system_calls.NEVER
    ),
    "vcuda_plugin.agent.gpus.gpu_probe": Rights(
        frozenset(_DRIVER), (*system_calls.NEVER, *system_calls.HANDLES)
    ),
    # NVML sets the driver's own limits for CAP_SYS_ADMIN alone.
    "vcuda_plugin.agent.bypass.outside_watch": Rights(
        frozenset((*_PAGES, "KILL", "SYS_ADMIN", "SYS_PTRACE"))
    ),
    "vcuda_plugin.agent.http.http_process": Rights(
        frozenset(("DAC_READ_SEARCH", "NET_BIND_SERVICE")),
        (*_NO_MODULES, *system_calls.HANDLES, *system_calls.OF_NO_SERVER),
        HTTP_UID,
        only_threads=True,
    ),
    # The kubeconfig and what it names may be of another owner.
    "vcuda_plugin.agent.pods.pod_watch": Rights(frozenset(("DAC_READ_SEARCH",))),
}
# A child of claim_socket, which cannot take from its bounding set.
PAGE_KEEPER = Rights(frozenset((*_PAGES, *_REPAIR)), _NO_MODULES)
# It gives each child its own, and ends one of another uid.
FORK_SERVER = Rights(
    frozenset(("KILL", "SETGID", "SETPCAP", "SETUID")).union(
        AGENT.capabilities, *(rights.capabilities for rights in OF.values())
    ),
    system_calls.NEVER,
)


def of(module: str) -> Rights:
    return OF.get(module, AGENT)
