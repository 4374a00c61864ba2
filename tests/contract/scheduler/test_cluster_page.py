"""The cluster page shows each client what its token may list, and refuses every other request."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import re
import signal
import ssl
from collections.abc import Iterator
from typing import Any

import pytest

from support.api_server.fake_api_calls import ACCESS_REVIEWS, TOKEN_REVIEWS
from support.api_server.fake_api_objects import CLAIMS, SLICES
from support.api_server.fake_api_server import FakeApiServer
from support.kubelet.dra_claims import claim, result, slice_of, waiting
from support.scheduler import clusters, extender
from support.scheduler.extender import Extender
from support.waiting import until
from vcuda_oci.model.allocation import GpuShare
from vcuda_plugin.extender.http import certificates

HTML = "text/html,application/xhtml+xml"
ADMIN, TEAM, NOTHING = "admin-token", "team-token", "token-without-rights"


def held(name: str, uuid: str, namespace: str) -> dict[str, Any]:
    shares = {"main": [GpuShare(uuid, 4 << 30, 30)]}
    asked = clusters.container(core=30, memory=16)
    return clusters.pod(name, asked, node="a", shares=shares, namespace=namespace)


@pytest.fixture(scope="module")
def api() -> Iterator[FakeApiServer]:
    with extender.api_of_two_nodes() as made:
        made.users = {
            ADMIN: {"username": "root", "groups": ["admins"], "extra": {"scopes": ["all"]}},
            TEAM: {"username": "ann", "uid": "7", "groups": ["team-users"]},
            NOTHING: {"username": "eve"},
        }
        made.may_list = {
            ("admins", "pods", ""),
            ("admins", "nodes", ""),
            ("team-users", "pods", "team"),
        }
        made.put(held("train", "GPU-a-0", "team"), held("covert", "GPU-a-0", "secret"))
        made.put(clusters.pod("waits", clusters.container(core=80, memory=80), namespace="team"))
        made.put(clusters.pod("covert-2", clusters.container(core=80), namespace="secret"))
        yield made


class Page:
    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.port, self.tls = port, tls

    def get(
        self, path: str, authorization: str = "", accept: str = "*/*", method: str = "GET"
    ) -> tuple[int, http.client.HTTPMessage, str]:
        kind: Any = http.client.HTTPConnection
        more: Any = {}
        if self.tls:
            kind, more = http.client.HTTPSConnection, {"context": self.tls}
        with contextlib.closing(kind("127.0.0.1", self.port, timeout=60, **more)) as connection:
            headers = {"Accept": accept}
            if authorization:
                headers["Authorization"] = authorization
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()

    def json(self, path: str, token: str) -> Any:
        code, headers, body = self.get(path, f"Bearer {token}")
        assert (code, headers["Content-Type"]) == (200, "application/json"), body
        return json.loads(body)


def page_of(folder: Any, tls: ssl.SSLContext | None = None) -> Page:
    found = re.search(r"the cluster page is on 127.0.0.1:(\d+)", extender.log(folder))
    assert found, extender.log(folder)
    return Page(int(found[1]), tls)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tmp_path_factory.mktemp("extender")


@pytest.fixture(scope="module")
def running(api: FakeApiServer, folder: Any) -> Iterator[Extender]:
    with extender.ready(api, folder, "--page", "127.0.0.1:0") as started:
        yield started


@pytest.fixture(scope="module")
def page(running: Extender, folder: Any) -> Page:
    return page_of(folder)


def basic(token: str) -> str:
    return "Basic " + base64.b64encode(f"any:{token}".encode()).decode()


def test_viewer_of_the_cluster_sees_all_shares_and_waiting_pods(page: Page) -> None:
    view = page.json("/", ADMIN)
    assert [node["name"] for node in view["nodes"]] == ["a", "b"]
    shares = view["nodes"][0]["gpus"][0]["shares"]
    assert [each["pod"] for each in shares] == ["covert", "train"]
    assert [each["pod"] for each in view["waiting"]] == ["covert-2", "waits"]
    filtered = page.json("/?namespace=team", ADMIN)
    assert [each["pod"] for each in filtered["waiting"]] == ["waits"]
    assert filtered["nodes"][0]["gpus"][0]["others"]["core_percent"] == 30


@pytest.mark.parametrize("accept", ["application/json", HTML])
def test_viewer_of_one_namespace_gets_no_name_of_another(page: Page, accept: str) -> None:
    code, _, body = page.get("/?namespace=team", f"Bearer {TEAM}", accept)
    assert code == 200 and "train" in body and "waits" in body
    assert not re.search("secret|covert", body)


@pytest.mark.parametrize(
    ("path", "token", "code", "said"),
    [
        ("/", TEAM, 403, "may not list pods of all namespaces; choose a namespace"),
        ("/?namespace=secret", TEAM, 403, "may not list pods in namespace 'secret'"),
        ("/?namespace=absent", TEAM, 403, "may not list pods in namespace 'absent'"),
        ("/?namespace=team&namespace=secret", TEAM, 403, "in namespace 'secret'"),
        ("/?namespace=..%2Fsecret", TEAM, 400, "not a name of a namespace"),
        ("/?namespace=team", NOTHING, 403, "may not list pods in namespace 'team'"),
        ("/", "unknown", 401, "does not know this token"),
    ],
)
def test_request_without_the_right_is_refused_with_its_reason(
    page: Page, path: str, token: str, code: int, said: str
) -> None:
    for accept in ("*/*", HTML):
        got, _, body = page.get(path, f"Bearer {token}", accept)
        assert got == code and said in body.replace("&#x27;", "'")
        assert "covert" not in body and "train" not in body


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer ", "Basic ???", "Basic " + base64.b64encode(b"admin").decode(),
     "Digest " + ADMIN, ADMIN],
)  # fmt: skip
def test_request_without_a_token_is_asked_for_one(
    page: Page, api: FakeApiServer, authorization: str
) -> None:
    before = len(api.requests)
    code, headers, body = page.get("/", authorization, HTML)
    assert (code, "a token of the cluster is needed" in body) == (401, True)
    assert [each.partition(" ")[0] for each in headers.get_all("WWW-Authenticate", [])] == [
        "Basic",
        "Bearer",
    ]
    paths = [path for _, path, _ in api.requests[before:]]
    assert TOKEN_REVIEWS not in paths and ACCESS_REVIEWS not in paths


def test_browser_gives_the_token_as_a_password_and_gets_a_closed_page(page: Page) -> None:
    code, headers, body = page.get("/", basic(ADMIN), HTML)
    assert (code, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "secret/covert" in body and ADMIN not in body
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert (headers["Cache-Control"], headers["Referrer-Policy"]) == ("no-store", "no-referrer")


def test_page_is_read_only_and_at_one_path(page: Page) -> None:
    code, headers, _ = page.get("/", f"Bearer {ADMIN}", method="POST")
    assert (code, headers["Allow"]) == (405, "GET, HEAD")
    for path in ("/scheduler/bind", "/inspect", "/metrics"):
        assert page.get(path, f"Bearer {ADMIN}")[0] == 404
    assert page.get("/", f"Bearer {ADMIN}", method="HEAD")[0] == 200


@pytest.mark.parametrize("path", [TOKEN_REVIEWS, ACCESS_REVIEWS])
@pytest.mark.parametrize(
    "answer",
    [
        (500, {"status": "Failure"}),
        (403, {"status": "Failure"}),
        (201, {"status": {}}),
        (201, {"status": {"allowed": "true", "authenticated": "true", "user": {"username": "x"}}}),
        (201, {"status": {"allowed": True, "denied": True, "authenticated": True, "user": {}}}),
        (
            201,
            {"status": {"authenticated": False, "user": {"username": "r", "groups": ["admins"]}}},
        ),
        (201, []),
        "drop",
    ],
)
def test_unclear_answer_of_the_api_server_shows_nothing(
    page: Page, api: FakeApiServer, path: str, answer: Any
) -> None:
    token = f"new-{path}-{answer}"  # no earlier answer is known for it
    api.users[token] = api.users[ADMIN]
    api.before = lambda _, asked, __: answer if asked == path else None
    try:
        code, _, body = page.get("/", f"Bearer {token}", HTML)
    finally:
        api.before = lambda *_: None
    assert code in (401, 403, 503)
    assert "train" not in body and "GPU-a-0" not in body


def test_tls_page_needs_no_client_certificate_and_ends_with_the_extender(
    api: FakeApiServer, tmp_path: Any
) -> None:
    certificates.make(str(tmp_path), certificates.LOOPBACK_NAMES)
    words = ("tls-cert", "server.crt", "tls-key", "server.key", "tls-client-ca", "ca.crt")
    named = [f"--{word}" if n % 2 == 0 else f"{tmp_path}/{word}" for n, word in enumerate(words)]
    with extender.running(api, tmp_path, *named, "--page", "127.0.0.1:0") as started:
        started.tls = extender.client(str(tmp_path))
        started.wait_ready()
        page = page_of(tmp_path, ssl.create_default_context(cafile=f"{tmp_path}/ca.crt"))
        assert page.json("/", ADMIN)["waiting_count"] == 2
        started.process.send_signal(signal.SIGTERM)
        assert started.process.wait(20) == 0
    assert "Error" not in extender.log(tmp_path)


def test_half_a_certificate_of_the_page_is_refused_at_the_start(
    api: FakeApiServer, tmp_path: Any
) -> None:
    config = tmp_path / "config.toml"
    config.write_text("")
    words = ["--config", str(config), "--kubeconfig", api.kubeconfig(tmp_path / "k"), "--insecure"]
    words += ["--page", "127.0.0.1:0", "--page-tls-cert", "server.crt"]
    with extender.process(tmp_path, *words) as started:
        assert started.wait(60) == 1
    assert "needs both --page-tls-cert and --page-tls-key" in extender.log(tmp_path)


def test_claims_are_shown_to_viewers_that_may_list_them(tmp_path: Any, api: FakeApiServer) -> None:
    """Of a node a with a GPU in a claim's hands, beside a claim that waits."""
    for made in (claim("a", result("GPU-a-0", pool="a")), waiting("c", cores="90", memory="1Gi")):
        made["metadata"]["namespace"] = "team"
        api.set(CLAIMS, f"team/{made['metadata']['name']}", made)
    api.set(SLICES, "a", slice_of({"GPU-a-0": 16}, "a"))
    api.may_list |= {("team-users", "nodes", "")}
    with extender.ready(api, tmp_path, "--page", "127.0.0.1:0", settings='gpu-offer = "dra"'):
        page = page_of(tmp_path)

        def shown(token: str) -> Any:
            view = page.json("/?namespace=team", token)
            gpu = view["nodes"][0]["gpus"][0]
            waits = [each["claim"] for each in view["waiting"] if each["claim"]]
            return [share["claim"] for share in gpu["shares"]], waits, gpu["core_free"]

        until(lambda: shown(TEAM)[2] == 10)  # two pods of 30 %, and the claim
        assert shown(TEAM) == ([""], [], 10)
        api.may_list |= {("team-users", "resourceclaims", "team")}
        api.users["newer"] = api.users[TEAM]  # another token, so that no answer is known for it
        assert shown("newer") == (["", "claim-a"], ["claim-c"], 10)
