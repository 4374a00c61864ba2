"""The hook: give a container that is being created its share, from outside."""

from __future__ import annotations

from vcuda_oci.container import hook_state, request
from vcuda_oci.container.container import Container, container_of
from vcuda_oci.container.hook_state import State
from vcuda_oci.container.identity import owner_of
from vcuda_oci.ledger import liveness
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model import names
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.start import apply_share
from vcuda_oci.system import settings_file
from vcuda_oci.system.settings_file import Config

from . import created_container


def create(kind: str, config_path: str, state: State) -> None:
    """Give the container in `state` the share that its config.json requests; raises VcudaError.

    Changes nothing without a request, or if the wrapper has edited the container already.
    """
    container = container_of(hook_state.config_of(state), state.id, state.bundle)
    raw = request.find(container)
    if not raw or not apply_share.may_count(raw, container):
        return
    try:
        _create(kind, settings_file.load(config_path), state, container, raw)
    except VcudaError as error:
        error.allocation = apply_share.id_of(container)
        raise


def _create(
    kind: str, settings: Config, state: State, container: Container, raw: request.RawRequest
) -> None:
    if _has_its_share(settings.state_dir, container):
        return
    created = created_container.find(kind, state)
    creation = apply_share.Creation(created.runtime, created.pid, names.HOOK_PROGRAM)

    def give(claimed: apply_share.ClaimedShare) -> None:
        from . import attach  # late: ctypes, only for a container with a share

        try:
            attach.attach(claimed.edits, created, container.rootfs, claimed.driver_root)
            # The runtime has read its list of hooks before.
            attach.run_hooks(claimed.edits, "createRuntime", created.pid)
        except OSError as error:
            raise VcudaError(
                f"its first process cannot be reached: {error.strerror}",
                f"container {state.id}",
                "see why it ended, and create it again",
            ) from error

    apply_share.give(container, raw, settings, creation, give)


def _has_its_share(state_dir: str, container: Container) -> bool:
    """Whether this creation has claimed before, by the wrapper or another hook: for the process
    that becomes the runtime and waits for this hook, or for the container's first process.
    """
    try:
        known = Ledger(state_dir).get(owner_of(container.annotations, container.id).key)
    except VcudaError:
        return False  # the claim reports it, if the request counts
    return (
        known is not None and known.container_id == container.id and liveness.claimant_lives(known)
    )
