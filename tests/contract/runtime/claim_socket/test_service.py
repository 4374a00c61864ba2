"""The systemd unit: its claim socket answers under the unit's restrictions."""

from __future__ import annotations

from collections.abc import Iterator

from contract.runtime.claim_socket.test_claim_socket import (
    installed,
    node,
    python_starts,
    shared_once,
)
from support.files import ROOT
from support.wrapper.wrapper_node import Node, asking

__all__ = ["installed", "node"]  # fixtures
# Each gives the service a mount namespace of its own. Source: systemd.exec(5).
CLOSES_THE_SOCKET = {
    "PrivateTmp",
        "PrivateDevices",
        "PrivateMounts",
        "PrivateIPC",
        "ProtectSystem",
        "ProtectHome",
    "ProtectProc", "ProcSubset", "ProtectKernelTunables", "ProtectKernelModules",
    "ProtectKernelLogs", "ProtectControlGroups", "ReadOnlyPaths", "ReadWritePaths", "ExecPaths",
    "InaccessiblePaths", "NoExecPaths", "BindPaths", "BindReadOnlyPaths", "TemporaryFileSystem",
    "RootDirectory", "RootImage", "MountImages", "ExtensionImages", "MountFlags", "DynamicUser",
}  # fmt: skip


def options() -> Iterator[tuple[str, str]]:
    with open(ROOT + "/packaging/vcuda.service") as unit:
        for line in unit:
            if not line.startswith(("#", "[", "\n")):
                name, _, value = line.rstrip().partition("=")
                yield name, value


def test_with_the_units_capabilities_the_claim_server_answers(node: Node) -> None:
    """Python, which would do the same with every capability, is not started."""
    named = [value for name, value in options() if name == "CapabilityBoundingSet"]
    kept = ",".join("+" + word[len("CAP_") :].lower() for word in " ".join(named).split())
    limited = ["setpriv", "--no-new-privs", f"--bounding-set=-all,{kept}"]
    with node.installed.claim_server(*limited):
        assert node.create(asking()) == (0, "")
        assert (shared_once(node), python_starts(node)) == (True, 0)


def test_no_option_of_the_unit_closes_the_claim_socket_or_removes_the_records() -> None:
    names = {name for name, _ in options()}
    assert names & CLOSES_THE_SOCKET == set()
    assert names & {"RuntimeDirectory", "MemoryMax", "User"} == set()
    assert {"NoNewPrivileges", "CapabilityBoundingSet"} <= names
