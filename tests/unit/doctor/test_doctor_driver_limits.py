"""`vcuda doctor` on the driver's own limits."""

from __future__ import annotations

import pytest

from vcuda_hook.doctor.driver_limits import Cgroups, judge
from vcuda_hook.doctor.finding import INFO, OK, WARNING

PLAIN = Cgroups(["cpu", "memory"], ["cpu"])
WITH_DMEM = ["cpu", "dmem"]


@pytest.mark.parametrize(
    ("is_wanted", "major", "cgroups", "severity", "words"),
    [
        (True, 615, PLAIN, OK, "the driver limits"),
        (True, 615, Cgroups(WITH_DMEM, WITH_DMEM), OK, "the driver limits"),
        (True, 615, Cgroups(WITH_DMEM, ["cpu"]), WARNING, "the driver refuses every limit"),
        (True, 615, Cgroups(None, []), INFO, "the host has none"),
        (True, 614, Cgroups(WITH_DMEM, []), OK, "none before 615"),
        (False, 615, Cgroups(None, []), OK, "off by the setting"),
    ],
)
def test_host_on_which_the_driver_refuses_limits_is_named(
    is_wanted: bool, major: int, cgroups: Cgroups, severity: str, words: str
) -> None:
    found = judge(is_wanted, major, cgroups)
    assert (found.severity, words in found.what) == (severity, True)
