"""One GET of the cluster's API, by kubectl as its user has configured it."""

from __future__ import annotations

import os
import shutil
import subprocess

SECONDS = 8
MOST_BYTES = 32 << 20


class Unanswered(Exception):
    """The text says why kubectl gave no answer."""


def raw(path: str) -> bytes:
    """The body of the answer. Raises Unanswered."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise Unanswered("kubectl is not in PATH")
    # One request: without --raw kubectl first asks which resources there are.
    try:
        done = subprocess.run(
            [kubectl, "get", "--raw", path, f"--request-timeout={SECONDS - 2}s"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise Unanswered(f"kubectl gave no answer in {SECONDS} s") from None
    except OSError as error:
        raise Unanswered(f"kubectl: {error.strerror}") from error
    if done.returncode:
        if reason := _without_config():  # kubectl's own line would name localhost:8080
            raise Unanswered(reason)
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise Unanswered(f"kubectl: {lines[-1][:300] if lines else done.returncode}")
    return done.stdout[:MOST_BYTES]


def _without_config() -> str:
    """Why kubectl finds no cluster: neither a file nor, in a pod, a service account; else ""."""
    default = os.path.expanduser("~/.kube/config")
    words = ("KUBECONFIG", "KUBERNETES_SERVICE_HOST")
    if any(os.environ.get(word) for word in words) or os.path.exists(default):
        return ""
    return (
        f"kubectl has no kubeconfig: neither KUBECONFIG nor {default}; "
        "type KUBECONFIG=FILE before vcuda, with sudo after sudo"
    )
