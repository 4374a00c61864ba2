"""A post-renderer of helm: let the host's programs stand in for the images of the chart.

Reads manifests from standard input and writes them with mounts and a PATH added to every container.
Nothing else of them changes. Arguments: the PATH, then the folders to mount. The low-level runtimes
in them are hidden, because the images have none.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import yaml

HIDDEN = ("/usr/sbin/runc", "/usr/bin/crun")


def add_mounts(pod: dict[str, Any], path: str, folders: list[str]) -> None:
    volumes: list[dict[str, Any]] = [
        {"name": f"stand-in-{n}", "hostPath": {"path": folder}} for n, folder in enumerate(folders)
    ]
    mounts: list[dict[str, Any]] = [
        {"name": f"stand-in-{n}", "mountPath": folder, "readOnly": True}
        for n, folder in enumerate(folders)
    ]
    for n, program in enumerate(filter(os.path.exists, HIDDEN)):
        volumes.append({"name": f"hidden-{n}", "hostPath": {"path": "/dev/null"}})
        mounts.append({"name": f"hidden-{n}", "mountPath": program, "readOnly": True})
    pod["volumes"] = [*pod.get("volumes", []), *volumes]
    for container in [*pod.get("initContainers", []), *pod["containers"]]:
        container["env"] = [*container.get("env", []), {"name": "PATH", "value": path}]
        container["volumeMounts"] = [*mounts, *container.get("volumeMounts", [])]


def main() -> None:
    path, *folders = sys.argv[1:]
    documents = [each for each in yaml.safe_load_all(sys.stdin) if each]
    for document in documents:
        if document["kind"] in ("DaemonSet", "Deployment"):
            add_mounts(document["spec"]["template"]["spec"], path, folders)
    # As JSON: helm would read "3312699760835e16", a digest that PyYAML writes without quotes, as a
    # number.
    for document in documents:
        print("---", json.dumps(document), sep="\n")


if __name__ == "__main__":
    main()
