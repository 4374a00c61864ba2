"""The OCI runtime wrapper: a container that asks for a share gets it written into its config.json.

The native front door (oci/launcher) comes first and sends only what may hold a request here:

    python3 -I -S -c … <config.toml> <low-level runtime> <the runtime's own words…>
"""

from __future__ import annotations

import os
import sys

from . import bundle, claim, config, edits, host, report, request, rootfs
from .errors import VcudaError
from .identity import is_pod, is_sandbox, owner_of
from .ledger import Ledger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from .bundle import Command
    from .config import Config

# <prefix>/lib/vcuda/python/vcuda_oci/runtime.py
_LIBRARY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SHIM = _LIBRARY + "/libvcuda.so.1"
HOOK = os.path.dirname(os.path.dirname(_LIBRARY)) + "/bin/vcuda-container-hook"


def main(argv: list[str]) -> NoReturn:
    config_path, runtime = argv[0], argv[1]
    command = bundle.Command(argv[2:])
    try:
        if command.creates:
            spec = bundle.load_config(command.config_path)
            asked = request.asked(spec)
            if asked and may_count(asked, request.annotations_of(spec)):
                share_gpu(command, spec, asked, config.load(config_path), runtime)
        become(runtime, command.words)
    except VcudaError as error:
        report.error(command, str(error))
        sys.exit(1)


def may_count(asked: request.Asked, annotations: dict[str, str]) -> bool:
    """Whether the request counts under any settings at all.

    Judged before the settings are read: a mistake there must not stop a pod whose image, as many
    do, carries NVIDIA's variable.
    """
    return not (is_sandbox(annotations) or (asked.from_env and is_pod(annotations)))


def share_gpu(
    command: Command, spec: Any, asked: request.Asked, settings: Config, runtime: str
) -> None:
    """Claim what the spec asks for and edit the bundle; raises VcudaError with nothing claimed."""
    annotations = request.annotations_of(spec)
    privileged = request.sees_every_device(spec)
    setting = settings.accept_request_from_env
    if not request.counts(asked, setting, is_pod(annotations), privileged):
        return
    owner = owner_of(annotations, command.container_id)
    wanted = request.parse(asked)
    if not os.path.exists(SHIM):
        raise VcudaError("no libvcuda", SHIM, "install vcuda again, whole")
    facts = host.load(settings.driver_root, settings.state_dir + "/host.json")
    ledger = Ledger(settings.state_dir)
    allocation, is_new = claim.claim(
        ledger, facts, owner, wanted, settings.placement, command.state_query(runtime)
    )
    try:
        paths = edits.Paths(
            SHIM,
            f"{ledger.containers}/{allocation.id}",
            [HOOK, "--config", settings.path, "poststop"],
            settings.extra_mounts,
        )
        folder = rootfs.library_folder(spec, command.bundle)
        edited = edits.apply(spec, edits.edits_for(allocation, facts, paths, folder))
        bundle.replace_config(command.config_path, edited)
    except BaseException:
        if is_new:
            with ledger:
                ledger.remove(allocation.id)
        raise


def become(runtime: str, words: list[str]) -> NoReturn:
    """Exec the low-level runtime as its caller would have: same words, same environment.

    Raises VcudaError: it cannot be run.
    """
    import _signal  # type: ignore[import-not-found]  # `signal` costs 4 ms for its enums

    # Python ignores both from its start, and an ignored signal stays ignored through exec.
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
        _signal.signal(number, _signal.SIG_DFL)
    # Not os.environ: Python adds LC_CTYPE to it under the C locale (PEP 538).
    with open("/proc/self/environ", "rb") as block:
        pairs = [entry.partition(b"=") for entry in block.read().split(b"\0") if entry]
    try:
        os.execve(runtime, [runtime, *words], {key: value for key, _, value in pairs})
    except OSError as error:
        raise VcudaError(
            f"cannot be run: {error.strerror}", runtime, "install it, or set runtime in config.toml"
        ) from error
