"""The hook of our CDI spec: makes the edits of `vcuda_oci.start.cdi_edits`."""

from __future__ import annotations

from vcuda_oci.container import hook_state
from vcuda_oci.container.container import container_of
from vcuda_oci.container.hook_state import State
from vcuda_oci.model import names
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.start import apply_share, cdi_edits
from vcuda_oci.system import settings_file

from . import created_container


def finish(config_path: str, state: State) -> None:
    """Raises VcudaError: the image's requirements are not met, or a mount failed."""
    container = container_of(hook_state.config_of(state), state.id, state.bundle)
    try:
        settings = settings_file.load(config_path)
    except VcudaError as error:
        error.allocation = apply_share.id_of(container)
        raise
    try:
        facts = apply_share.host_of(settings)
        more, again = cdi_edits.edits_of(container, settings, facts)
        if more.mounts or more.hooks or more.denied:
            from . import attach  # late: ctypes, only if there is something to mount

            created = created_container.find("createRuntime", state)
            attach.attach(more, created, container.rootfs, facts.root, again)
            attach.run_hooks(more, "createRuntime", created.pid)
    except VcudaError as error:
        apply_share.record_refusal(container, settings, names.HOOK_PROGRAM, error)
        raise
