"""Identify a container by what the engine wrote, never by its environment or its image."""

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
    sandbox_id: the pod's sandbox container; while it runs, the pod keeps its shares. sandbox_file:
    a file that is there as long as the sandbox, of an engine that runs no container for it, or "".
    engine: where the engine stores the container's name and image (engine_name.py).
    """

    def __init__(
        self,
        key: str,
        container_id: str,
        pod_uid: str = "",
        namespace: str = "",
        pod_name: str = "",
        container_name: str = "",
        sandbox_id: str = "",
        sandbox_file: str = "",
        engine: dict[str, str] | None = None,
    ) -> None:
        self.engine = engine or {}
        self.key, self.container_id = key, container_id
        self.pod_uid, self.namespace, self.pod_name = pod_uid, namespace, pod_name
        self.container_name, self.sandbox_id = container_name, sandbox_id
        self.sandbox_file = sandbox_file

    @property
    def is_pod(self) -> bool:
        return bool(self.pod_uid)


def is_sandbox(annotations: Mapping[str, str]) -> bool:
    """Whether this is a pod's sandbox (pause) container, which gets no share."""
    return names.SANDBOX in (
        annotations.get(names.CONTAINERD_CONTAINER_TYPE),
        annotations.get(names.CRIO_CONTAINER_TYPE),
    )


def proven(annotations: Mapping[str, str], cgroups_path: object) -> dict[str, str]:
    """The annotations, corrected to name the engine that the cgroup's name proves.

    CRI-O names a container's cgroup crio-ID, Podman libpod-ID (systemd: SLICE:crio:ID). Pod authors
    and images cannot choose that name, but pod authors can add annotations under CRI-O, and images
    under Podman. CRI-O always names the cgroup. Podman does not with --cgroups=disabled; so a
    container that names CRI-O without such a cgroup is marked PODMAN_UNPROVEN, and
    claims_two_engines returns True for it. Source: CRI-O internal/config/cgmgr,
    ContainerCgroupPath; Podman libpod, getOCICgroupPath; seen with CRI-O 1.36.3 and Podman 5.8.2.
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
    """Whether Podman made this container: it copies the image's annotations to the container.

    Then no annotation is proof. The image can change the manager's name but not remove it;
    containerd writes none. Source: seen with Podman 4.3.
    """
    manager = annotations.get(names.CONTAINER_MANAGER, names.CONTAINER_MANAGER_CRIO)
    return manager != names.CONTAINER_MANAGER_CRIO or any(
        key.startswith(names.PODMAN_PREFIX) for key in annotations
    )


def claims_two_engines(annotations: Mapping[str, str]) -> bool:
    """Whether the annotations name both CRI-O and Podman, and no cgroup's name proves which."""
    crio = annotations.get(names.CONTAINER_MANAGER) == names.CONTAINER_MANAGER_CRIO
    return crio and image_may_annotate(annotations)


def is_from_crio(annotations: Mapping[str, str]) -> bool:
    """Whether CRI-O made this container. CRI-O copies the pod's annotations, which the pod's author
    chooses, to it."""
    crio = annotations.get(names.CONTAINER_MANAGER) == names.CONTAINER_MANAGER_CRIO
    return crio and not image_may_annotate(annotations)


def is_pod(annotations: Mapping[str, str]) -> bool:
    """Whether the engine's annotations name a pod."""
    if image_may_annotate(annotations):
        return False
    return names.CONTAINERD_POD_UID in annotations or names.CRIO_POD_UID in annotations


def owner_of(annotations: Mapping[str, str], container_id: str) -> Owner:
    """The owner by the engine's annotations. Raises VcudaError: a name cannot be a file name.

    Source: containerd pkg/cri/annotations, CRI-O pkg/annotations.
    """
    if not is_pod(annotations):
        return Owner(_file_name(container_id, "container id"), container_id)
    if names.CONTAINERD_POD_UID in annotations and not is_from_crio(annotations):
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
    """The pod's UID in a key; "": not the key of a pod's container with this name."""
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
