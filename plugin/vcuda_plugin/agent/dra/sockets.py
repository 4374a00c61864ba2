"""The driver's two sockets in the kubelet's folder.

    <kubelet>/plugins_registry/gpu.vcuda.io-reg.sock   the kubelet watches this folder
    <kubelet>/plugins/gpu.vcuda.io/dra.sock            claims

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
from typing import Any

import grpc  # type: ignore[import-untyped]

from vcuda_oci.model.errors import VcudaError

from .dra_api import DRIVER

_THREADS = 4


def registration_path(kubelet: str) -> str:
    return f"{kubelet}/plugins_registry/{DRIVER}-reg.sock"


def claims_path(kubelet: str) -> str:
    return f"{kubelet}/plugins/{DRIVER}/dra.sock"


def remove(kubelet: str) -> None:
    """Remove both sockets, if they exist. The kubelet then removes the node's ResourceSlices."""
    for path in (registration_path(kubelet), claims_path(kubelet)):
        with contextlib.suppress(OSError):
            os.unlink(path)


@contextlib.contextmanager
def served(path: str, service: Any) -> Iterator[None]:
    """Serve at `path`; remove the socket with the block, unless it is another server's by then.

    Raises VcudaError: it cannot be bound.
    """
    folder, name = os.path.split(path)
    server = grpc.server(futures.ThreadPoolExecutor(_THREADS))
    server.add_generic_rpc_handlers((service,))
    before = os.umask(0o177)
    beside = f"{folder}/.{name}.new"
    try:
        os.makedirs(folder, 0o750, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)
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
