"""The service account by which a node calls the API, and the fields that the node writes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from support.api_server.cluster_api import TOKEN
from support.kubelet.watched_pods import CORE, NODE, WatchedPods
from support.needed import skip_or_fail
from support.waiting import until

ASKS = {"main": {CORE: 30}}


def test_only_the_pods_own_service_account_and_authority_lead_to_the_api(
    pods: WatchedPods, tmp_path: Path
) -> None:
    if os.geteuid() != 0 or shutil.which("openssl") is None:
        skip_or_fail("an API with TLS takes openssl, and a pod's files root")
    authority, other = (_certificate(str(tmp_path / name)) for name in ("authority", "other"))
    pods.api.stop()
    pods.api.start(*authority)
    uid = pods.api.create("web", ASKS)
    for token, certificate, trouble in (
        (TOKEN, other[0], "CERTIFICATE_VERIFY_FAILED"),
        ("stolen", authority[0], "401"),
    ):
        pods.follow_as_a_pod(token, certificate)
        until(lambda trouble=trouble: any(trouble in line for line in pods.log()))
        pods.kill()
        assert pods.decisions() == {}
    pods.follow_as_a_pod(TOKEN, authority[0])
    pods.await_decisions(uid)


def _certificate(path: str) -> tuple[str, str]:
    """Of 127.0.0.1, signed by itself, and its key."""
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    words += ["-subj", "/CN=api", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = (path + ".crt", path + ".key")
    subprocess.run([*words, "-out", files[0], "-keyout", files[1]], check=True, capture_output=True)
    return files


def test_the_node_object_is_written_again_after_an_api_outage(
    pods: WatchedPods,
) -> None:
    pods.follow()
    assert pods.process is not None and pods.process.stdin is not None

    def tell(text: str) -> None:
        metadata = json.dumps({"annotations": {"vcuda.io/node-gpus": text}})
        pods.process.stdin.write(metadata.encode() + b"\n")  # type: ignore[union-attr]
        pods.process.stdin.flush()  # type: ignore[union-attr]

    tell(json.dumps({"gpus": []}))
    until(lambda: pods.api.nodes == {NODE: {"vcuda.io/node-gpus": '{"gpus": []}'}})
    pods.api.refuse = 403
    tell("newer")
    until(lambda: any("GPUs of node node-1: 403" in line for line in pods.log()))
    pods.api.refuse = 0
    until(lambda: pods.api.nodes[NODE]["vcuda.io/node-gpus"] == "newer")
