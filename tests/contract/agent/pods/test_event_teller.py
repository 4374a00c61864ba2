"""Events of pods reach the API once it is there, each once, whichever process is killed
meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.kubelet.watched_pods import WatchedPods
from support.waiting import until
from vcuda_oci.ledger import events
from vcuda_plugin.agent.pods import pod_events

UID = "0b5c5f6e-9c1d-4a7e-8f54-0d1c2b3a4f5e"


class Pods(WatchedPods):
    def refuse(self, container: str = "main", text: str = "no room", **more: Any) -> None:
        about = {"pod": f"default/web/{container}", **more}
        id = f"pod-{UID}.{container}"
        events.record(self.state_dir, "vcuda-container-runtime", "refused", id, text, **about)

    def event_counts(self) -> dict[str, int]:
        """Counts by message, without its allocation. Fails if a message has two Events."""
        counts = [(one["message"], one["count"]) for one in list(self.api.recorded_events.values())]
        assert len(dict(counts)) == len(counts), counts
        return {message.partition(": ")[2]: count for message, count in counts}

    def await_counts(self, **expected: int) -> None:
        until(
            lambda: self.event_counts() == expected,
            what=lambda: f"{self.event_counts()}\n{self.log()}",
        )


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Pods]:
    pods = Pods(tmp_path)
    yield pods
    pods.close()


def test_the_same_again_is_counted_in_one_event(pods: Pods) -> None:
    pods.follow()
    pods.refuse(text="first")
    pods.await_counts(first=1)
    (name,) = pods.api.recorded_events
    assert name.startswith("/api/v1/namespaces/default/events/web.")
    for _ in range(5):
        pods.refuse(text="again")
    pods.refuse("other", text="another")
    pods.await_counts(again=6, another=1)
    verbs = [verb for verb, path, _ in pods.api.requests if "/events" in path]
    assert verbs == ["POST", "POST", "PATCH"]


def test_events_of_an_outage_are_sent_after_it(pods: Pods) -> None:
    pods.follow()
    pods.refuse(text="before")
    pods.await_counts(before=1)
    pods.api.stop()
    for name in ("a", "b", "c"):
        pods.refuse(name, text=name)
    time.sleep(2)
    pods.api.start()
    pods.await_counts(before=1, a=1, b=1, c=1)
    assert sum("kept until it is over" in line for line in pods.log()) == 1


def test_an_answer_that_was_lost_makes_no_second_event(pods: Pods) -> None:
    pods.follow()
    pods.api.drop_answers = 1
    pods.refuse(text="once")
    until(lambda: [v for v, path, _ in pods.api.requests if "/events" in path][2:] == ["PATCH"])
    pods.await_counts(once=1)


def test_a_restarted_sender_sends_the_rest_and_nothing_twice(pods: Pods) -> None:
    pods.follow()
    began = time.time()
    pods.refuse("a", text="a")
    pods.await_counts(a=1)
    # The position of the last sent event is stored.
    until(lambda: pod_events._read_mark(f"{pods.state_dir}/{pod_events.NAME}") >= began)
    pods.kill()
    pods.refuse("b", text="b")
    pods.follow()
    pods.await_counts(a=1, b=1)
    time.sleep(1.5)
    assert pods.event_counts() == {"a": 1, "b": 1}


def test_event_deleted_by_the_api_is_created_again(pods: Pods) -> None:
    pods.follow()
    pods.refuse(text="once")
    pods.await_counts(once=1)
    pods.api.recorded_events.clear()
    pods.refuse(text="twice")
    pods.refuse(text="thrice")
    pods.await_counts(thrice=2)


def test_an_agent_that_may_write_no_event_logs_it_once_and_follows_pods_on(pods: Pods) -> None:
    pods.follow()
    pods.api.refuse_events = 403
    for name in ("a", "b", "c"):
        pods.refuse(name)
    until(lambda: sum("/events" in path for _, path, _ in pods.api.requests) == 3)
    uid = pods.api.create("web", {"main": {"tencent.com/vcuda-core": 30}})
    pods.await_decisions(uid)
    assert sum("given up: 403" in line for line in pods.log()) == 1
