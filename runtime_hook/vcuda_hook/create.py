"""The hook door: a container that is being created gets the share it asks for, from outside."""

from __future__ import annotations

from vcuda_oci import config, container_state, grant, names, request, rootfs
from vcuda_oci.errors import VcudaError

from . import created_container

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from vcuda_oci.container_state import State


def create(kind: str, config_path: str, state: State) -> None:
    """Give the container in `state` what its config.json asks for; raises VcudaError.

    Nothing happens to one that asks for nothing, or that the wrapper has edited already.
    """
    spec = container_state.config_of(state)
    asked = request.asked(spec)
    if not asked or not grant.may_count(asked, request.annotations_of(spec)) or _is_edited(spec):
        return
    settings = config.load(config_path)
    container = created_container.find(kind, state)
    creation = grant.Creation(
        *(state.id, state.bundle, container.runtime, container.pid, names.HOOK_PROGRAM)
    )

    def give(granted: grant.Grant) -> None:
        from . import attach  # ctypes: only for who gets a share

        try:
            root = rootfs.path_of(spec, state.bundle)
            attach.attach(granted.edits, container.process, root, granted.driver_root)
            # The runtime has read its list of hooks already.
            attach.run_hooks(granted.edits, "createRuntime", container.pid)
        except OSError as error:
            raise VcudaError(
                f"its first process cannot be reached: {error.strerror}",
                f"container {state.id}",
                "look why it ended, and create it again",
            ) from error

    grant.give(spec, asked, settings, creation, give)


def _is_edited(spec: Any) -> bool:
    """Whether the wrapper was here: its poststop hook carries the allocation's name."""
    hooks = spec.get("hooks")
    found = hooks.get("poststop") if isinstance(hooks, dict) else None
    for hook in found if isinstance(found, list) else ():
        args = hook.get("args") if isinstance(hook, dict) else None
        if isinstance(args, list) and args[:1] == [grant.HOOK] and args[-2:-1] == ["poststop"]:
            return True
    return False
