"""Creates the ResourceClaimTemplates that pods name and that do not exist.

A template belongs to the pod for which it was created: Kubernetes removes it with that pod. Another
pod that has no claim by then gets it created again. Pods with a claim no longer need theirs.
Without this program new pods wait, and no pod gets anything else than it asked for.
"""

from __future__ import annotations

import logging
import threading
import time

from vcuda_hook.claims import quantity
from vcuda_hook.claims.dra_names import DRIVER, MEMORY
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system.settings_file import Config

from ...kube.api import ApiError, KubeApi, Object, message_of, path_of
from ...kube.retry import Retry
from ..follow import warning_event
from ..follow.follow import UNFINISHED, Follower
from .template import PREFIX, template

# The admission policy's sign on the pods that it has changed.
LABEL = "vcuda.io/claims"
_REASON = "ClaimTemplateRefused"
# Of a pod's metadata.
_NAMED = ("name", "namespace", "uid")
_API = "/apis/resource.k8s.io/v1"
_TEMPLATES, _SLICES = f"{_API}/resourceclaimtemplates", f"{_API}/resourceslices"
# Sizes of GPUs are read again after this time, for a template that needs them.
_SIZES_SECONDS = 60.0
_LONGEST_PAUSE_SECONDS = 30.0

Key = tuple[str, str]  # namespace and name of a template

_log = logging.getLogger(__name__)


class Maker:
    """Knows the pods that wait for a claim and the templates that exist. Run `make` for good."""

    def __init__(self, api: KubeApi, settings: Config) -> None:
        self._api, self._settings = api, settings
        # By uid: what names the pod, and the templates that it waits for.
        self._waiting: dict[str, tuple[Object, set[Key]]] = {}
        self._there: dict[str, Key] = {}
        self._refused: set[tuple[str, Key]] = set()
        self._sizes: list[int] = []
        self._sizes_until = 0.0
        self._lock = threading.Condition()
        self._due = False
        pods = Follower(
            api,
            "/api/v1/pods",
            "uid",
            self._put_pod,
            self._drop_pod,
            self._keep_pods,
            labelSelector=LABEL,
            fieldSelector=UNFINISHED,
        )
        self._templates = Follower(
            api, _TEMPLATES, "uid", self._put_template, self._drop_template, self._keep_templates
        )
        self.following = [pods, self._templates]

    def make(self) -> None:
        """Create what is missing, until the process ends."""
        for each in self.following:
            each.start()
        for each in self.following:
            each.synced.wait()
        # Each template has its own pause: one that is refused holds no other up.
        later: dict[Key, tuple[float, Retry]] = {}
        while True:
            first = min((at for at, _ in later.values()), default=None)
            with self._lock:
                pause = None if first is None else max(0.0, first - time.monotonic())
                self._lock.wait_for(lambda: self._due, pause)
                self._due, missing = False, self._missing()
            keys = {key for _, key in missing}
            later = {key: each for key, each in later.items() if key in keys}
            for pod, key in missing:
                at, retry = later.get(key) or (0.0, Retry(_log.warning, _LONGEST_PAUSE_SECONDS))
                if at > time.monotonic():
                    continue
                later.pop(key, None)
                if trouble := self._create(pod, key):
                    pause = retry.after(f"{trouble}; trying again")
                    later[key] = time.monotonic() + pause, retry

    def _missing(self) -> list[tuple[Object, Key]]:
        there = set(self._there.values())
        found: dict[Key, Object] = {}
        for pod, keys in self._waiting.values():
            for key in keys - there:
                if (pod["uid"], key) not in self._refused:
                    found.setdefault(key, pod)
        return [(pod, key) for key, pod in found.items()]

    def _create(self, pod: Object, key: Key) -> str:
        """Create a template for a pod; return why it is to be tried again, "": it is not."""
        namespace, name = key
        try:
            tree = template(name, self._settings, self._sizes_now)
            owner = {"apiVersion": "v1", "kind": "Pod", "name": pod["name"], "uid": pod["uid"]}
            tree["metadata"] |= {"namespace": namespace, "ownerReferences": [owner]}
            path = path_of(_API, namespace, "resourceclaimtemplates")
            status, answer = self._api.call("POST", path, tree)
        except VcudaError as error:
            self._refuse(pod, key, str(error))
            return ""
        except ApiError as error:
            return f"template {namespace}/{name}: {error}"
        if status == 201:
            with self._lock:
                if self._templates.is_newer(answer):
                    self._put_template(answer)
            _log.info("%s/%s: created for pod %s", namespace, name, pod["name"])
        elif status in (400, 422):
            self._refuse(pod, key, message_of(answer))
        elif status != 409:  # it exists, and the watch is late
            return f"template {namespace}/{name}: {status} {message_of(answer)}"
        return ""

    def _sizes_now(self) -> list[int]:
        """The memory capacities of the driver's devices, in bytes. Raises ApiError: none known."""
        if self._sizes_until < time.monotonic():
            slices = self._api.get(_SLICES, {"fieldSelector": f"spec.driver={DRIVER}"})["items"]
            # A slice can be written by any node's agent: a device without memory has no size.
            found = {
                quantity.whole(device["capacity"][MEMORY]["value"])
                for each in slices
                for device in each["spec"].get("devices") or ()
                if "value" in device.get("capacity", {}).get(MEMORY, {})
            }
            if not found:
                raise ApiError(0, f"no ResourceSlice of {DRIVER} has a GPU")
            self._sizes = sorted(size for size in found if size)
            self._sizes_until = time.monotonic() + _SIZES_SECONDS
        return self._sizes

    def _refuse(self, pod: Object, key: Key, why: str) -> None:
        """Say in the log and in an Event of the pod why it gets no template."""
        with self._lock:
            self._refused.add((pod["uid"], key))
        namespace, name = key
        _log.warning("%s/%s: pod %s waits: %s", namespace, name, pod["name"], why)
        warning_event.warn(self._api, "Pod", pod, _REASON, why)

    def _put_pod(self, pod: Object) -> None:
        about, spec = pod["metadata"], pod.get("spec") or {}
        claimed = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
        has = {each.get("name") for each in claimed}
        keys = {
            (str(about["namespace"]), str(each["resourceClaimTemplateName"]))
            for each in spec.get("resourceClaims") or ()
            if str(each.get("resourceClaimTemplateName", "")).startswith(PREFIX)
            and each.get("name") not in has
        }
        with self._lock:
            self._waiting[about["uid"]] = {key: about[key] for key in _NAMED}, keys
            if not keys or about.get("deletionTimestamp"):
                del self._waiting[about["uid"]]
        self._wake()

    def _drop_pod(self, uid: str) -> None:
        with self._lock:
            self._waiting.pop(uid, None)
            self._refused = {each for each in self._refused if each[0] != uid}

    def _keep_pods(self, uids: set[str], since: float) -> None:
        with self._lock:
            ended = self._waiting.keys() - uids
        for uid in ended:
            self._drop_pod(uid)

    def _put_template(self, each: Object) -> None:
        about = each["metadata"]
        if str(about["name"]).startswith(PREFIX):
            with self._lock:
                self._there[about["uid"]] = about["namespace"], about["name"]

    def _drop_template(self, uid: str) -> None:
        with self._lock:
            self._there.pop(uid, None)
        self._wake()

    def _keep_templates(self, uids: set[str], since: float) -> None:
        with self._lock:
            self._there = {uid: key for uid, key in self._there.items() if uid in uids}
        self._wake()

    def _wake(self) -> None:
        with self._lock:
            self._due = True
            self._lock.notify_all()
