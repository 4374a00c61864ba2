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
from collections.abc import Iterator, Sequence

import uvicorn

from vcuda_oci.model import names
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.placement.rules import rules_of
from vcuda_oci.system import settings_file

from ..kube.api import KubeApi
from .bind.bind import Binder
from .bind.evict import Evictions
from .bind.leader import Leader
from .cluster.claims import Claims
from .cluster.cluster import Cluster
from .follow.agents import Agents
from .follow.async_api import AsyncApi
from .follow.follow import BOUND, Follower, claim_followers, followers
from .follow.outage import Outage, end_processes
from .follow.quota_follow import QuotaFollower
from .http import certificates
from .http.connections import Loop
from .http.http_app import HttpApp
from .http.page_app import PageApp
from .http.server import Server
from .http.viewer_rights import ViewerRights
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
    listening = _listen(arguments.listen, "--listen")
    host, port = listening.getsockname()[:2]
    page = _listen(arguments.page, "--page") if arguments.page else None
    if page:
        _log.info("the cluster page is on %s:%d", *page.getsockname()[:2])
    cluster = Cluster(rules_of(settings))
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
    claims = Claims() if page and settings.by_dra else None
    # Nothing waits for the claims, which only the page shows.
    for follower in [*following, *(claim_followers(api, claims) if claims else ())]:
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
    serving = _UvicornServer(_config(server.app, arguments.tls_client_ca, _pair(arguments, "tls")))
    with contextlib.closing(loop):
        if page:
            own = _pair(arguments, "page-tls")
            rights = ViewerRights(AsyncApi(api), asks_for_claims=claims is not None)
            app = PageApp(cluster, rights, lambda: server.ready, claims)
            config = _config(app, None, own if all(own) else _pair(arguments, "tls"))
            beside = loop.create_task(_PageServer(serving, config).serve([page]))
            loop.run_until_complete(serving.serve([listening]))
            loop.run_until_complete(beside)
        else:
            loop.run_until_complete(serving.serve([listening]))
    # Keep the lease after a forced exit: a bind may still be running, and the next leader must not
    # bind at the same time.
    if leader and not serving.force_exit:
        leader.release()


def _pair(arguments: argparse.Namespace, option: str) -> tuple[str | None, str | None]:
    """The files of a certificate and its key."""
    word = option.replace("-", "_")
    return getattr(arguments, f"{word}_cert"), getattr(arguments, f"{word}_key")


def _config(
    app: HttpApp | PageApp, client_ca: str | None, pair: tuple[str | None, str | None]
) -> uvicorn.Config:
    """client_ca: the authority of the only clients; None: any client."""
    return uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        ssl_certfile=pair[0],
        ssl_keyfile=pair[1],
        ssl_ca_certs=client_ca,
        ssl_cert_reqs=ssl.CERT_REQUIRED if client_ca else ssl.CERT_NONE,
    )


class _UvicornServer(uvicorn.Server):
    """uvicorn's server with a limit on its shutdown, which uvicorn itself has only since 0.22."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().call_later(_END_SECONDS, setattr, self, "force_exit", True)  # noqa: FBT003
        await super().shutdown(sockets)


class _PageServer(_UvicornServer):
    """The page's server, which ends with the other one and leaves signals to that."""

    def __init__(self, other: uvicorn.Server, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._other = other

    async def on_tick(self, counter: int) -> bool:
        return self._other.should_exit or await super().on_tick(counter)

    def install_signal_handlers(self) -> None:
        """Of uvicorn before 0.29."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


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


def _listen(address: str, option: str) -> socket.socket:
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
        raise VcudaError(f"cannot listen: {error}", f"{option} {address}", hint) from error


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
    if not (arguments.tls_client_ca or arguments.insecure):
        what = "any client could bind any pod"
        hint = "name --tls-cert, --tls-key and --tls-client-ca, or use --insecure"
        raise VcudaError(what, f"--listen {arguments.listen}", hint)
    _check_pair("tls", *_pair(arguments, "tls"), arguments.tls_client_ca)
    _check_pair("page-tls", *_pair(arguments, "page-tls"))
    if any(_pair(arguments, "page-tls")) and not arguments.page:
        raise VcudaError("needs --page", "--page-tls-cert", "name the page's HOST:PORT")


def _check_pair(
    option: str, certificate: str | None, key: str | None, client_ca: str | None = None
) -> None:
    files = {f"{option}-cert": certificate, f"{option}-key": key, f"{option}-client-ca": client_ca}
    if not any(files.values()):
        return
    where = " ".join(f"--{word} {path}" for word, path in files.items() if path)
    hint = "name a certificate and its key, both PEM"
    if not (certificate and key):
        raise VcudaError(f"needs both --{option}-cert and --{option}-key", where, hint)
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        if client_ca:
            context.load_verify_locations(client_ca)
    except OSError as error:
        raise VcudaError(f"cannot speak TLS: {error}", where, hint) from error
