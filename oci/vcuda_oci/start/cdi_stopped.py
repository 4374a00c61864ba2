"""Remove the mount points of our CDI devices from a container's root at its end."""

from __future__ import annotations

import os
from collections.abc import Callable

from ..container import hook_state
from ..container.container import container_of
from ..container.hook_state import State
from ..guest import mount_points
from ..model import names
from ..system import settings_file
from . import apply_share, cdi_edits


def clean_up(config_path: str, state: State, has_left: Callable[[], bool] = lambda: False) -> None:
    """Remove the empty files that the runtime made for our mounts; raises VcudaError, OSError.

    has_left: whether the hook waits no longer. Then its Python cleans up, and the container may run
    again, with mounts that a late removal would undo.
    """
    if state.bundle == "/":
        return  # crun in a user namespace shows another folder as the bundle
    if not os.path.lexists(_config_of(state)):
        return  # BuildKit deletes the bundle first; see clean_up_at_end
    root, places = _root_and_places(config_path, state)
    if root and not has_left():
        mount_points.remove_since(_config_of(state), root, places)


def clean_up_at_end(config_path: str, state: State) -> None:
    """Have clean_up done at the end of a container that is being created; raises as it does.

    For engines that unmount the root before they delete the container and its poststop hook runs.
    """
    root, places = _root_and_places(config_path, state)
    if root and state.pid > 0:
        mount_points.remove_since(_config_of(state), root, places, at_end_of=state.pid)


def _config_of(state: State) -> str:
    # The engine wrote it when it created the container: older files are the image's.
    return os.path.join(state.bundle, "config.json")


def _root_and_places(config_path: str, state: State) -> tuple[str, list[str]]:
    """The container's root on the host, and the paths of our mounts in it."""
    settings = settings_file.load(config_path)
    container = container_of(hook_state.config_of(state), state.id, state.bundle)
    facts = apply_share.host_of(settings)
    ours = {
        *(facts.libraries.values()),
        *(facts.libraries_32_bit.values()),
        *(facts.files.values()),
        *(facts.root + path for path in facts.services),
        *(source for source, _ in settings.extra_mounts),
        facts.software_state,
        os.path.realpath(apply_share.SHIM),
    }
    places = [
        place
        for place, source in cdi_edits.mounts_of(container).items()
        if source in ours or place.startswith(names.GUEST_DIR + "/")
    ]
    return container.rootfs, places
