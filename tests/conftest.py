"""Order of the test files, and fixtures for every test."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from support.host import huge_pages
from vcuda_oci.model.record import Record
from vcuda_oci.system import files

# Whether an example is slow is a question to the machine and to what else it does.
settings.register_profile("vcuda", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("few", settings.get_profile("vcuda"), max_examples=10)
settings.load_profile("vcuda")

# Files that take half a minute or more, the longest first. They begin first: for one that begins
# last the others wait. `--durations=0` tells how long each takes.
LONG = (
    "release/docs/test_commands.py",
    "release/test_short_runs.py",
    "engines/fences/test_mps_partitions.py",
    "contract/runtime/start_path/test_other_pythons.py",
    "contract/agent/test_gpu_health.py",
    "gpu/test_questions.py",
    "contract/host/suspend/test_suspend_kills.py",
    "engines/pods/test_pod_events.py",
    "contract/scheduler/test_scheduler_leader.py",
    "shim/bounds/test_shim_sanitizers.py",
    "shim/turns/test_turn_latency.py",
    "shim/turns/test_turn_hostile.py",
    "contract/agent/test_kubelet_manners.py",
    "contract/agent/http/test_agent_http.py",
    "engines/suspend/test_idle_suspend.py",
    "release/packages/install/test_killed.py",
    "engines/shares/test_slice_in_engines.py",
    "shim/turns/test_turns.py",
    "engines/pods/test_placement_decision.py",
    "engines/hostile/test_hostile_hooks.py",
    "contract/agent/test_agent_in_a_cluster.py",
    "contract/agent/test_hand_over.py",
    "contract/agent/dra/test_dra_rollouts.py",
    "engines/hostile/test_hostile_images.py",
    "engines/hostile/test_bypass_watch.py",
    "engines/hostile/test_hostile_limits.py",
    "engines/starts/test_starts_leave_nothing.py",
    "contract/scheduler/test_scheduler_connections.py",
    "contract/host/suspend/test_suspend_refusals.py",
    "engines/suspend/test_suspend.py",
    "release/packages/test_services.py",
    "shim/bounds/test_shim_misuse.py",
    "release/fuzz/test_fuzz.py",
    "contract/runtime/claim_socket/test_page_keeper.py",
    "contract/agent/test_node_agent_claim_socket.py",
    "engines/pods/test_placement_decision_hami.py",
    "release/packages/test_reproducible.py",
    "engines/hostile/test_hostile_leaks.py",
)

_MANY = 1000  # tests
MACHINE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/build/machine.lock"

# What programs change for their process, which here is that of all tests: a later write to a closed
# socket would end them all.
_CHANGED = (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM)

# A shell lets what it starts in the background ignore this, and each program here inherits it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _set_in_init_only(record: Record, name: str, value: object) -> None:
    # The check stands here because a start would pay for it. A test may build its case by a change.
    code = sys._getframe(1).f_code
    if code.co_name != "__init__" and "/vcuda_" in code.co_filename:
        raise AttributeError(f"{type(record).__name__}.{name} is set after __init__")
    object.__setattr__(record, name, value)


Record.__setattr__ = _set_in_init_only  # type: ignore[method-assign, assignment]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """For `-m timed`, import the few files that have such a test: all of them take 10 s."""
    if config.option.markexpr != "timed" or not collection_path.name.startswith("test_"):
        return None
    return b"mark.timed" not in collection_path.read_bytes() or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    places = {os.path.join(here, name): place for place, name in enumerate(LONG)}
    gone = [path for path in places if not os.path.exists(path)]
    if gone:
        raise pytest.UsageError(f"LONG in tests/conftest.py names {gone}, which are no files")
    items.sort(key=lambda item: places.get(str(item.path), len(LONG)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Of a whole run: thousands of kills and calls with a deadline fork this process."""
    if len(session.items) > _MANY:
        huge_pages.use()


@pytest.fixture(autouse=True)
def _signals_are_left_as_they_were() -> Iterator[None]:
    before = [(number, signal.getsignal(number)) for number in _CHANGED]
    yield
    for number, handler in before:
        if handler is not None and signal.getsignal(number) != handler:
            signal.signal(number, handler)


@pytest.fixture(autouse=True)
def _timed(request: pytest.FixtureRequest) -> Iterator[None]:
    """Of the tests that measure time, two run at once, but none beside one that takes all of it."""
    if request.node.get_closest_marker("timed") is None:
        yield
        return
    with open(MACHINE, "w") as machine:
        takes_all = "whole_machine" in request.fixturenames
        fcntl.flock(machine, fcntl.LOCK_EX if takes_all else fcntl.LOCK_SH)
        yield


@pytest.fixture
def whole_machine() -> None:
    """For a `timed` test: no other runs meanwhile."""


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files look as if untouched for a while."""
    monkeypatch.setattr(files, "_SETTLED_NS", -(10**18))
