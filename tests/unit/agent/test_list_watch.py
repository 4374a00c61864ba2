"""When objects are listed again, and the version from which a watch starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from vcuda_plugin.extender.follow.follow import Follower
from vcuda_plugin.kube import list_watch

PATH = "/api/v1/pods"


class Ended(BaseException):
    """Raised to end a follower, which otherwise runs for ever."""


class FakeApi:
    """watched: where each watch began. events: of each watch in turn; with the last it ends."""

    def __init__(self, *events: list[tuple[str, str]]) -> None:
        self.version = 100
        self.watched: list[str] = []
        self.lists = 0
        self._events = list(events)

    def get(self, path: str, query: dict[str, str], seconds: float) -> Any:
        self.lists += 1
        about = {"resourceVersion": str(self.version)}
        metadata = {"name": "web", "uid": "uid-web", **about}
        return {"items": [{"metadata": metadata}], "metadata": about}

    def renewed(self) -> FakeApi:
        return self

    def watch(
        self, path: str, query: dict[str, str], seconds: int, together_seconds: float
    ) -> Iterator[tuple[str, Any]]:
        self.watched.append(query["resourceVersion"])
        if not self._events:
            raise Ended
        for kind, version in self._events.pop(0):
            yield kind, {"metadata": {"uid": "uid-web", "resourceVersion": version}}


def nothing(*_: Any) -> None:
    pass


def follower_of(api: Any, put: Any = nothing, drop: Any = nothing, keep: Any = nothing) -> Follower:
    return Follower(api, PATH, "uid", put, drop, keep)


def follow(follower: Follower, api: Any) -> None:
    with pytest.raises(Ended):
        follower.follow(api)


def test_watch_begins_at_its_own_list_while_another_thread_catches_up() -> None:
    api = FakeApi()

    def catch_up(*_: Any) -> None:
        # The leader's thread lists the bound pods before the follower notes its version.
        api.version = 150
        follower.catch_up(fieldSelector="spec.nodeName!=")

    follower = follower_of(api, keep=catch_up)
    follow(follower, api)
    # A watch from 150 would miss the pods that were deleted between 100 and 150.
    assert api.watched == ["100"]


@pytest.mark.parametrize(
    ("events", "watched", "lists"),
    [
        ([("BOOKMARK", "120")], ["100", "120"], 1),
        ([("MODIFIED", "130")], ["100", "130"], 1),
        ([], ["100", "100"], 2),
    ],
    ids=["bookmark", "event", "nothing"],
)
def test_watch_that_brings_not_even_a_bookmark_is_followed_by_a_list(
    events: list[tuple[str, str]], watched: list[str], lists: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each watch lasts as long as it should, and none is too short.
    monkeypatch.setattr(list_watch, "WATCH_SECONDS", (0, 0))
    monkeypatch.setattr(list_watch, "_SHORT_SECONDS", 0)
    api = FakeApi(events)
    follower = follower_of(api)
    follow(follower, api)
    assert (api.watched, api.lists) == (watched, lists)


def test_watch_that_ends_early_continues_at_its_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(list_watch, "_SHORT_SECONDS", 0)
    api = FakeApi([])
    follower = follower_of(api)
    follow(follower, api)
    assert (api.watched, api.lists) == (["100", "100"], 1)


def test_objects_read_beside_the_watch_undo_nothing_that_it_has_brought(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(list_watch, "_SHORT_SECONDS", 0)
    api, known = FakeApi([("DELETED", "130")]), dict[str, str]()

    def put(pod: Any) -> None:
        known[pod["metadata"]["uid"]] = pod["metadata"]["resourceVersion"]

    follower = follower_of(api, put, known.pop)
    follow(follower, api)
    api.version = 120  # read before the removal, and handled after it
    follower.catch_up()
    assert known == {}
    api.version = 140
    follower.catch_up()
    assert known == {"uid-web": "140"}


def test_old_answer_is_not_newer_while_the_version_to_resume_from_is_forgotten() -> None:
    api = FakeApi([("DELETED", "130"), ("ADDED", "not a number")])
    found = []

    def late() -> None:
        item = {"metadata": {"resourceVersion": "120"}}
        found.append((follower.is_newer(item), api.lists))
        raise Ended

    follower = follower_of(api)
    real = api.get

    def get(path: str, query: dict[str, str], seconds: float) -> Any:
        if api.lists:
            late()
        return real(path, query, seconds)

    api.get = get  # type: ignore[method-assign]
    follow(follower, api)
    assert found == [(False, 1)]
