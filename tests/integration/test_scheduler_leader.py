"""Two extenders over one API server: one binds, and the other takes over."""

from __future__ import annotations

import contextlib
from typing import Any

from unit import extender
from unit.clusters import container, node, pod, told
from unit.played_api import PlayedApi


def test_of_two_extenders_one_binds_and_when_it_ends_the_other_does(tmp_path: Any) -> None:
    api = PlayedApi()
    api.add(node("a", told("a", 16)))
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    pods = [pod(name, container(core=60)) for name in ("p", "q")]
    with contextlib.ExitStack() as stack:
        stack.enter_context(api.running())
        api.put(*pods)
        words = "--lease", "kube-system/extender"
        first = stack.enter_context(extender.running(api, tmp_path / "one", *words))
        first.wait_ready()
        second = stack.enter_context(extender.running(api, tmp_path / "two", *words))
        second.wait(lambda: b"is held by" in second.call("GET", "/readyz")[1])
        refused = second.bind(pods[0], "a")
        assert refused.startswith("standby: the lease extender is held by ")
        assert first.bind(pods[0], "a") == ""
        # It is warm: it knows what the other has bound, and answers what changes nothing.
        second.wait(lambda: second.filter(pods[1], "a")["NodeNames"] == [])
        assert b"vcuda_extender_leader 0.0" in second.call("GET", "/metrics")[1]
        first.process.terminate()
        assert first.process.wait(30) == 0
        second.wait_ready()
        assert second.bind(pods[1], "a").startswith("node a: largest free share is 40 %")
        api.delete("default/p")
        second.wait(lambda: second.bind(pods[1], "a") == "")
