"""``vcuda-node-agent``: runs once on each node; starts and supervises the agent's parts."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import hashlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

from vcuda_oci.container.identity import pod_key
from vcuda_oci.ledger import events
from vcuda_oci.model import names
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.start import claim_socket
from vcuda_oci.system import files, settings_file, systemd
from vcuda_oci.system.settings_file import Config

from ..kube import options
from .bypass import bypass_child
from .compute import shortage_watch
from .compute.grants import Arbiter
from .dra import dra_child, sockets, withheld
from .dra.dra_child import DraChild
from .gpus import inventory
from .gpus.feature_file import FEATURES_DIR, Labelling
from .gpus.inventory import Inventory
from .http import http_child, listen_address, names_line
from .kubelet import hand_over, registration, resources
from .kubelet.device_plugin import DevicePlugin
from .ledger import sweep
from .ledger.records import Records
from .offer import Offer
from .pods import pod_watch_child
from .process import child, confine, rights
from .suspend import suspend_child

# Time limit for the parts to end; the agent then exits without waiting for the rest.
_END_SECONDS = 5
_OPEN_SECONDS = 10
_SETTINGS_SECONDS, _SETTINGS_CHECK_SECONDS = 50, 0.5
_PAUSE_SECONDS = 5
# Claims that were allocated before the node's ResourceSlices went are prepared by then.
_LAST_CLAIMS_SECONDS = 30
# An arbiter without a new sample for this time is stuck.
_STUCK_SECONDS = 5

_CLAIM_SOCKET = "vcuda_plugin.agent.process.claim_socket"

_log = logging.getLogger(__name__)


def command() -> int:
    return main(sys.argv[1:])


def main(argv: Sequence[str]) -> int:
    arguments = _parser().parse_args(argv)
    try:
        _await_settings(arguments.config, arguments.config_digest)
        settings = settings_file.load_named(arguments.config)
        offered = resources.offered(settings)
        listen_address.check(settings.listen, settings.path)
        if settings.by_dra and not pod_watch_child.is_there(settings, arguments.kubeconfig):
            hint = 'name a kubeconfig with --kubeconfig, or set gpu-offer = "plugin"'
            raise VcudaError("DRA needs the Kubernetes API", settings.path, hint)
        with child.forked(*_modules(settings, arguments)):
            logging.basicConfig(
                stream=sys.stderr, level=logging.INFO, format=f"{names.AGENT_PROGRAM}: %(message)s"
            )
            confine.confine(rights.AGENT)
            arbiter = Arbiter(settings.state_dir, arguments.take_over)
            with arbiter, _recorded(settings.state_dir):
                asyncio.run(_run(settings, offered, arguments, arbiter))
    except VcudaError as error:
        print(f"{names.AGENT_PROGRAM}: {error}", file=sys.stderr)
        return 1
    return 0


def _await_settings(path: str, digest: str) -> None:
    """Wait until the file has this digest: a kubelet may mount an older ConfigMap in a new pod.

    Raises VcudaError: it has not, in time. digest: the beginning of a SHA-256; "": any.
    """
    deadline = time.monotonic() + _SETTINGS_SECONDS
    while digest:
        with contextlib.suppress(OSError):
            found = hashlib.sha256(files.read_settings(path).strip()).hexdigest()
            if found.startswith(digest):
                return
        if time.monotonic() > deadline:
            hint = "the kubelet brings them within minutes"
            raise VcudaError(f"older settings than those with the digest {digest}", path, hint)
        time.sleep(_SETTINGS_CHECK_SECONDS)


def _modules(settings: Config, arguments: argparse.Namespace) -> list[str]:
    """Modules of the child processes that these settings need."""
    return [
        *([] if arguments.no_door else [_CLAIM_SOCKET]),
        inventory.MODULE,
        bypass_child.MODULE,
        suspend_child.MODULE,
        *([http_child.MODULE] if settings.listen else []),
        *([dra_child.MODULE] if _needs_driver(settings, arguments) else []),
        *(
            [pod_watch_child.MODULE]
            if pod_watch_child.is_there(settings, arguments.kubeconfig)
            else []
        ),
    ]


@contextlib.contextmanager
def _recorded(state_dir: str) -> Iterator[None]:
    """Record the agent's start and end as events."""
    record = functools.partial(events.record, state_dir, names.AGENT_PROGRAM)
    record(events.AGENT_STARTED, "", f"version {names.VERSION}")
    why = "asked to end"
    try:
        yield
    except BaseException as error:
        why = f"failed: {error}"
        raise
    finally:
        record(events.AGENT_ENDED, "", why)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        names.AGENT_PROGRAM,
        description="Offers shares of this node's GPUs to the kubelet, grants containers GPU time "
        "by their policies, finds containers that use more than their share, and opens the claim "
        "socket. SIGTERM ends it; containers keep running.",
        epilog=f"example: {names.AGENT_PROGRAM} --config /etc/vcuda/config.toml",
    )
    options.add_to(parser, ", or no API outside of a pod")
    parser.add_argument(
        "--config-digest",
        metavar="SHA256",
        default="",
        help="wait until the settings, without white space around them, have this SHA-256, or one "
        "that begins so; default: take them as they are",
    )
    parser.add_argument(
        "--no-door",
        action="store_true",
        help="in a pod: do not open the claim socket; 'vcuda serve' on the host opens it",
    )
    parser.add_argument(
        "--take-over",
        action="store_true",
        help="where an agent runs already, register beside it and take its place when it ends; "
        "default: refuse to start",
    )
    parser.add_argument(
        "--kubelet-dir",
        metavar="DIR",
        default=registration.PLUGIN_DIR,
        help="the kubelet's folder of device plugin sockets; default: %(default)s",
    )
    parser.add_argument(
        "--cdi-dir",
        metavar="DIR",
        default=names.CDI_CLAIM_FOLDER,
        help="with DRA: the engine's folder for CDI specs of claims; default: %(default)s",
    )
    parser.add_argument(
        "--node-driver-root",
        metavar="DIR",
        default="",
        help="with DRA, in a pod: where the node has the folder that the setting driver-root names "
        "in the pod; CDI specs name files there; default: the same",
    )
    parser.add_argument(
        "--node-name",
        metavar="NAME",
        default="",
        help="this node's name in the cluster; default: $NODE_NAME, else the host's name",
    )
    parser.add_argument(
        "--features-dir",
        metavar="DIR",
        default=FEATURES_DIR,
        help="Node Feature Discovery's folder of label files; default: %(default)s",
    )
    parser.add_argument(
        "--version", action="version", version=f"{names.AGENT_PROGRAM} {names.VERSION}"
    )
    return parser


