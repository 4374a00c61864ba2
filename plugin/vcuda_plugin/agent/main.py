"""``vcuda-node-agent``: runs once on each node; starts and supervises the agent's parts."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import hashlib
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

from vcuda_oci.ledger import events
from vcuda_oci.model import names
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system import files, settings_file
from vcuda_oci.system.settings_file import Config

from . import alive, command_line, dra_driver, gpu_news
from .bypass import bypass_child
from .compute import shortage_watch
from .compute.grants import Arbiter
from .dra import dra_child
from .gpus import inventory
from .gpus.feature_file import Labelling
from .http import http_child, listen_address, names_line
from .kubelet import hand_over, registration, resources
from .kubelet.device_plugin import DevicePlugin
from .ledger import sweep
from .offer import Offer
from .pods import pod_watch_child
from .process import child, claim_socket_child, confine, rights
from .suspend import suspend_child

# Time limit for the parts to end; the agent then exits without waiting for the rest.
_END_SECONDS = 5
_SETTINGS_SECONDS, _SETTINGS_CHECK_SECONDS = 50, 0.5


def command() -> int:
    return main(sys.argv[1:])


def main(argv: Sequence[str]) -> int:
    arguments = command_line.parser().parse_args(argv)
    # The children inherit it.
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format=f"{names.AGENT_PROGRAM}: %(message)s"
    )
    try:
        _await_settings(arguments.config, arguments.config_digest)
        settings = settings_file.load_named(arguments.config)
        offered = resources.offered(settings)
        listen_address.check(settings.listen, settings.path)
        if settings.by_dra and not pod_watch_child.is_there(settings, arguments.kubeconfig):
            hint = 'name a kubeconfig with --kubeconfig, or set gpu-offer = "plugin"'
            raise VcudaError("DRA needs the Kubernetes API", settings.path, hint)
        with child.forked(settings, *_modules(settings, arguments)):
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
    needed = {
        claim_socket_child.MODULE: not arguments.no_door,
        inventory.MODULE: True,
        bypass_child.MODULE: True,
        suspend_child.MODULE: True,
        http_child.MODULE: settings.listen,
        dra_child.MODULE: dra_driver.is_needed(settings, arguments),
        pod_watch_child.MODULE: pod_watch_child.is_there(settings, arguments.kubeconfig),
    }
    return [module for module, is_needed in needed.items() if is_needed]


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
    driver = dra_driver.make(settings, arguments, api)
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
        gpu_news.follow(settings, offer, api, http, gpus_known, alone),
        *(_when(begun, each.run) for each in registrations),
        _when(publishes, offer.follow),
        # What only one agent of a node may do.
        *(
            _when(alone, part)
            for part in (
                lambda: _arbitrate(arbiter),
                *([] if arguments.no_door else [lambda: claim_socket_child.run(settings, opened)]),
                bypass_child.follow,
                lambda: suspend_child.follow(settings),
                api.run,
                lambda: alive.beat(api, arbiter),
                lambda: sweep.run(settings.state_dir),
                lambda: shortage_watch.run(settings.state_dir),
                lambda: alive.notify_systemd(opened, gpus_known, arbiter),
            )
        ),
    ]
    if settings.listen:
        parts += [http.run(), names_line.run(settings.state_dir, http.send_names)]
    if driver:
        parts.append(_when(begun, lambda: dra_driver.run(driver, offer, settings)))
    if not arbiter.is_only:
        detached = handed if is_same else []
        parts.append(hand_over.run(detached, arbiter.take_place, http.end_wait, alone))
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
