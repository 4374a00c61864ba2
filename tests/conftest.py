"""Order of the test files, and fixtures for every test."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from vcuda_oci.model.record import Record
from vcuda_oci.system import files

# Whether an example is slow is a question to the machine and to what else it does.
settings.register_profile("vcuda", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("few", settings.get_profile("vcuda"), max_examples=10)
settings.load_profile("vcuda")

# Files that take long, the longest first. They begin first: for one that begins last the others
# wait. `--durations=0` tells how long each takes.
LONG = (
    "contract/runtime/test_other_pythons.py",
    "release/docs/test_commands.py",
    "engines/hostile/test_hostile_races.py",
    "release/test_short_runs.py",
    "contract/agent/test_gpu_health.py",
    "shim/bounds/test_shim_sanitizers.py",
    "release/packages/test_contents.py",
    "contract/scheduler/test_scheduler_leader.py",
    "softgpu/test_softgpu_walk.py",
    "release/packages/test_killed.py",
    "engines/pods/test_pod_events.py",
    "contract/agent/test_kubelet_manners.py",
    "release/packages/test_containerfile.py",
    "release/packages/test_reproducible.py",
    "engines/hooks/test_cdi.py",
    "release/fuzz/test_fuzz.py",
    "engines/starts/test_starts_leave_nothing.py",
    "release/packages/test_services.py",
    "shim/bounds/test_shim_fuzz.py",
    "engines/hostile/test_bypass_watch.py",
    "contract/agent/test_node_agent_claim_socket.py",
    "contract/agent/test_dashboards_live.py",
    "contract/agent/test_event_teller.py",
    "contract/chart/test_helm.py",
    "contract/host/driver/test_cdi.py",
    "contract/runtime/test_claim_socket.py",
    "unit/extender_service/test_scheduler_leader_races.py",
)

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
    """For `-m alone`, import the few files that have such a test: all of them take 10 s."""
    if config.option.markexpr != "alone" or not collection_path.name.startswith("test_"):
        return None
    return b"mark.alone" not in collection_path.read_bytes() or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    places = {os.path.join(here, name): place for place, name in enumerate(LONG)}
    gone = [path for path in places if not os.path.exists(path)]
    if gone:
        raise pytest.UsageError(f"LONG in tests/conftest.py names {gone}, which are no files")
    items.sort(key=lambda item: places.get(str(item.path), len(LONG)))


@pytest.fixture(autouse=True)
def _signals_are_left_as_they_were() -> Iterator[None]:
    before = [(number, signal.getsignal(number)) for number in _CHANGED]
    yield
    for number, handler in before:
        if handler is not None and signal.getsignal(number) != handler:
            signal.signal(number, handler)


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files look as if untouched for a while."""
    monkeypatch.setattr(files, "_SETTLED_NS", -(10**18))
