"""Times such as "10m"."""

from __future__ import annotations

import pytest

from vcuda_oci.model.durations import MOST_SECONDS, parse_seconds
from vcuda_oci.model.errors import VcudaError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("never", 0), ("1s", 1), ("90s", 90), ("10m", 600), ("2h", 7200), ("30d", MOST_SECONDS)],
)
def test_time_with_a_unit_is_read_in_seconds(text: str, seconds: int) -> None:
    assert parse_seconds(text, "idle-suspend", "env") == seconds


@pytest.mark.parametrize(
    "text", ["", "0s", "10", "m", "-1m", "1.5h", "31d", "9999999999s", "10 m", "1w", "٣s", "Never"]
)
def test_other_text_is_refused_with_the_form_that_is_right(text: str) -> None:
    with pytest.raises(VcudaError) as refused:
        parse_seconds(text, "idle-suspend", "env")
    assert str(refused.value) == (
        f"env: idle-suspend cannot be '{text}'; "
        "write never, or a time from 1s to 30d, such as 90s, 10m or 2h"
    )
