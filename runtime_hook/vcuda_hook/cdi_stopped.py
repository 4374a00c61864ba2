"""The end of a container that had our CDI devices: their mount points leave its root."""

from __future__ import annotations

import os

from vcuda_oci import config, container_state, grant, names, rootfs
from vcuda_oci.guest import mount_points

from . import cdi_hook

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vcuda_oci.container_state import State


def clean_up(config_path: str, state: State) -> None:
    """Remove the empty files that the runtime made for our mounts; raises VcudaError, OSError.

    The engine wrote config.json when it created the container: what is older is the image's.
    """
    if state.bundle == "/":
        return  # crun in a user namespace: what is there is not the bundle
    settings = config.load(config_path)
    spec = container_state.config_of(state)
    facts = grant.host_of(settings)
    ours = {
        *(facts.libraries.values()),
        *(facts.libraries_32_bit.values()),
        *(facts.files.values()),
        *(facts.root + path for path in facts.services),
        *(source for source, _ in settings.extra_mounts),
        facts.software_state,
        os.path.realpath(grant.SHIM),
    }
    places = [
        place
        for place, source in cdi_hook.mounts_of(spec).items()
        if source in ours or place.startswith(names.GUEST_DIR + "/")
    ]
    root = rootfs.path_of(spec, state.bundle)
    if root:
        mount_points.remove_since(os.path.join(state.bundle, "config.json"), root, places)
