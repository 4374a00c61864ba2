"""What holds for every test."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# Whether an example is slow is a question to the machine and to what else it does.
settings.register_profile("vcuda", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("vcuda")

# What programs change for their process, which here is that of all tests: who then writes to a
# socket that nobody reads would end them all.
_CHANGED = (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM)


@pytest.fixture(autouse=True)
def _signals_are_left_as_they_were() -> Iterator[None]:
    before = [(number, signal.getsignal(number)) for number in _CHANGED]
    yield
    for number, handler in before:
        if handler is not None and signal.getsignal(number) != handler:
            signal.signal(number, handler)
