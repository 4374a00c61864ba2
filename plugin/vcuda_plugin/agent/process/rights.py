"""The rights of each of the agent's processes, as docs/security.md lists them."""

from __future__ import annotations

from typing import NamedTuple

from . import system_calls

# Neither accounts nor DynamicUser= use this uid. Source: systemd, "Users, Groups, UIDs and GIDs on
# systemd systems": 65520…65533 are unused.
HTTP_UID = 65523

_PAGES = ("DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER")
_REPAIR = ("CHOWN", "LINUX_IMMUTABLE")
# The first call of NVML loads the driver's modules and creates its device nodes.
_DRIVER = ("CHOWN", "MKNOD", "SYS_MODULE")


class Rights(NamedTuple):
    """What a process retains. capabilities: names without CAP_. forbidden: system calls.

    uid: of the process and its group. only_threads: it starts no process, and its sockets are unix
    or IP sockets.
    """

    capabilities: frozenset[str]
    forbidden: tuple[str, ...] = (*system_calls.NEVER, *system_calls.MODULES, *system_calls.HANDLES)
    uid: int = 0
    only_threads: bool = False


_NO_MODULES = (*system_calls.NEVER, *system_calls.MODULES)
# The agent and the page keeper open pages of ended containers by file handle.
AGENT = Rights(frozenset((*_PAGES, *_REPAIR, "SYS_PTRACE")), _NO_MODULES)
# The claim socket claims shares, and so does the DRA driver, which also answers the kubelet.
_CLAIMS = Rights(frozenset((*_PAGES, *_REPAIR, *_DRIVER, "SYS_PTRACE")), system_calls.NEVER)
OF = {
    "vcuda_plugin.agent.process.claim_socket": _CLAIMS,
    "vcuda_plugin.agent.dra.dra_process": _CLAIMS,
    "vcuda_plugin.agent.gpus.gpu_probe": Rights(
        frozenset(_DRIVER), (*system_calls.NEVER, *system_calls.HANDLES)
    ),
    # NVML needs CAP_SYS_ADMIN to set the driver's own limits.
    "vcuda_plugin.agent.bypass.outside_watch": Rights(
        frozenset((*_PAGES, "KILL", "SYS_ADMIN", "SYS_PTRACE"))
    ),
    # Its workers call CUDA, which starts the driver and examines other processes.
    "vcuda_plugin.agent.suspend.suspend_process": Rights(
        frozenset((*_PAGES, *_DRIVER, "SYS_ADMIN", "SYS_PTRACE")), system_calls.NEVER
    ),
    "vcuda_plugin.agent.http.http_process": Rights(
        frozenset(("DAC_READ_SEARCH", "NET_BIND_SERVICE")),
        (*_NO_MODULES, *system_calls.HANDLES, *system_calls.UNUSED_BY_SERVERS),
        HTTP_UID,
        only_threads=True,
    ),
    # Another user may own the kubeconfig and the files that it names.
    "vcuda_plugin.agent.pods.pod_watch": Rights(frozenset(("DAC_READ_SEARCH",))),
}
# Children of claim_socket. Without CAP_SETPCAP they cannot reduce their bounding set.
KEEPERS = {
    "page_keeper": Rights(frozenset((*_PAGES, *_REPAIR)), _NO_MODULES),
    # A container may change its page's owner and mode.
    "turn_keeper": Rights(frozenset(("DAC_OVERRIDE",)), (*_NO_MODULES, *system_calls.HANDLES)),
    # It ends daemons that it did not start; the daemon's server starts the driver.
    "mps_keeper": Rights(
        frozenset(("DAC_OVERRIDE", "DAC_READ_SEARCH", *_DRIVER, "SYS_PTRACE")), system_calls.NEVER
    ),
}
# The fork server holds the rights of all children to pass them on, and needs KILL to end a child of
# another uid.
FORK_SERVER = Rights(
    frozenset(("KILL", "SETGID", "SETPCAP", "SETUID")).union(
        AGENT.capabilities, *(rights.capabilities for rights in OF.values())
    ),
    system_calls.NEVER,
)


def of(module: str) -> Rights:
    """Return the rights of the child that runs this module."""
    return OF.get(module, AGENT)
