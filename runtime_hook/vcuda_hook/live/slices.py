"""Named slices: shares of GPUs that belong to a name, not to a container.

A CDI spec is written once and used by many containers. The slice is claimed when it is created; its
pages exist as long as the slice, and its containers share its memory and GPU time.
"""

from __future__ import annotations

import contextlib
import os
import re

from vcuda_oci.container import request
from vcuda_oci.container.identity import Owner
from vcuda_oci.guest import page_file
from vcuda_oci.host.host import Host
from vcuda_oci.ledger import claim, events
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model import names
from vcuda_oci.model.allocation import Allocation
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.request import Request
from vcuda_oci.pages import layout, page_reader
from vcuda_oci.placement.rules import rules_of
from vcuda_oci.system.settings_file import Config

_PREFIX = names.SLICE_PREFIX
# A CDI device's name that is also valid as a file name. Source: CDI SPEC.md, "name".
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,98}[A-Za-z0-9])?", re.ASCII)
# The names of whole GPUs.
_TAKEN = re.compile(r"[0-9]+(:[0-9]+)?|all|(GPU|MIG)-.*", re.IGNORECASE)
# What a request of a container can say besides, and why a slice's cannot.
_OF_CONTAINERS = {
    "isolation": "leave it out: a slice's containers take turns",
    "idle-suspend": "leave it out: 'vcuda suspend' alone suspends a slice",
}


def parse(text: str) -> tuple[str, Request]:
    """Parse "NAME=core:30,memory:5GiB,gpu:0" to name and request. Raises VcudaError: invalid."""
    name, equals, rest = text.partition("=")
    where = f"--slice {name}"
    if not equals or not _NAME.fullmatch(name):
        hint = "write NAME=core:30,memory:5GiB, NAME of letters, digits and _.-"
        raise VcudaError(f"'{text}' is not a slice", "--slice", hint)
    if _TAKEN.fullmatch(name):
        raise VcudaError(f"'{name}' is a whole GPU's name", "--slice", "choose another")
    words: dict[str, str] = {}
    for part in rest.split(","):
        key, colon, value = part.partition(":")
        if not colon or (key in words and key != "gpu"):
            raise VcudaError(f"'{part}' is not part of a request", where, "write core:30")
        if key in _OF_CONTAINERS:
            raise VcudaError(f"'{key}' is not part of a slice", where, _OF_CONTAINERS[key])
        words[key] = f"{words[key]},{value}" if key in words else value
    return name, request.parse(request.RawRequest(words, where))


def claim_slice(ledger: Ledger, host: Host, name: str, wanted: Request, settings: Config) -> bool:
    """Claim the slice; return whether it is new. Raises VcudaError: refused, or its name has
    another share.
    """
    known = ledger.get(_PREFIX + name)
    if known:
        if known.request != wanted.as_json():
            raise VcudaError(
                "exists with another request", name, f"run 'vcuda cdi remove {name}' first"
            )
        with contextlib.suppress(OSError):  # an earlier version left the folder open to every user
            ledger.close_folder(known)
        return False
    mine = claim.Claim(Owner(_PREFIX + name, ""), wanted, [], os.getpid())
    rules = rules_of(settings)
    made, is_new = claim.claim(ledger, host, mine, rules)
    ledger.record_event(events.CLAIMED, made, events.of(made))
    return is_new


def name_of(allocation: Allocation) -> str:
    """The CDI device's name."""
    return allocation.id[len(_PREFIX) :]


def id_of(name: str) -> str:
    """The allocation's id."""
    return _PREFIX + name


def all_of(ledger: Ledger) -> list[Allocation]:
    """The named slices; a prepared claim is none of them."""
    return [allocation for allocation in ledger.read()[0] if allocation.id.startswith(_PREFIX)]


def is_in_use(ledger: Ledger, allocation: Allocation) -> bool:
    """Whether a running process uses the slice, by the locks on the usage page."""
    try:
        fd = page_file.open_page(f"{ledger.containers}/{allocation.id}/usage", os.O_RDONLY)
    except BlockingIOError:
        return True  # a process that has a lease has the page open
    except OSError:
        return False
    try:
        return bool(page_reader.live_slots(fd))
    except TimeoutError:
        return True
    finally:
        os.close(fd)


def revoke(ledger: Ledger, allocation: Allocation) -> None:
    """Empty the limits page of containers that still have it mounted, so that new processes get no
    GPU.

    The shim then answers CUDA_ERROR_SYSTEM_NOT_READY. The ledger's lock must be held. Raises
    VcudaError: a process has a lease on the page.
    """
    path = f"{ledger.containers}/{allocation.id}/limits"
    try:
        fd = page_file.open_page(path, os.O_WRONLY)
    except BlockingIOError as error:
        raise page_file.leased(path) from error
    except OSError:
        return
    try:
        os.pwrite(fd, bytes(layout.LIMITS_SIZE), 0)
    finally:
        os.close(fd)
