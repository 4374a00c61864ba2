"""Run the agent's pod watcher alone, with a fake API server."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.api_server.cluster_api import KubeApi
from support.files import ROOT
from support.waiting import until

CORE, MEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
NODE = "node-1"
_START = (
    "from vcuda_plugin.agent.pods.pod_watch import main; import logging, sys\n"
    "from vcuda_oci.system import settings_file\n"
    "logging.basicConfig(level='INFO', format='vcuda-node-agent: %(message)s')\n"
    "main(settings_file.parse(sys.argv[1], 'config.toml'), *sys.argv[2:])"
)


def decision_annotations(node: str = NODE, **containers: tuple[str, int, int]) -> dict[str, str]:
    """The scheduler's annotations for shares (UUID, percent, bytes) by container name."""
    shares = {
        name: [{"uuid": uuid, "core_percent": core, "memory_bytes": memory}]
        for name, (uuid, core, memory) in containers.items()
    }
    return {
        "vcuda.io/placement-decision": json.dumps({"containers": shares}),
        "tencent.com/predicate-node": node,
    }


class WatchedPods:
    """A running fake API server; `follow` starts the watcher."""

    def __init__(self, folder: Path) -> None:
        self.api, self.state_dir = KubeApi(), str(folder / "state")
        self._settings = f'state-dir = "{self.state_dir}"'
        self.api.start()
        self.kubeconfig = self.api.kubeconfig(str(folder / "kubeconfig"))
        self._log = str(folder / "log")
        self.process: subprocess.Popen[bytes] | None = None

    def follow(self, first: str = "") -> None:
        """Start the watcher; return once it has listed the pods. first: code to run before."""
        path = f"{ROOT}/oci:{ROOT}/runtime_hook:{ROOT}/plugin"
        with open(self._log, "ab") as log:
            arguments = [self._settings, NODE, self.kubeconfig]
            self.process = subprocess.Popen(
                [sys.executable, "-c", first + _START, *arguments],
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"known\n", self.log()

    def follow_as_a_pod(self, token: str, certificate: str) -> None:
        """Start the watcher with a pod's service account and without a kubeconfig; do not wait."""
        account = "/run/secrets/kubernetes.io/serviceaccount"
        script = (
            f"mount -t tmpfs none /run && mkdir -p {account} && printf %s {token} >{account}/token"
            f' && cp {certificate} {account}/ca.crt && exec "$0" "$@"'
        )
        arguments = [self._settings, NODE, ""]
        environment = {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self.api.port),
            "PYTHONPATH": f"{ROOT}/oci:{ROOT}/runtime_hook:{ROOT}/plugin",
        }
        with open(self._log, "ab") as log:
            self.process = subprocess.Popen(
                ["unshare", "-m", "sh", "-c", script, sys.executable, "-c", _START, *arguments],
                env={**os.environ, **environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()

    def close(self) -> None:
        self.kill()
        self.api.stop()
        assert not any("Traceback" in line for line in self.log())

    def decisions(self) -> dict[str, Any]:
        """Each decision file, parsed, by the pod's UID."""
        folder, found = self.state_dir + "/decisions", {}
        for name in os.listdir(folder):
            # Skip temporary files, and files that are removed at this moment.
            if name.endswith(".json"):
                with contextlib.suppress(FileNotFoundError), open(f"{folder}/{name}") as file:
                    found[name.removesuffix(".json")] = json.load(file)
        return found

    def await_decisions(self, *uids: str) -> None:
        until(lambda: set(self.decisions()) == set(uids))

    def verbs(self) -> list[str]:
        return [verb for verb, _, _ in self.api.requests]

    def log(self) -> list[str]:
        with open(self._log, encoding="utf-8") as lines:
            return lines.read().splitlines()
