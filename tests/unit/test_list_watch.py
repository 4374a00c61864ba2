"""Where a watch begins after a list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from vcuda_plugin.extender.follow.follow import Follower

PATH = "/api/v1/pods"


class Ended(BaseException):
    """Ends a follower, which otherwise goes on for good."""


class FakeApi:
    """An API server whose version rises between calls. watched: where each watch began."""

    def __init__(self) -> None:
        self.version = 100
        self.watched: list[str] = []

    def get(self, path: str, query: dict[str, str], seconds: float) -> Any:
        metadata = {"name": "web", "uid": "uid-web"}
        about = {"resourceVersion": str(self.version)}
        return {"items": [{"metadata": metadata}], "metadata": about}

    def watch(
        self, path: str, query: dict[str, str], seconds: int, together_seconds: float
    ) -> Iterator[tuple[str, Any]]:
        self.watched.append(query["resourceVersion"])
        raise Ended


def test_watch_begins_at_its_own_list_while_another_thread_catches_up() -> None:
    api = FakeApi()

    def catch_up(*_: Any) -> None:
        # The leader's thread lists the bound pods before the follower notes its version.
        api.version = 150
        follower.catch_up(fieldSelector="spec.nodeName!=")

    follower = Follower(
        api,  # type: ignore[arg-type]
        *(PATH, "uid", lambda pod: None, lambda uid: None, catch_up),
    )
    with pytest.raises(Ended):
        follower.follow(api)  # type: ignore[arg-type]
    # A watch from 150 would miss the pods that were deleted between 100 and 150.
    assert api.watched == ["100"]