async def _run(
    settings: Config,
    offered: dict[str, str],
    arguments: argparse.Namespace,
    arbiter: Arbiter,
) -> None:
    """Run all parts until SIGTERM or SIGINT, or until one ends; raise the error of that one."""
    api = pod_watch_child.Cluster(settings, arguments.kubeconfig, arguments.node_name)
    labelling = Labelling(settings, arguments.features_dir)
    stop, opened, gpus_known = asyncio.Event(), asyncio.Event(), asyncio.Event()
    if arguments.no_door:
        opened.set()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    # One of the two offers a GPU: kube-scheduler counts them apart.
    plugins = [] if settings.by_dra else [DevicePlugin(k, settings, api.is_there) for k in offered]
    http = http_child.HttpChild(settings, api.node_name, waits=not arbiter.is_only)
    driver = _driver(settings, arguments, api)
    offer = Offer(settings, plugins, driver, api, labelling, http)
    alone, at_once = asyncio.Event(), asyncio.Event()
    at_once.set()
    if arbiter.is_only:
        alone.set()
    # A running agent that offers the GPUs the other way is not handed over from: its offer ends
    # before this one begins.
    by_plugin = registration.is_any_served(arguments.kubelet_dir)
    is_same = arbiter.is_only or by_plugin != settings.by_dra
    begun = at_once if is_same else alone
    registrations = [
        registration.Registration(
            arguments.kubelet_dir, offered[p.kind], p, beside=not arbiter.is_only
        )
        for p in plugins
    ]
    handed: list[hand_over.Registered] = [*registrations]
    if driver and settings.by_dra:
        handed.append(driver)
    publishes = alone if settings.by_dra else begun
    parts: list[Coroutine[Any, Any, Any]] = [
        stop.wait(),
        child.watch(),
        _follow_gpus(settings, offer, api, http, gpus_known, alone),
        *([http.run()] if settings.listen else []),
        *([names_line.run(settings.state_dir, http.send_names)] if settings.listen else []),
        *(_when(begun, each.run) for each in registrations),
        _when(publishes, offer.follow),
        *([_when(begun, lambda: _run_driver(driver, offer, settings))] if driver else []),
        *(
            []
            if arbiter.is_only
            else [
                hand_over.run(handed if is_same else [], arbiter.take_place, http.end_wait, alone)
            ]
        ),
        # What only one agent of a node may do.
        *(
            _when(alone, part)
            for part in (
                lambda: _arbitrate(arbiter),
                *([] if arguments.no_door else [lambda: _run_claim_socket(settings, opened)]),
                lambda: bypass_child.follow(settings),
                lambda: suspend_child.follow(settings),
                api.run,
                lambda: _beat(api, arbiter),
                lambda: sweep.run(settings.state_dir),
                lambda: shortage_watch.run(settings.state_dir),
                lambda: _notify_systemd(opened, gpus_known, arbiter),
            )
        ),
    ]
    tasks = [asyncio.ensure_future(part) for part in parts]
    done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    if stop.is_set() and not any(each.has_successor for each in handed):
        await api.publish_end()
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=_END_SECONDS)
    for task in done:
        task.result()


def _kubelet(arguments: argparse.Namespace) -> str:
    """The kubelet's root folder."""
    return os.path.dirname(os.path.normpath(str(arguments.kubelet_dir)))


def _needs_driver(settings: Config, arguments: argparse.Namespace) -> bool:
    """Whether the GPUs are offered by DRA, or were before."""
    if not pod_watch_child.is_there(settings, arguments.kubeconfig):
        return False
    records = Records(settings.state_dir).read()[0]
    was = sockets.are_there(_kubelet(arguments)) or any(map(withheld.is_claim, records))
    return settings.by_dra or was


