"""One GET of the cluster's API, by kubectl as its user has configured it."""

from __future__ import annotations

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
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise Unanswered(f"kubectl: {lines[-1][:300] if lines else done.returncode}")
    return done.stdout[:MOST_BYTES]
