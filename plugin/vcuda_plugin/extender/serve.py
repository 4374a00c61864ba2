"""Run the scheduler extender, from reading its settings to the end of its HTTP server."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import ipaddress
import logging
import math
import signal
import socket
import ssl
import threading
from collections.abc import Sequence

import uvicorn

from vcuda_oci.model import names
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system import settings_file

from ..kube.api import KubeApi
from .bind.bind import Binder
from .bind.evict import Evictions
from .bind.leader import Leader
from .cluster.cluster import Cluster
from .follow.agents import Agents
from .follow.async_api import AsyncApi
from .follow.follow import BOUND, Follower, followers
from .follow.outage import Outage, end_processes
from .follow.quota_follow import QuotaFollower
from .http import certificates
from .http.connections import Loop
from .http.server import Server
from .quota.quota_limits import load_place

# Longer than kube-scheduler keeps an idle connection, so that no connection ends during a call.
_KEEP_ALIVE_SECONDS = 120
_END_SECONDS = 5
# Python's own thresholds, and those for the first read. Everything created then stays, and the
# higher thresholds make it take a third less time.
_COLLECTED, _WHILE_READING = gc.get_threshold(), (100_000, 50, 100)

_log = logging.getLogger(__name__)


def run(arguments: argparse.Namespace) -> None:
    """Serve until SIGTERM or SIGINT. Raises VcudaError."""
    settings = settings_file.load_named(arguments.config)
    place = load_place(arguments.quota_config)
    api = KubeApi(arguments.kubeconfig, names.EXTENDER_PROGRAM)
    _check_tls(arguments)
    listening = _listen(arguments.listen)
    host, port = listening.getsockname()[:2]
    cluster = Cluster(settings.placement)
    agents = Agents(cluster, arguments.agents)
    nodes, pods, *leases = followers(api, cluster, settings, place, agents)
    following = [nodes, pods, *leases, QuotaFollower(api, cluster, place)]

    def catch_up() -> None:
        pods.catch_up(fieldSelector=BOUND)
        # Drop what was assumed under an earlier lease: it is bound by now, or never will be.
        cluster.expire(math.inf)

    leader = Leader(api, arguments.lease, catch_up) if arguments.lease else None
    why_not = leader.why_not if leader else None
    # uvloop before 0.18 has no `run`. Set the loop first: Python 3.9 binds a lock to the loop that
    # is set when the lock is created.
    loop = Loop()
    asyncio.set_event_loop(loop)
    calls = AsyncApi(api)
    binder = Binder(cluster, calls, settings, why_not)
    evictions = Evictions(cluster, calls) if arguments.evict else None
    server = Server(cluster, binder, following, settings, why_not or str, evictions)
    server.app.hosts = _hosts(arguments.allowed_host, host)
    if arguments.restart_after_outage:
        outage = Outage(
            lambda: api.renewed().get("/version"),
            lambda: end_processes(arguments.restart_after_outage),
        )
        outage.start()
        nodes.on_failure = outage.began
    for follower in following:
        follower.start()
    agents.start()
    if leader:
        leader.start()
    gc.set_threshold(*_WHILE_READING)
    threading.Thread(target=_freeze, args=(following,), daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        # uvicorn ends on these signals and then sends itself the same signal again. This handler
        # keeps the second one from killing the process.
        signal.signal(number, lambda *_: None)
    _log.info("listening on %s:%d", host, port)
    serving = _UvicornServer(
        uvicorn.Config(
            server.app,
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            ssl_certfile=arguments.tls_cert,
            ssl_keyfile=arguments.tls_key,
            ssl_ca_certs=arguments.tls_client_ca,
            ssl_cert_reqs=ssl.CERT_REQUIRED if arguments.tls_client_ca else ssl.CERT_NONE,
        )
    )

    with contextlib.closing(loop):
        loop.run_until_complete(serving.serve([listening]))
    # Keep the lease after a forced exit: a bind may still be running, and the next leader must not
    # bind at the same time.
    if leader and not serving.force_exit:
        leader.release()


class _UvicornServer(uvicorn.Server):
    """uvicorn's server with a limit on its shutdown, which uvicorn itself has only since 0.22."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().call_later(_END_SECONDS, setattr, self, "force_exit", True)  # noqa: FBT003
        await super().shutdown(sockets)


def _freeze(following: Sequence[Follower]) -> None:
    """Exempt the objects of the first read from garbage collection.

    With tens of thousands of pods a collection over them would delay a call by a good part of a
    second.
    """
    for follower in following:
        follower.synced.wait()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTED)


def _listen(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Name IPPROTO_TCP: asyncio sets TCP_NODELAY only then; without it each answer waits 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host.strip("[]"), int(port)))
        listening.listen(1024)
        return listening
    except (OSError, ValueError, OverflowError) as error:
        hint = "choose another HOST:PORT, such as 127.0.0.1:3456"
        raise VcudaError(f"cannot listen: {error}", f"--listen {address}", hint) from error


def _hosts(allowed: Sequence[str], host: str) -> frozenset[bytes] | None:
    """Return the allowed values of a request's Host header; None: any."""
    if not allowed and not ipaddress.ip_address(host).is_loopback:
        return None
    return frozenset(
        f"[{name}]".encode() if ":" in name else name.lower().encode()
        for name in (*allowed, *certificates.LOOPBACK_NAMES, host)
    )


def _check_tls(arguments: argparse.Namespace) -> None:
    """Check the TLS files. Raises VcudaError, with a clearer line than uvicorn's."""
    files = {
        word: getattr(arguments, word.replace("-", "_"))
        for word in ("tls-cert", "tls-key", "tls-client-ca")
    }
    if not (arguments.tls_client_ca or arguments.insecure):
        what = "any client could bind any pod"
        hint = "name --tls-cert, --tls-key and --tls-client-ca, or use --insecure"
        raise VcudaError(what, f"--listen {arguments.listen}", hint)
    if not any(files.values()):
        return
    where = " ".join(f"--{word} {path}" for word, path in files.items() if path)
    hint = "name a certificate and its key, both PEM"
    if not (arguments.tls_cert and arguments.tls_key):
        raise VcudaError("needs both --tls-cert and --tls-key", where, hint)
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(arguments.tls_cert, arguments.tls_key)
        if arguments.tls_client_ca:
            context.load_verify_locations(arguments.tls_client_ca)
    except OSError as error:
        raise VcudaError(f"cannot speak TLS: {error}", where, hint) from error
