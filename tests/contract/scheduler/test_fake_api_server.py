"""The fake API server, as the official client finds it: what Kubernetes promises of lists,
watches, versions and writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client, config, watch

from support.api_server.fake_api_server import FakeApiServer, status
from support.scheduler.clusters import container, node, pod

UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"


@pytest.fixture
def api() -> Iterator[FakeApiServer]:
    api_server = FakeApiServer()
    with api_server.running():
        yield api_server


@pytest.fixture
def known(api: FakeApiServer, tmp_path: Any) -> Any:
    settings = client.Configuration()
    config.load_kube_config(api.kubeconfig(tmp_path / "k"), client_configuration=settings)
    with client.ApiClient(settings) as connected:
        yield client.CoreV1Api(connected)


def watched(known: Any, version: str, **query: Any) -> list[tuple[str, str]]:
    """(event, pod), of a watch from a version on that ends by itself."""
    events = watch.Watch().stream(
        known.list_pod_for_all_namespaces, resource_version=version, timeout_seconds=1, **query
    )
    return [(event["type"], event["object"].metadata.name) for event in events]


def refusal(call: Any, *arguments: Any, **named: Any) -> int:
    with pytest.raises(client.ApiException) as refused:
        call(*arguments, **named)
    return int(refused.value.status)


def test_list_pages_have_one_version_and_a_watch_continues_from_it(
    api: FakeApiServer, known: Any
) -> None:
    api.put(*[pod(f"p{number}", container()) for number in range(3)])
    first = known.list_pod_for_all_namespaces(limit=2)
    assert [each.metadata.name for each in first.items] == ["p0", "p1"]
    api.put(pod("late", container()))
    version = first.metadata.resource_version
    more = first.metadata._continue
    second = known.list_pod_for_all_namespaces(limit=2, _continue=more)
    assert [each.metadata.name for each in second.items] == ["p2", "late"]
    assert (second.metadata._continue, second.metadata.resource_version) == (None, version)
    api.put(pod("p0", container(), node="a"))
    api.delete("default/p1")
    events = [("ADDED", "late"), ("MODIFIED", "p0"), ("DELETED", "p1")]
    assert watched(known, version) == events
    assert watched(known, str(int(version) + 1)) == events[1:]
    assert watched(known, str(api.version)) == []


def test_a_watch_with_a_selector_shows_objects_that_enter_and_leave_it(
    api: FakeApiServer, known: Any
) -> None:
    api.put(pod("runs", container(), node="a"), pod("ends", container(), node="a"))
    api.put(pod("over", container(), node="a", phase="Failed"), pod("waits", container()))
    here = {"field_selector": UNFINISHED + ",spec.nodeName=a"}
    found = known.list_pod_for_all_namespaces(**here)
    assert [each.metadata.name for each in found.items] == ["runs", "ends"]
    api.put(pod("ends", container(), node="a", phase="Succeeded"))
    api.put(pod("waits", container(), node="a"))
    api.put(pod("over", container(), node="a", phase="Failed", uid="again"))
    events = watched(known, found.metadata.resource_version, **here)
    assert events == [("DELETED", "ends"), ("ADDED", "waits")]


def test_compacted_version_is_410_for_a_watch_and_the_next_page(
    api: FakeApiServer, known: Any
) -> None:
    api.put(*[pod(f"p{number}", container()) for number in range(3)])
    first = known.list_pod_for_all_namespaces(limit=2)
    api.forget()
    more = first.metadata._continue
    assert refusal(known.list_pod_for_all_namespaces, limit=2, _continue=more) == 410
    # Otherwise the client's Watch would start again.
    query: Any = {"watch": True, "timeout_seconds": 1}
    query["resource_version"] = first.metadata.resource_version
    raw = known.list_pod_for_all_namespaces(**query, _preload_content=False)
    event = json.loads(raw.data)
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
    anew = known.list_pod_for_all_namespaces()
    assert watched(known, anew.metadata.resource_version) == []


def test_bookmarks_are_sent_to_watches_that_ask_for_them(api: FakeApiServer, known: Any) -> None:
    version = known.list_pod_for_all_namespaces().metadata.resource_version
    api.put(node("a"))
    api.bookmark()
    listing = known.list_pod_for_all_namespaces
    watcher = watch.Watch()
    query = {"resource_version": version, "timeout_seconds": 1}
    found = list(watcher.stream(listing, allow_watch_bookmarks=True, **query))
    assert [event["type"] for event in found] == ["BOOKMARK"]
    assert watcher.resource_version == str(api.version) > version
    assert list(watch.Watch().stream(listing, **query)) == []


def test_a_binding_writes_node_and_annotations_at_once_and_only_on_that_pod(
    api: FakeApiServer, known: Any
) -> None:
    api.put(pod("p", container(), annotations={"own": "stays"}))

    def bind(uid: str) -> None:
        metadata = client.V1ObjectMeta(name="p", uid=uid, annotations={"said": "x"})
        body = client.V1Binding(metadata=metadata, target=client.V1ObjectReference(name="a"))
        known.create_namespaced_pod_binding("p", "default", body, _preload_content=False)

    version = api.pod("p")["metadata"]["resourceVersion"]
    assert refusal(bind, "another") == 409
    assert api.pod("p")["metadata"]["resourceVersion"] == version
    bind("uid-p")
    bound = api.pod("p")
    assert bound["spec"]["nodeName"] == "a"
    assert bound["metadata"]["annotations"] == {"own": "stays", "said": "x"}
    assert watched(known, version) == [("MODIFIED", "p")]
    assert refusal(bind, "uid-p") == 409
    api.delete("default/p")
    assert refusal(bind, "uid-p") == 404


def test_merge_patch_sets_retains_and_removes_keys(api: FakeApiServer, known: Any) -> None:
    api.put(node("a", labels={"old": "1", "kept": "2"}))

    def patch(name: str, kind: str = "application/merge-patch+json") -> None:
        body = {"metadata": {"labels": {"old": None, "new": "3"}, "annotations": {"x": "y"}}}
        known.patch_node(name, body, _content_type=kind)

    patch("a")
    found = known.read_node("a").metadata
    assert (found.labels, found.annotations) == ({"kept": "2", "new": "3"}, {"x": "y"})
    assert refusal(patch, "nowhere") == 404
    assert refusal(patch, "a", "application/json-patch+json") == 415


def test_an_event_is_taken_once_and_only_in_the_namespace_that_it_is_about(
    api: FakeApiServer, known: Any
) -> None:
    def tell(name: str, about: str = "default", **more: Any) -> Any:
        event = client.CoreV1Event(
            metadata=client.V1ObjectMeta(namespace="default", **{"name": name, **more}),
            involved_object=client.V1ObjectReference(kind="Pod", name="p", namespace=about),
            message="m",
        )
        return known.create_namespaced_event("default", event).metadata.name

    assert tell("p.1") == "p.1"
    assert refusal(tell, "p.1") == 409
    assert refusal(tell, "p.2", "other") == 422
    named = tell("", generate_name="p.")
    folder = "/api/v1/namespaces/default/events/"
    assert list(api.recorded_events) == [folder + "p.1", folder + named]
    merge = {"_content_type": "application/merge-patch+json"}
    known.patch_namespaced_event("p.1", "default", {"count": 2}, **merge)
    assert (
        api.recorded_events[folder + "p.1"]["count"],
        api.recorded_events[folder + "p.1"]["message"],
    ) == (2, "m")
    assert refusal(known.patch_namespaced_event, "p.3", "default", {"count": 2}, **merge) == 404


def test_a_lease_that_changed_meanwhile_is_not_overwritten(api: FakeApiServer, known: Any) -> None:
    leases = client.CoordinationV1Api(known.api_client)
    where = ("lock", "kube-system")
    assert refusal(leases.read_namespaced_lease, *where) == 404
    spec = client.V1LeaseSpec(holder_identity="a")
    lease = client.V1Lease(metadata=client.V1ObjectMeta(name="lock"), spec=spec)
    leases.create_namespaced_lease("kube-system", lease)
    assert refusal(leases.create_namespaced_lease, "kube-system", lease) == 409
    seen, late = (leases.read_namespaced_lease(*where) for _ in range(2))
    assert seen.spec
    seen.spec.holder_identity = "b"
    leases.replace_namespaced_lease(*where, seen)
    assert refusal(leases.replace_namespaced_lease, *where, late) == 409
    changed = leases.read_namespaced_lease(*where).spec
    assert changed and changed.holder_identity == "b"


def test_an_unknown_token_gets_401_and_an_unknown_path_404(api: FakeApiServer, known: Any) -> None:
    assert refusal(known.list_namespaced_secret, "default") == 404
    api.refuse = 503
    assert refusal(known.list_node) == 503
    api.refuse = 0
    api.before = lambda *_: status(429, "slowly")
    assert refusal(known.list_node) == 429
    api.before = lambda *_: None
    known.api_client.configuration.refresh_api_key_hook = None
    known.api_client.configuration.api_key = {"BearerToken": "Bearer stolen"}
    assert refusal(known.list_node) == 401


def test_restarted_api_server_has_its_objects(api: FakeApiServer, known: Any) -> None:
    api.put(node("a"))
    api.stop()
    with pytest.raises(Exception, match="Connection refused"):
        known.list_node()
    api.put(node("b"))
    api.start()
    assert [each.metadata.name for each in known.list_node().items] == ["a", "b"]


def test_reviews_of_tokens_and_access_answer_as_kubernetes_does(
    api: FakeApiServer, known: Any
) -> None:
    """Source: Kubernetes API, TokenReviewStatus and SubjectAccessReviewStatus."""
    api.users["t1"] = {"username": "ann", "groups": ["ml"]}
    api.may_list = {("ml", "pods", "team"), ("ann", "nodes", "")}
    users = client.AuthenticationV1Api(known.api_client)
    for token, name in (("t1", "ann"), ("other", None)):
        spec = client.V1TokenReviewSpec(token=token)
        found: Any = users.create_token_review(client.V1TokenReview(spec=spec)).status
        assert (bool(found.authenticated), found.user.username) == (bool(name), name)
    access = client.AuthorizationV1Api(known.api_client)

    def may(resource: str, namespace: str | None, user: str = "ann", groups: Any = ("ml",)) -> bool:
        attributes = client.V1ResourceAttributes(
            verb="list", resource=resource, namespace=namespace
        )
        spec = client.V1SubjectAccessReviewSpec(
            user=user, groups=list(groups), resource_attributes=attributes
        )
        body = client.V1SubjectAccessReview(spec=spec)
        found: Any = access.create_subject_access_review(body).status
        return bool(found.allowed)

    assert (may("pods", "team"), may("pods", "other"), may("pods", None)) == (True, False, False)
    assert (may("nodes", None), may("pods", "team", "bob", ())) == (True, False)
