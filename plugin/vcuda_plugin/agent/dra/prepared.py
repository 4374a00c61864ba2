"""Prepared claims: a record in the ledger and a CDI spec for each.

The record is written first and the spec last; the kubelet starts no container before both are
there. Unprepare removes them in the other order. Killed in between, either is completed by the
kubelet's next call, which repeats until it is answered. A record has no container: the kubelet says
when it ends. The pages and the edits are those of a named slice: the containers of a claim share
its memory and GPU time.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
from collections.abc import Iterator, Sequence

from vcuda_hook.live import slices
from vcuda_oci.container.identity import Owner
from vcuda_oci.edits import cdi_spec, edits
from vcuda_oci.fences import instance_claim, mps_claim
from vcuda_oci.host import device_nodes
from vcuda_oci.host.host import Host
from vcuda_oci.host.mig import Mig
from vcuda_oci.ledger import claim, events, instance_records
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model import names, policies
from vcuda_oci.model.allocation import Allocation, GpuShare
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.placement.mig import Place
from vcuda_oci.placement.rules import rules_of
from vcuda_oci.start import apply_share, left_over
from vcuda_oci.system import files, settings_file
from vcuda_oci.system.settings_file import Config

from ...kube.api import Object
from .claim_request import ClaimRequest, name_of, of_claim
from .mig_places import places_of

_log = logging.getLogger(__name__)

_HOOK_WORD = "cdi"
_MOST_REFUSED = 1000
_Mount = tuple[str, str, list[str]]  # source, destination, options
# It becomes a part of file names.
_UID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,62}[A-Za-z0-9])?", re.ASCII)
_SPEC = re.compile(r"vcuda\.io-claim_(.+)\.json(?:\.new)?")


class PreparedClaims:
    """The claims of this node. config: the settings' path. folder: of CDI specs. node: its name.

    node_root: the node's name of the driver root, which an agent in a pod may see elsewhere; "":
    the same as here.
    """

    def __init__(self, config: str, folder: str, node: str, node_root: str = "") -> None:
        self._config, self._folder, self._node = config, folder, node
        self._node_root = node_root
        self._refused: dict[str, str] = {}  # the last error of claims that are not prepared

    def prepare(self, object: Object, uid: str) -> tuple[ClaimRequest, str]:
        """Prepare a claim as the API has it; return the claim's request and the CDI device's name.

        Repeated calls change nothing. Raises VcudaError with nothing prepared that was not before;
        it is an event of the claim too, once for equal errors: the kubelet repeats its call.
        """
        _check(uid)
        settings = settings_file.load(self._config)
        try:
            found = self._prepare(object, uid, settings)
        except VcudaError as error:
            if self._refused.get(uid) != str(error):
                if len(self._refused) >= _MOST_REFUSED:
                    self._refused.clear()
                self._refused[uid] = str(error)
                state, by, pod = settings.state_dir, names.AGENT_PROGRAM, name_of(object)
                events.record(state, by, events.REFUSED, id_of(uid), str(error), pod=pod)
            raise
        self._refused.pop(uid, None)
        return found

    def _prepare(self, object: Object, uid: str, settings: Config) -> tuple[ClaimRequest, str]:
        apply_share.check_shim()
        facts = apply_share.host_of(settings)
        wanted = of_claim(object, uid, self._node, facts.gpus, _places(facts))
        ledger = Ledger(settings.state_dir, names.AGENT_PROGRAM)
        namespace, name = (str(object["metadata"][key]) for key in ("namespace", "name"))
        # The record always names the claim; a claim of several pods stands for them.
        pod = (wanted.pod_uid or uid, namespace, wanted.pod_name or name)
        owner = Owner(id_of(uid), "", *pod, name)
        mine = claim.Claim(owner, wanted.request, [], os.getpid(), wanted.shares)
        # A claim's device says its isolation, whatever the setting says of containers.
        isolation, rules = wanted.request.terms.isolation, rules_of(settings)
        with _named(f"claim {namespace}/{name}"):
            if wanted.place:
                held, is_new = instance_claim.claim_instance(
                    ledger, facts, mine, rules, wanted.place
                )
                facts = apply_share.host_of(settings)  # with the new MIG device
            else:
                held, is_new = apply_share.claim_as(isolation, ledger, facts, mine, rules)
        try:
            _check_same(ledger, held, wanted, facts)
            mounts: list[_Mount] = []
            if held.isolation == policies.MPS:
                mounts = mps_claim.wait(ledger, facts, held, self._root(facts))
            self._write(ledger, facts, settings, held, uid, mounts)
        except BaseException:
            if is_new:
                with ledger:
                    ledger.remove(held.id)
                try:
                    left_over.destroy_released(ledger)
                except VcudaError as error:  # the next sweep tries again
                    _log.warning("%s", error)
            raise
        if is_new:
            ledger.record_event(events.CLAIMED, held, events.of(held))
        return wanted, f"{names.CDI_CLAIM_KIND}={uid}"

    def unprepare(self, uid: str) -> None:
        """Remove what `prepare` made, if anything. Raises VcudaError, OSError."""
        _check(uid)
        path = self._path(uid)
        for each in (path, path + ".new"):  # a killed writer leaves the second
            files.remove(each)
        ledger = Ledger(settings_file.load(self._config).state_dir, names.AGENT_PROGRAM)
        with ledger:
            held = ledger.get(id_of(uid))
            if held is None:
                return
            # A process that is left gets no GPU in new processes.
            slices.revoke(ledger, held)
            ledger.remove(held.id)
            ledger.record_event(events.RELEASED, held, "the kubelet has unprepared its claim")
        left_over.destroy_released(ledger)

    def known(self) -> dict[str, tuple[str, str]]:
        """Namespace and name of each prepared claim by uid; of a spec without a record ("", "")."""
        ledger = Ledger(settings_file.load(self._config).state_dir, names.AGENT_PROGRAM)
        found: dict[str, tuple[str, str]] = {}
        with contextlib.suppress(FileNotFoundError):
            for file in os.listdir(self._folder):
                if spec := _SPEC.fullmatch(file):
                    found[spec[1]] = "", ""
        for record in ledger.read()[0]:
            if record.id.startswith(names.CLAIM_PREFIX):
                uid = record.id[len(names.CLAIM_PREFIX) :]
                found[uid] = record.pod.get("namespace", ""), record.pod.get("container", "")
        return found

    def _write(
        self,
        ledger: Ledger,
        facts: Host,
        settings: Config,
        held: Allocation,
        uid: str,
        mounts: Sequence[_Mount],
    ) -> None:
        """Write the CDI spec. Raises VcudaError: it cannot be written."""
        command = [apply_share.HOOK, "--config", settings.path, _HOOK_WORD]
        pages = f"{ledger.containers}/{held.id}"
        paths = edits.Paths(apply_share.SHIM, pages, command, settings.extra_mounts)
        tree = cdi_spec.spec_of_one(
            facts, paths, settings.driver_capabilities, names.CDI_CLAIM_KIND, uid, held, mounts
        )
        root = self._root(facts)
        if root != facts.root:
            _name_on_node(tree["containerEdits"], facts.root, root)
            _name_on_node(tree["devices"][0]["containerEdits"], facts.root, root)
        if not root:
            device_nodes.link_numbers(list(facts.nodes.values()))
        path = self._path(uid)
        try:
            os.makedirs(self._folder, 0o755, exist_ok=True)
            files.replace(path, (json.dumps(tree, indent=2) + "\n").encode(), 0o644, sync=True)
        except OSError as error:
            what = f"cannot be written: {error.strerror}"
            raise VcudaError(what, path, "free space there") from error

    def _root(self, facts: Host) -> str:
        """The driver root as the node sees it."""
        return self._node_root.rstrip("/") if self._node_root else facts.root

    def _path(self, uid: str) -> str:
        return f"{self._folder}/vcuda.io-claim_{uid}.json"


def id_of(uid: str) -> str:
    """The allocation's id."""
    return names.CLAIM_PREFIX + uid


