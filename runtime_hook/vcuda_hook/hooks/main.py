"""``vcuda-container-hook``: read the state, act by the kind of hook, end."""

from __future__ import annotations

import os
import sys

from vcuda_oci.container import hook_state
from vcuda_oci.model import names
from vcuda_oci.model.errors import VcudaError, with_id
from vcuda_oci.start import poststop
from vcuda_oci.system import settings_file

USAGE = """\
usage: vcuda-container-hook [--config FILE] KIND [ALLOCATION] < STATE

An OCI hook: the container's state (JSON) comes on standard input, from the runtime.

  prestart, createRuntime   give a container that is being created the share it asks for
  createContainer           the same, from inside its namespaces: where no other kind can be had
  poststop [ALLOCATION]     release what the stopped container held
  byStatus                  createRuntime or poststop, by what the state says: where one command
                            is called for both, as in hooks.d
  cdi                       what our CDI spec cannot say, as it depends on the container and its
                            image; for a stopped container: remove the mount points of its driver

Exit status: 0 done, or nothing to do; 1 refused, and the runtime gives the container up; 2 not
called like this. poststop never fails.
"""
CREATING = ("prestart", "createRuntime", "createContainer")
POSTSTOP = "poststop"
BY_STATUS = "byStatus"
CDI = "cdi"
CDI_STOPPED = "cdi, stopped"  # not an argument of the command line
_AT_END = (POSTSTOP, CDI_STOPPED)


def main() -> None:
    _open_standard_streams()
    words = sys.argv[1:]
    settings = names.DEFAULT_CONFIG
    if words[:1] == ["--config"] and len(words) > 1:
        settings, words = words[1], words[2:]
    if words in (["--help"], ["-h"]):
        sys.stdout.write(USAGE)
        return
    kind, rest = words[0] if words else "", words[1:]
    alone = kind in (*CREATING, BY_STATUS, CDI) and not rest
    if not alone and not (kind == POSTSTOP and len(rest) <= 1):
        _to_stderr(USAGE)
        sys.exit(2)
    # Late imports: every ended container runs poststop, which needs none of these modules.
    try:
        state = hook_state.parse_state(hook_state.read())
        if kind == CDI and state.status == "stopped":
            kind = CDI_STOPPED
        if kind == BY_STATUS:
            kind = POSTSTOP if state.status == "stopped" else "createRuntime"
        if kind not in _AT_END and state.bundle == "/":
            from . import created_container  # late, as said above

            state.bundle = created_container.bundle_of(state)
        if kind == POSTSTOP:
            poststop.release(settings_file.load(settings), rest[0] if rest else "", state)
        elif kind == CDI_STOPPED:
            from vcuda_oci.start import cdi_stopped  # late, as said above

            cdi_stopped.clean_up(settings, state)
        elif kind == CDI:
            from vcuda_oci.start import cdi_stopped  # late, as said above

            from . import cdi_hook, created_container  # late, as said above

            cdi_hook.finish(settings, state)
            if created_container.is_kept():
                cdi_stopped.clean_up_at_end(settings, state)
        else:
            from . import create  # late, as said above

            create.create(kind, settings, state)
    except (VcudaError, OSError) as error:
        allocation = getattr(error, "allocation", "") or "".join(rest)
        line = with_id(f"{names.HOOK_PROGRAM}: {error}", allocation)
        _to_stderr(line + "\n")
        if kind not in _AT_END:
            from . import created_container  # late, as said above

            created_container.report_to_engine(line, allocation)
            sys.exit(1)


def _open_standard_streams() -> None:
    """Open closed standard streams: our messages must not go into the next opened file."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)


def _to_stderr(text: str) -> None:
    """Write to descriptor 2, not to sys.stderr: an error there becomes an exit status, and poststop
    must not fail.
    """
    try:
        os.write(2, text.encode(errors="replace"))
    except OSError:
        pass
