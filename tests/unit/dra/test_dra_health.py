"""The health stream for the kubelet."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from support.gpu.mig_tables import profiles
from support.ledger.samples import GIB, gpus
from vcuda_oci.model.gpu import Gpu
from vcuda_plugin.agent.dra import health_stream, withheld
from vcuda_plugin.agent.dra.health_stream import HealthStream
from vcuda_plugin.agent.gpus.inventory import Inventory


class Context:
    """A call of a kubelet."""

    def __init__(self) -> None:
        self.active = True
        self.ended: Callable[[], None] = lambda: None

    def is_active(self) -> bool:
        return self.active

    def add_callback(self, ended: Callable[[], None]) -> None:
        self.ended = ended

    def end(self) -> None:
        self.active = False
        self.ended()


def told(answer: Any) -> dict[str, tuple[int, str]]:
    return {each.device.device_name: (each.health, each.message) for each in answer.devices}


@pytest.fixture
def stream() -> HealthStream:
    made = HealthStream("node-1")
    made.publish(Inventory(gpus(16)))
    return made


def test_same_list_is_sent_again_before_it_is_too_old(
    stream: HealthStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 2 * health_stream.RESEND_SECONDS < health_stream.TIMEOUT_SECONDS
    monkeypatch.setattr(health_stream, "RESEND_SECONDS", 0.01)
    answers = stream._watch(None, Context())
    assert [told(next(answers)) for _ in range(3)] == [{"gpu-0": (1, "")}] * 3


def test_withheld_gpu_is_healthy_for_pods_that_have_it(stream: HealthStream) -> None:
    answers = stream._watch(None, Context())
    next(answers)
    stream.publish(Inventory(gpus(16, 16), {}, {"GPU-0": withheld.OF_PLUGIN, "GPU-1": "Xid 79"}))
    assert told(next(answers)) == {"gpu-0": (1, ""), "gpu-1": (2, "Xid 79")}


def test_places_of_instances_have_the_health_of_their_gpu(stream: HealthStream) -> None:
    gpu = Gpu("GPU-9", 1, 1, 80 * GIB, "H100", divided=True)
    stream.publish(Inventory([gpu], {}, {"GPU-9": "Xid 79"}, profiles={"GPU-9": profiles()}))
    found = told(next(stream._watch(None, Context())))
    assert found["gpu-9-1g-10gb-2"] == (2, "Xid 79")
    assert (len(found), set(found.values())) == (18, {(2, "Xid 79")})


def test_stream_ends_with_its_call(stream: HealthStream) -> None:
    context = Context()
    answers = stream._watch(None, context)
    next(answers)
    waiting = threading.Thread(target=lambda: list(answers))
    waiting.start()
    context.end()
    waiting.join(5)
    assert not waiting.is_alive()


def test_nothing_is_said_before_the_gpus_are_known() -> None:
    made, context = HealthStream("node-1"), Context()
    threading.Timer(0.05, made.publish, [Inventory(gpus(16))]).start()
    assert told(next(made._watch(None, context))) == {"gpu-0": (1, "")}