def _name_on_node(edits: Object, here: str, there: str) -> None:
    """Name the driver's files and nodes as the engine sees them."""
    for each in (*edits["deviceNodes"], *edits["mounts"]):
        path = each["hostPath"]
        if path.startswith(here + "/"):
            each["hostPath"] = there + path[len(here) :]


def _check(uid: str) -> None:
    if not _UID.fullmatch(uid):
        raise VcudaError(f"'{uid}' is not a uid", "claim", "restart the kubelet")


def _places(facts: Host) -> dict[str, tuple[Place, GpuShare]]:
    """The places of GPU instances. Raises VcudaError: NVML cannot be asked."""
    if not facts.has_divided:
        return {}
    with Mig(facts.library) as driver:
        return places_of([driver.layout(gpu.uuid) for gpu in facts.gpus if gpu.divided])


def _check_same(ledger: Ledger, held: Allocation, wanted: ClaimRequest, facts: Host) -> None:
    """Raises VcudaError: the record is of an earlier allocation of the same claim."""
    hint = "the kubelet unprepares it and tries again"
    isolation = wanted.request.terms.isolation
    if held.isolation != (isolation if isolation in (policies.MIG, policies.MPS) else ""):
        raise VcudaError("has another isolation than is allocated now", held.id, hint)
    has = [share.uuid for share in held.shares]
    if held.isolation == policies.MIG:
        has = [gpu.parent for uuid in has if (gpu := facts.gpu(uuid))]
    if has != [share.uuid for share in wanted.shares]:
        raise VcudaError("holds other GPUs than are allocated now", held.id, hint)
    if place := wanted.place:
        records = instance_records.read(ledger.state_dir)
        stands = [(one.profile, one.start) for one in records if one.id == held.id]
        if stands != [(place.profile.id, place.start)]:
            what = "has a GPU instance at another place than is allocated now"
            raise VcudaError(what, held.id, hint)


@contextlib.contextmanager
def _named(where: str) -> Iterator[None]:
    """Name the claim in errors of placement, which speak of a pod's decision."""
    try:
        yield
    except VcudaError as error:
        raise VcudaError(error.what, where, error.hint) from error