def _driver(
    settings: Config, arguments: argparse.Namespace, api: pod_watch_child.Cluster
) -> DraChild | None:
    """The DRA driver. Without the setting it runs only where claims are left to unprepare."""
    if not _needs_driver(settings, arguments):
        return None
    folders = (_kubelet(arguments), arguments.cdi_dir, arguments.node_driver_root)
    return DraChild(settings, api.node_name, arguments.kubeconfig, *folders)


async def _run_driver(driver: DraChild, offer: Offer, settings: Config) -> None:
    """Run the DRA driver; where the device plugin offers the GPUs, only until no claim is left.

    The kubelet cannot end a pod with a claim that is not unprepared.
    """
    if settings.by_dra:
        await driver.run()
    if offer.has_claims:
        running = asyncio.ensure_future(driver.run())
        try:
            await asyncio.sleep(_LAST_CLAIMS_SECONDS)
            while offer.has_claims:
                await asyncio.sleep(_PAUSE_SECONDS)
        finally:
            running.cancel()
            await asyncio.wait({running})
    driver.remove_sockets()
    await asyncio.Event().wait()


async def _when(begun: asyncio.Event, part: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    await begun.wait()
    await part()


async def _arbitrate(arbiter: Arbiter) -> None:
    over = threading.Lock()
    over.acquire()
    try:
        await asyncio.to_thread(arbiter.run, over)
    finally:
        over.release()


async def _follow_gpus(
    settings: Config,
    offer: Offer,
    api: pod_watch_child.Cluster,
    http: http_child.HttpChild,
    gpus_known: asyncio.Event,
    alone: asyncio.Event,
) -> None:
    def changed(seen: Inventory) -> None:
        offer.changed(seen)
        gpus_known.set()

    def missing(why: str) -> None:
        gpus_known.set()
        why = _with_hint(why, settings.driver_root)
        http.send_missing(why)
        if why:
            _log.warning("no GPU is offered: %s", why)
            _record_missing(settings.state_dir, why)

    # Know the pods before offering devices: the kubelet then starts to admit pods that use them.
    if alone.is_set():  # else the running agent knows them
        await api.known()
    await inventory.follow(settings, changed, missing, http.send_sensors)


def _with_hint(why: str, driver_root: str) -> str:
    """Add a hint if the software GPU's state file is read-only, which is a mistake in a mount."""
    state = os.path.join(driver_root, "softgpu.state")
    if why and os.path.exists(state) and not os.access(state, os.W_OK):
        hint = "mount it read-write; in the chart, set agent.softwareGpu=true"
        return f"{why}; {state} cannot be written: {hint}"
    return why


def _record_missing(state_dir: str, why: str) -> None:
    """Record that there is no GPU; in a pod, as an event of the agent's own pod."""
    uid, namespace, name = (
        os.environ.get(f"POD_{key}", "") for key in ("UID", "NAMESPACE", "NAME")
    )
    key, more = "", {}
    if uid and namespace and name:
        key, more = pod_key(uid, "agent"), {"pod": f"{namespace}/{name}/agent"}
    text = f"no GPU is offered: {why}"
    events.record(state_dir, names.AGENT_PROGRAM, events.NO_GPUS, key, text, **more)


async def _run_claim_socket(settings: Config, opened: asyncio.Event) -> None:
    """Run the claim socket's process; run it again unless another process took the socket over."""
    path = f"{settings.state_dir}/{claim_socket.NAME}"
    while True:
        async with child.running(_CLAIM_SOCKET, settings.state_dir, settings.path) as (
            process,
            output,
        ):
            if await output.readline():
                opened.set()
            status = await process.wait()
        _log.warning("%s: closed", path)
        await asyncio.sleep(_PAUSE_SECONDS)
        while status == 0 and os.path.exists(path):
            await asyncio.sleep(_PAUSE_SECONDS)


async def _beat(api: pod_watch_child.Cluster, arbiter: Arbiter) -> None:
    await api.beat(lambda: _is_alive(arbiter))
    await asyncio.Event().wait()


def _is_alive(arbiter: Arbiter) -> bool:
    return time.monotonic() - arbiter.sampled_at < _STUCK_SECONDS


async def _notify_systemd(
    opened: asyncio.Event, gpus_known: asyncio.Event, arbiter: Arbiter
) -> None:
    """Notify systemd: ready, then alive as long as this event loop and the arbiter run.

    Ready means that the claim socket is open and the GPUs are known: the kubelet starts after that.
    """
    for event, what in (
        (opened, "the claim socket cannot be opened"),
        (gpus_known, "NVML has not answered yet"),
    ):
        try:
            await asyncio.wait_for(event.wait(), _OPEN_SECONDS)
        except asyncio.TimeoutError:
            _log.warning("%s; going on without", what)
    systemd.notify("READY=1")
    period = systemd.watchdog_seconds() / 3
    while True:
        await asyncio.sleep(period or 3600)
        if _is_alive(arbiter):
            systemd.notify("WATCHDOG=1")
