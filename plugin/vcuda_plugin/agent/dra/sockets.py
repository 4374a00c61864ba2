"""The driver's two sockets in the kubelet's folder.

    <kubelet>/plugins_registry/gpu.vcuda.io-reg.sock   the kubelet watches this folder
    <kubelet>/plugins/gpu.vcuda.io/dra.sock            claims

While another agent's driver serves them, as in a rollout, the names are gpu.vcuda.io-2-reg.sock and
dra-2.sock. The kubelet calls the driver that registered last, and the other once that has ended.

A server binds a name with a leading dot, which the kubelet ignores, then renames the socket: at its
end gRPC removes the name that it bound, which must not be the next server's socket. A new socket
under the same name makes the kubelet register the driver again. The kubelet removes the node's
ResourceSlices half a minute after the registration socket is removed. Source: Kubernetes 1.36,
pkg/kubelet/pluginmanager/pluginwatcher, pkg/kubelet/cm/dra/plugin.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from concurrent import futures
from typing import Any, NamedTuple

import grpc  # type: ignore[import-untyped]

from vcuda_hook.claims.dra_names import DRIVER
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system import files

from ..kubelet import socket_file

# One of them is the health stream's.
_THREADS = 5


class Paths(NamedTuple):
    """Of the registration's socket, and of that for claims."""

    registration: str
    claims: str


def pairs(kubelet: str) -> list[Paths]:
    """The two pairs of names below the kubelet's root folder."""
    return [
        Paths(
            f"{kubelet}/plugins_registry/{DRIVER}{more}-reg.sock",
            f"{kubelet}/plugins/{DRIVER}/dra{more}.sock",
        )
        for more in ("", "-2")
    ]


def free_pair(kubelet: str) -> Paths:
    """The names for a driver that starts; removes the sockets that another left.

    Raises VcudaError: two drivers run already.
    """
    free = [each for each in pairs(kubelet) if not _are_served(each)]
    for each in free[1:]:
        _remove(each)
    if not free:
        hint = "wait until the former agent has ended"
        raise VcudaError("two drivers run already", pairs(kubelet)[0].registration, hint)
    return free[0]


def served_count(kubelet: str) -> int:
    """How many drivers run."""
    return sum(map(_are_served, pairs(kubelet)))


def are_there(kubelet: str) -> bool:
    """Whether a driver runs, or one that was killed left its sockets."""
    return any(map(os.path.exists, (path for each in pairs(kubelet) for path in each)))


def remove(kubelet: str) -> None:
    """Remove what killed drivers left. The kubelet then removes the node's ResourceSlices."""
    for each in pairs(kubelet):
        if not _are_served(each):
            _remove(each)


def _are_served(paths: Paths) -> bool:
    return any(map(socket_file.is_served, paths))


def _remove(paths: Paths) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            os.unlink(path)


@contextlib.contextmanager
def served(path: str, *services: Any) -> Iterator[None]:
    """Serve at `path`; remove the socket with the block, unless it is another server's by then.

    Raises VcudaError: it cannot be bound.
    """
    folder, name = os.path.split(path)
    server = grpc.server(futures.ThreadPoolExecutor(_THREADS))
    server.add_generic_rpc_handlers(services)
    beside = f"{folder}/.{name}.new"
    with contextlib.suppress(OSError):
        os.makedirs(folder, 0o750, exist_ok=True)
    before = os.umask(0o177)
    try:
        files.remove(beside)
        bound = server.add_insecure_port(f"unix:{beside}")
    except (OSError, RuntimeError):
        bound = 0
    finally:
        os.umask(before)
    if not bound:
        raise VcudaError("cannot listen", path, "run as root, with a shorter folder")
    server.start()
    inode = os.stat(beside).st_ino
    os.rename(beside, path)
    try:
        yield
    finally:
        with contextlib.suppress(FileNotFoundError):
            if os.stat(path).st_ino == inode:
                os.unlink(path)
        server.stop(None).wait()
