"""A GPU that answers late once is asked again, and waited for."""

from __future__ import annotations

import threading
import time

from vcuda_oci.host.nvml import HANGS
from vcuda_plugin.agent.gpus.gpu_probe import _Query


def test_late_answer_is_no_lasting_fault_of_the_only_gpu() -> None:
    late = threading.Event()

    def ask() -> str:
        late.wait(30)
        return ""

    query = _Query(ask)
    query.begin()
    assert query.answer(time.monotonic()) == HANGS
    query.begin()
    assert query.answer(time.monotonic() + 30) == HANGS  # the same query, not waited for again
    late.set()
    assert query._answered.wait(30)
    query.begin()
    assert query.answer(time.monotonic() + 30) == ""
