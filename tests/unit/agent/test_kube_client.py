"""Only the parts of the official client that a kubeconfig needs are imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.product import REPOSITORY

DEBIANS = "/usr/bin/python3"
KUBECONFIG = """
contexts: [{name: here, context: {cluster: here, user: me}}]
current-context: here
clusters: [{name: here, cluster: {server: "https://example.invalid:6443"}}]
users: [{name: me, user: %s}]
"""
LOOK = """
import sys
from vcuda_oci.model.errors import VcudaError
from vcuda_plugin.kube import api as kube_api
from vcuda_plugin.kube import kube_client
seldom = ("yaml", "requests", "requests_oauthlib", "oauthlib", "google.auth", "chardet")
def there():
    return [name for name in seldom if name in sys.modules]
kube_client.load()
print(*there())
try:
    api = kube_api.KubeApi(sys.argv[1], "test")
    print(api.settings.host, *there())
except VcudaError as error:
    print(error)
"""


def said(python: str, kubeconfig: str, tmp_path: Path) -> list[str]:
    """What the client's modules are, before and after this file has been read."""
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig)
    ours = [f"{REPOSITORY}/{each}" for each in ("oci", "runtime_hook", "plugin")]
    code = f"import sys; sys.path[:0] = {ours}\n{LOOK}"
    done = subprocess.run(
        [python, "-IBc", code, str(path)], stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize("python", [sys.executable, DEBIANS], ids=["newest", "Debian's"])
def test_only_the_clients_kubeconfig_readers_are_imported(python: str, tmp_path: Path) -> None:
    token = KUBECONFIG % "{token: secret}"
    assert said(python, token, tmp_path) == ["", "https://example.invalid:6443 yaml"]


@pytest.mark.parametrize("python", [sys.executable, DEBIANS], ids=["newest", "Debian's"])
def test_a_kubeconfig_that_needs_more_of_the_client_gets_it(python: str, tmp_path: Path) -> None:
    gcp = KUBECONFIG % "{auth-provider: {name: gcp}}"
    before, error = said(python, gcp, tmp_path)
    assert before == ""
    # The package's own version, or a line that it is not installed.
    assert "leads to no cluster: " in error
    assert "determine credentials" in error or "'google' has no attribute 'auth'" in error
