"""Device rules of a container that exists already: what needs no cgroup."""

from __future__ import annotations

import os
from typing import Any

from unit.ground import write
from vcuda_hook import device_rules


def test_a_container_that_is_given_no_node_may_be_in_no_cgroup(tmp_path: Any) -> None:
    """Without root there is often none that has device rules, or none that may be changed."""
    write(f"{tmp_path}/cgroup", "0::/elsewhere\n")
    process = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    try:
        assert device_rules.change(process, [], []) is None  # type: ignore[func-returns-value]
    finally:
        os.close(process)
