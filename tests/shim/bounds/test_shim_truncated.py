"""A container that truncates its own usage page while it is in use."""

from __future__ import annotations

import json
import os
import signal

import pytest

from shim.bounds.test_shim_robust import FULL, OK, held_by_process, ledger
from shim.loading.test_shim_loading import NOT_READY
from shim.memory.test_shim_memory import PRELUDE
from support.gpu.guest import GIB, MIB, PYTHON, share
from vcuda_oci.pages import layout, page_reader

# Holds 1 MiB; then allocates the size on each line and prints the result.
HOLDS = (
    PRELUDE
    + """
must(cu.cuMemAlloc(1 << 20))
print(1, flush=True)
for line in sys.stdin:
    print(cu.cuMemAlloc(int(line))[0].name, flush=True)
"""
)
SAID = "libvcuda: /usr/local/vcuda/usage: was cut short and is counted anew; leave the file alone\n"


def holder(guest, before=""):
    process = guest.start(PYTHON, "-c", before + HOLDS, stdin=-1)
    assert process.stdout.readline() == "1\n"
    return process


def asks(process, count):
    process.stdin.write(f"{count}\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def test_a_page_cut_short_in_use_ends_no_process_and_keeps_the_limit(host, new_guest):
    cut, neighbour = (new_guest(share(host.uuids[0], GIB)) for _ in range(2))
    first, second, third, beside = (holder(each) for each in (cut, cut, cut, neighbour))
    first.kill()
    first.communicate()
    os.truncate(cut.usage, 0)
    # Each process writes its memory again with its next call; then the sum is right.
    assert [asks(each, MIB) for each in (second, third)] == [OK, OK]
    assert [asks(each, GIB - 4 * MIB + 1) for each in (second, third)] == [FULL] * 2
    assert asks(second, GIB - 4 * MIB) == OK
    held = {second.pid: GIB - 2 * MIB, third.pid: 2 * MIB}
    assert held_by_process(cut) == held
    assert ledger(host.path) == {**held, beside.pid: MIB}
    # No process holds the lock of a slot that it has lost.
    with open(cut.usage, "rb") as usage:
        assert page_reader.live_slots(usage.fileno()) == {0, 1}
    # A process that starts now reads a valid page.
    assert cut.python(PRELUDE + "print(json.dumps(cu.cuMemAlloc(1)[0].name))") == FULL
    assert asks(beside, MIB) == OK
    ends = [(*process.communicate(), process.returncode) for process in (second, third, beside)]
    assert ends == [("", SAID, 0), ("", "", 0), ("", "", 0)]


def test_a_page_cut_short_behind_its_used_part_serves_running_processes_only(
    host, new_guest, client
):
    guest = new_guest(share(host.uuids[0], GIB))
    process = holder(guest)
    os.truncate(guest.usage, 12)
    assert [asks(process, count) for count in (MIB, GIB - 2 * MIB + 1)] == [OK, FULL]
    out, err = guest.start(client("loads"), "libcuda.so.1").communicate(timeout=60)
    assert [each["rc"] for each in json.loads(out)] == [NOT_READY]
    assert err == (
        "libvcuda: /usr/local/vcuda: 'usage' is missing, too short or not writable; "
        "no GPU call is allowed; start the container again\n"
    )
    # The host reads a file, not a mapping.
    with pytest.raises(ValueError, match="usage page has 12 bytes"):
        guest.read_usage()
    assert process.communicate() == ("", "")


def test_process_that_truncates_its_page_repeatedly_gets_one_line(host, new_guest):
    guest = new_guest(share(host.uuids[0], GIB))
    process = holder(guest)
    answers = set()
    for _ in range(1500):
        os.truncate(guest.usage, 0)
        answers.add(asks(process, 4096))
    assert answers == {OK}
    assert asks(process, GIB) == FULL
    assert process.communicate(timeout=60) == ("", SAID)


def test_program_retains_its_own_signal_handler(host, new_guest):
    guest = new_guest(share(host.uuids[0], GIB))
    process = holder(guest, before="import faulthandler; faulthandler.enable()\n")
    os.truncate(guest.usage, 0)
    _, err = process.communicate(f"{MIB}\n", timeout=60)
    assert (process.returncode, err.splitlines()[0]) == (
        -signal.SIGBUS,
        "Fatal Python error: Bus error",
    )


@pytest.mark.parametrize("how", ["sent", "met elsewhere"])
def test_the_signal_ends_a_process_as_ever_where_the_page_is_not_its_cause(host, new_guest, how):
    process = holder(new_guest(share(host.uuids[0], GIB)))
    if how == "sent":
        process.send_signal(signal.SIGBUS)
        process.communicate(timeout=60)
    else:
        process.kill()
        process.communicate()
        process = new_guest(share(host.uuids[0], GIB)).start(
            PYTHON,
            "-c",
            PRELUDE
            + "must(cu.cuMemAlloc(1)); import mmap, tempfile; file = tempfile.TemporaryFile();"
            "file.truncate(4096); page = mmap.mmap(file.fileno(), 4096); file.truncate(0); page[0]",
        )
        process.communicate(timeout=60)
    assert process.returncode == -signal.SIGBUS


def test_a_hole_in_the_page_costs_a_container_no_call_and_no_limit(host, new_guest):
    """A truncated and extended page, or a punched one, reads as zeros, like any forged content."""
    guest = new_guest(share(host.uuids[0], GIB))
    process = holder(guest)
    with open(guest.usage, "r+b") as usage:
        usage.truncate(0)
        usage.truncate(layout.USAGE_SIZE)
    assert [asks(process, count) for count in (MIB, GIB + 1)] == [OK, FULL]
    assert process.communicate(timeout=60) == ("", "")
