"""The OCI runtime wrapper: a container that asks for a share gets it written into its config.json.

The launcher (oci/launcher) runs first and passes on only what may hold a request:

    python3 -I -S -c … <config.toml> <low-level runtime> <the runtime's own words…>
"""

from __future__ import annotations

import os
import sys

from ..container import bundle, request
from ..container.bundle import Command
from ..container.container import Container, container_of
from ..edits import config_json
from ..model import names
from ..model.errors import VcudaError
from ..system import settings_file
from ..system.settings_file import Config
from . import apply_share
from .apply_share import ClaimedShare, Creation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn


def main(argv: list[str]) -> NoReturn:
    config_path, runtime = argv[0], argv[1]
    command, allocation = bundle.Command(argv[2:]), ""
    try:
        if command.creates:
            allocation = apply_request(command, config_path, runtime, os.getpid())
        exec_runtime(runtime, command.words)
    except VcudaError as error:
        from . import report  # only for errors

        error.allocation = error.allocation or allocation
        report.error(command, error)
        sys.exit(1)


def apply_request(
    command: Command,
    config_path: str,
    runtime: str,
    claimant: int,
    has_left: Callable[[], bool] = bool,
) -> str:
    """Load, claim, edit: a container that requests a share gets it written into its config.json.

    Returns the allocation's id; "", with nothing changed, for any other container. claimant: the
    process that becomes `runtime`. has_left: see Creation. Raises VcudaError with nothing claimed.
    """
    spec = bundle.load_config(command.config_path)
    container = container_of(spec, command.container_id, command.bundle)
    raw = request.find(container)
    if not raw or not apply_share.may_count(raw, container):
        return ""
    try:
        settings = settings_file.load(config_path)
        creation = creation_of(command, runtime, claimant, has_left=has_left)
        return share_gpu(command, container, raw, settings, creation)
    except VcudaError as error:
        error.allocation = apply_share.id_of(container)
        raise


def creation_of(
    command: Command,
    runtime: str,
    claimant: int,
    program: str = names.PROGRAM,
    has_left: Callable[[], bool] = bool,
) -> Creation:
    # After `create` the engine calls `delete`; a `run` does both within the low-level runtime.
    is_deleted_here = command.verb == "create"
    return Creation(command.state_query(runtime), claimant, program, is_deleted_here, has_left)


def share_gpu(
    command: Command,
    container: Container,
    raw: request.RawRequest,
    settings: Config,
    creation: Creation,
) -> str:
    """Claim the container's share and edit its bundle; the allocation's id, or "".

    Raises VcudaError with nothing claimed.
    """

    def edit(claimed: ClaimedShare) -> None:
        edited = config_json.apply(container.spec, claimed.edits)
        bundle.replace_config(command.config_path, edited)

    return apply_share.give(container, raw, settings, creation, edit)


def exec_runtime(runtime: str, words: list[str]) -> NoReturn:
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
