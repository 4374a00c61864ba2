"""A signal handler that calls CUDA in the middle of a call of its own thread."""

from __future__ import annotations

import json

from support.gpu.guest import MIB


def test_a_handler_that_launches_and_reads_in_the_middle_of_any_call_never_waits(
    new_mock_guest, client
):
    process = new_mock_guest(MIB).start(client("signals"), "40000")
    try:
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0, err
    many, refused, left = json.loads(out)
    assert (many, refused, left) == (True, 0, MIB - 4096)
