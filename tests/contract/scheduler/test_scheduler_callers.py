"""The extender answers only a client with a certificate of its authority."""

from __future__ import annotations

import os
import pwd
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from support.api_server.fake_api_server import FakeApiServer
from support.files import ROOT
from support.host import own_run
from support.scheduler import clusters, extender
from support.scheduler.extender import Extender
from vcuda_plugin.extender.http import certificates

POD = clusters.pod("asking", clusters.container(core=30, memory=16))
METADATA = POD["metadata"]
BODIES: dict[str, Any] = {
    "predicates": {"Pod": POD, "Nodes": None, "NodeNames": ["a", "b"]},
    "priorities": {"Pod": POD, "Nodes": None, "NodeNames": ["a", "b"]},
    "bind": {
        **{"PodName": METADATA["name"], "PodNamespace": METADATA["namespace"]},
        **{"PodUID": METADATA["uid"], "Node": "a"},
    },
    "preempt": {"Pod": POD, "NodeNameToVictims": {"a": {"Pods": [], "NumPDBViolations": 0}}},
}
# Another user of the host: with the authority alone, without TLS, and with the key of the client,
# which it may not read.
STRANGER = """
import http.client, ssl, sys
port, folder, path = int(sys.argv[1]), sys.argv[2], sys.argv[3]
tls = ssl.create_default_context(cafile=folder + "/ca.crt")
ways = [http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=tls)]
ways.append(http.client.HTTPConnection("127.0.0.1", port, timeout=60))
for way in ways:
    try:
        way.request("POST", path, b"{}", {"Content-Type": "application/json"})
        print("answered", way.getresponse().status)
    except (OSError, http.client.HTTPException):
        print("refused")
try:
    tls.load_cert_chain(folder + "/client.crt", folder + "/client.key")
    print("has the key")
except PermissionError:
    print("refused")
"""


@pytest.fixture(scope="module")
def api() -> Iterator[FakeApiServer]:
    with extender.api_of_two_nodes() as api_server:
        api_server.put(POD)
        yield api_server


@pytest.fixture(scope="module")
def files() -> Iterator[str]:
    """The certificates, in a folder that every user may enter."""
    folder = own_run.scratch_folder()
    done = run_certificates(folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def running(api: FakeApiServer, files: str) -> Iterator[Extender]:
    words = ("--tls-cert", "server.crt", "--tls-key", "server.key", "--tls-client-ca", "ca.crt")
    named = [word if word.startswith("--") else f"{files}/{word}" for word in words]
    with extender.running(api, files, *named) as started:
        started.tls = extender.client(files)
        started.wait_ready()
        yield started


def run_certificates(folder: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *extender.PROGRAM, "certificates", folder, *words]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/oci:{ROOT}/runtime_hook:{ROOT}/plugin"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def bindings(api: FakeApiServer) -> list[str]:
    return [path for method, path, _ in api.requests if method == "POST"]


@pytest.mark.parametrize("verb", BODIES)
def test_a_verb_is_refused_to_another_user_without_the_clients_key(
    api: FakeApiServer, running: Extender, files: str, verb: str
) -> None:
    account = pwd.getpwnam("nobody").pw_uid
    words = [str(running.port), files, f"/scheduler/{verb}"]
    asked = subprocess.run(
        ["/usr/bin/python3", "-c", STRANGER, *words],
        cwd="/",
        user=account,
        group=account,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=True,
    )
    assert asked.stdout.split() == ["refused"] * 3
    assert bindings(api) == []


@pytest.mark.parametrize("verb", BODIES)
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "vcuda.attacker.test:3456", "Content-Type": "application/json"}, 403),
        ({"Host": "127.0.0.1.attacker.test", "Content-Type": "application/json"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": "application/jsonp"}, 415),
        ({}, 415),
    ],
    ids=["foreign host", "prefix", "text", "form", "other JSON", "no type"],
)
def test_a_verb_is_refused_to_a_request_that_a_web_page_can_send(
    api: FakeApiServer, running: Extender, verb: str, headers: dict[str, str], status: int
) -> None:
    answer = running.call("POST", f"/scheduler/{verb}", BODIES[verb], headers)
    assert answer[0] == status, answer
    assert bindings(api) == []


@pytest.mark.parametrize("path", ["/inspect", "/metrics", "/readyz"])
def test_a_page_is_refused_under_a_foreign_host(running: Extender, path: str) -> None:
    assert running.call("GET", path, headers={"Host": "attacker.test"})[0] == 403
    assert running.call("GET", path)[0] == 200


def test_a_certificate_of_another_authority_is_refused(running: Extender, tmp_path: Any) -> None:
    assert run_certificates(str(tmp_path)).returncode == 0
    other = Extender(running.process, running.port)
    other.tls = extender.client(str(tmp_path))
    other.tls.check_hostname, other.tls.verify_mode = False, ssl.CERT_NONE
    with pytest.raises(OSError):
        other.call("GET", "/healthz")


def test_the_certified_client_gets_every_verb(api: FakeApiServer, running: Extender) -> None:
    """The last test of this file: it binds."""
    for verb, body in BODIES.items():
        kinds = {"Content-Type": "application/json; charset=utf-8"}
        assert running.call("POST", f"/scheduler/{verb}", body, kinds)[0] == 200, verb
    assert len(bindings(api)) == 1


def test_certificates_are_made_once_and_keys_are_private(tmp_path: Any) -> None:
    folder = tmp_path / "made"
    assert (
        run_certificates(str(folder), "--name", "extender.vcuda", "--name", "::1").returncode == 0
    )
    made = {
        path.name: (path.stat().st_mode & 0o777, path.read_bytes()) for path in folder.iterdir()
    }
    assert sorted(made) == sorted(certificates.FILES)
    assert {name for name, (mode, _) in made.items() if mode == 0o600} == {
        "server.key",
        "client.key",
    }
    names = subprocess.run(
        ["openssl", "x509", "-in", f"{folder}/server.crt", "-noout", "-ext", "subjectAltName"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "DNS:extender.vcuda, IP Address:0:0:0:0:0:0:0:1" in names
    assert run_certificates(str(folder)).returncode == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        name: content for name, (_, content) in made.items()
    }


def test_certificates_in_an_unwritable_folder_are_a_one_line_error() -> None:
    done = run_certificates("/proc/none")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("vcuda-scheduler-extender: /proc/none: cannot be written: ")
    assert done.stderr.count("\n") == 1
