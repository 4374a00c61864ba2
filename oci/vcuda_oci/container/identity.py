"""Which container this is, from what the engine itself wrote, never from env or the image."""

from __future__ import annotations

from ..model import names
from ..model.errors import VcudaError
from ..model.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+")


class Owner(Record):
    """The owner of an allocation: a container of a pod, across its restarts, or one container.

    key: the allocation's id and its file's name. pod_uid and the names are "" outside Kubernetes.
    sandbox_id: the pod's sandbox container; while it lives, the pod keeps what it has.
    engine: where the engine keeps its name (engine_name.py); {} of a pod's.
    """

    __slots__ = (
        *("key", "container_id", "pod_uid", "namespace"),
        *("pod_name", "container_name", "sandbox_id", "engine"),
    )

    def __init__(
        self,
        key: str,
        container_id: str,
        pod_uid: str = "",
        namespace: str = "",
        pod_name: str = "",
        container_name: str = "",
        sandbox_id: str = "",
        engine: dict[str, str] | None = None,
    ) -> None:
        self.engine = engine or {}
        self.key, self.container_id = key, container_id
        self.pod_uid, self.namespace, self.pod_name = pod_uid, namespace, pod_name
        self.container_name, self.sandbox_id = container_name, sandbox_id

    @property
    def is_pod(self) -> bool:
        return bool(self.pod_uid)


def is_sandbox(annotations: Mapping[str, str]) -> bool:
    """Whether this is a pod's own (pause) container, which gets nothing of the pod's."""
    return names.SANDBOX in (
        annotations.get(names.CONTAINERD_CONTAINER_TYPE),
        annotations.get(names.CRIO_CONTAINER_TYPE),
    )


def proven(annotations: Mapping[str, str], cgroups_path: object) -> dict[str, str]:
    """The annotations, without a claim to be another engine's than the cgroup's name proves.

    CRI-O names a container's cgroup crio-ID, Podman libpod-ID, in systemd's form SLICE:crio:ID.
    Neither a pod's author nor an image chooses that name, but the one can add annotations under
    CRI-O and the other under Podman. Source: CRI-O internal/config/cgmgr, ContainerCgroupPath;
    Podman libpod, getOCICgroupPath; seen with CRI-O 1.36.3 and Podman 5.8.2. CRI-O always names
    the cgroup, and Podman not always (--cgroups=disabled): without the name, CRI-O's claim counts
    as one that Podman makes too, so claims_two_engines holds.
    """
    path = cgroups_path if isinstance(cgroups_path, str) else ""
    if path.count(":") == 2:
        engine = path.split(":")[1]
    else:
        engine, dash, _ = path.rpartition("/")[2].partition("-")
        engine = engine if dash else ""
    if engine == "crio":
        kept = {k: v for k, v in annotations.items() if not k.startswith(names.PODMAN_PREFIX)}
        kept[names.CONTAINER_MANAGER] = names.CONTAINER_MANAGER_CRIO
        return kept
    if engine == "libpod":
        return {**annotations, names.CONTAINER_MANAGER: names.CONTAINER_MANAGER_PODMAN}
    if annotations.get(names.CONTAINER_MANAGER) == names.CONTAINER_MANAGER_CRIO:
        return {**annotations, names.PODMAN_UNPROVEN: ""}
    return dict(annotations)


def image_may_annotate(annotations: Mapping[str, str]) -> bool:
    """Whether this is Podman's container: Podman makes the image's annotations the container's.

    So none of them proves anything. The image can change the manager's name but not remove it, and
    containerd names none. Source: seen with Podman 4.3.
    """
    manager = annotations.get(names.CONTAINER_MANAGER, names.CONTAINER_MANAGER_CRIO)
    return manager != names.CONTAINER_MANAGER_CRIO or any(
        key.startswith(names.PODMAN_PREFIX) for key in annotations
    )


def claims_two_engines(annotations: Mapping[str, str]) -> bool:
    """Whether both CRI-O and Podman are said to have made it, and no cgroup's name proves which."""
    crio = annotations.get(names.CONTAINER_MANAGER) == names.CONTAINER_MANAGER_CRIO
    return crio and image_may_annotate(annotations)


def is_crios(annotations: Mapping[str, str]) -> bool:
    """Whether this is CRI-O's container: its pod's annotations, except where CRI-O writes its own,
    are whatever the pod's author wrote."""
    crio = annotations.get(names.CONTAINER_MANAGER) == names.CONTAINER_MANAGER_CRIO
    return crio and not image_may_annotate(annotations)


def is_pod(annotations: Mapping[str, str]) -> bool:
    """Whether the engine says that this container belongs to a pod."""
    if image_may_annotate(annotations):
        return False
    return names.CONTAINERD_POD_UID in annotations or names.CRIO_POD_UID in annotations


def owner_of(annotations: Mapping[str, str], container_id: str) -> Owner:
    """The owner that the engine's annotations name. Raises VcudaError: a name that is no file name.

    Source: containerd pkg/cri/annotations, CRI-O pkg/annotations.
    """
    if not is_pod(annotations):
        return Owner(_file_name(container_id, "container id"), container_id)
    if names.CONTAINERD_POD_UID in annotations and not is_crios(annotations):
        pod = (
            names.CONTAINERD_POD_UID,
            names.CONTAINERD_POD_NAMESPACE,
            names.CONTAINERD_POD_NAME,
            names.CONTAINERD_CONTAINER_NAME,
            names.CONTAINERD_SANDBOX_ID,
        )
    else:
        pod = (
            names.CRIO_POD_UID,
            names.CRIO_POD_NAMESPACE,
            names.CRIO_POD_NAME,
            names.CRIO_CONTAINER_NAME,
            names.CRIO_SANDBOX_ID,
        )
    uid, namespace, pod_name, container_name, sandbox_id = (annotations.get(k, "") for k in pod)
    if not container_name:
        raise VcudaError(
            "the engine named a pod but no container in it",
            container_id,
            f"use an engine that writes {pod[3]}",
        )
    key = pod_key(uid, container_name)
    _file_name(key, "pod uid and container name")
    return Owner(key, container_id, uid, namespace, pod_name, container_name, sandbox_id)


def pod_key(uid: str, container_name: str) -> str:
    """The key of a pod's container, the same after each restart."""
    return f"pod-{uid}.{container_name}"


def pod_uid(key: str, container_name: str) -> str:
    """The UID in a pod's container's key; "": it is none of that container."""
    begin, end = "pod-", f".{container_name}"
    found = key.startswith(begin) and key.endswith(end)
    return key[len(begin) : -len(end)] if found else ""


def _file_name(name: str, what: str) -> str:
    if not name or name.startswith(".") or len(name) > 200 or not _SAFE.issuperset(name):
        raise VcudaError(
            f"the {what} '{name[:80]}' cannot name an allocation",
            "identity",
            "use up to 200 letters, digits and ._-+",
        )
    return name
