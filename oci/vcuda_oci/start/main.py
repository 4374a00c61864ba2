"""The OCI runtime wrapper: a container that asks for a share gets it written into its config.json.

The native front door (oci/launcher) comes first and sends only what may hold a request here:

    python3 -I -S -c … <config.toml> <low-level runtime> <the runtime's own words…>
"""

from __future__ import annotations

import os
import sys

from ..container import bundle, request
from ..edits import config_json
from ..model import names
from ..model.errors import VcudaError
from ..system import settings_file
from . import apply_share

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    from ..container.bundle import Command
    from ..system.settings_file import Config


def main(argv: list[str]) -> NoReturn:
    config_path, runtime = argv[0], argv[1]
    command, allocation = bundle.Command(argv[2:]), ""
    try:
        if command.creates:
            allocation = share_what_is_asked(command, config_path, runtime, os.getpid())
        become(runtime, command.words)
    except VcudaError as error:
        from . import report  # who succeeds needs none of it

        error.allocation = error.allocation or allocation
        report.error(command, error)
        sys.exit(1)


def share_what_is_asked(
    command: Command,
    config_path: str,
    runtime: str,
    claimant: int,
    has_left: Callable[[], bool] = bool,
) -> str:
    """Edit the bundle of a container that asks for a share, and no other; its allocation's id.

    claimant: the process that becomes `runtime`. has_left: of grant.Creation.

    Raises VcudaError with nothing claimed.
    """
    spec = bundle.load_config(command.config_path)
    asked = request.asked(spec)
    if not asked or not apply_share.may_count(asked, request.annotations_of(spec)):
        return ""
    try:
        settings = settings_file.load(config_path)
        return share_gpu(command, spec, asked, settings, runtime, claimant, has_left=has_left)
    except VcudaError as error:
        error.allocation = apply_share.id_of(spec, command.container_id)
        raise


def share_gpu(
    command: Command,
    spec: Any,
    asked: request.Asked,
    settings: Config,
    runtime: str,
    claimant: int,
    program: str = names.PROGRAM,
    has_left: Callable[[], bool] = bool,
) -> str:
    """Claim what the spec asks for and edit the bundle; the allocation's id, or "".

    Raises VcudaError with nothing claimed.
    """
    creation = apply_share.Creation(
        *(command.container_id, command.bundle, command.state_query(runtime), claimant, program),
        # Whoever creates will delete; a `run` does both within the low-level runtime.
        is_deleted_here=command.verb == "create",
        has_left=has_left,
    )

    def edit(granted: apply_share.Grant) -> None:
        bundle.replace_config(command.config_path, config_json.apply(spec, granted.edits))

    return apply_share.give(spec, asked, settings, creation, edit)


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
