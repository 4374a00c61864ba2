"""The virtual clock: programs that only sleep and look at the time get exact times, and no
bystander waits for them."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import time
from typing import Any

import pytest

from support.gpu.guest import PYTHON
from support.softgpu.virtual_time import Clock, answer

SAY = "import json, os, sys, time; began = time.monotonic()\n"


def start(clock: Clock, code: str, **options: Any) -> subprocess.Popen[str]:
    command = clock.command(PYTHON, "-c", SAY + code, **options)
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_an_hour_passes_at_once_and_the_date_stays_real(tmp_path: pathlib.Path) -> None:
    date = time.time()
    printed = answer(
        start(
            Clock(tmp_path, 1),
            """
for _ in range(72_000):
    time.sleep(0.05)
print(json.dumps([time.monotonic() - began, time.perf_counter() - began, time.time()]))
""",
        )
    )
    # A look at the clock takes 100 ns, and each sleep looks once.
    assert printed == [
        pytest.approx(3600.0072),
        pytest.approx(3600.0072),
        pytest.approx(date, abs=60),
    ]


def test_processes_wake_in_the_order_of_their_times(tmp_path: pathlib.Path) -> None:
    log = tmp_path / "log"
    clock = Clock(tmp_path, 3)
    code = """
for _ in range({times}):
    time.sleep({span})
    print({span}, "at", round(time.monotonic() - 1000, 2), file=open({log!r}, "a"))
print(0)
"""
    spans = [(0.2, 6), (0.31, 4), (0.53, 2)]
    for process in [
        start(clock, code.format(span=span, times=times, log=str(log))) for span, times in spans
    ]:
        answer(process)
    assert log.read_text().splitlines() == [
        "0.2 at 0.2",
        "0.31 at 0.31",
        "0.2 at 0.4",
        "0.53 at 0.53",
        "0.2 at 0.6",
        "0.31 at 0.62",
        "0.2 at 0.8",
        "0.31 at 0.93",
        "0.2 at 1.0",
        "0.53 at 1.06",
        "0.2 at 1.2",
        "0.31 at 1.24",
    ]


def test_no_process_runs_before_all_have_started(tmp_path: pathlib.Path) -> None:
    clock = Clock(tmp_path, 2)
    early = start(clock, f"open({str(tmp_path / 'ran')!r}, 'w'); print(0)")
    time.sleep(0.3)
    assert early.poll() is None
    assert not (tmp_path / "ran").exists()
    late = start(clock, "time.sleep(5); print(0)")
    assert [answer(early), answer(late)] == [0, 0]
    assert (tmp_path / "ran").exists()


def test_second_clock_continues_from_the_firsts_time(tmp_path: pathlib.Path) -> None:
    code = "time.sleep(5); print(began)"
    printed = [answer(start(Clock(tmp_path, 1), code)) for _ in range(3)]
    assert printed == [pytest.approx(moment, abs=0.01) for moment in (1000, 1005, 1010)]


def test_the_threads_of_a_process_take_part(tmp_path: pathlib.Path, client) -> None:
    done = subprocess.run(
        Clock(tmp_path, 1).command(client("sleepers")), text=True, capture_output=True, timeout=60
    )
    assert json.loads(done.stdout) == [
        ["slept 2", 2],
        ["slept 3", 3],
        ["joined 3", 3],
        ["slept 1.5", 4],
        ["slept 7", 7],
        ["slept 4", 7],
        ["joined all", 7],
    ], done


def test_loop_that_only_reads_the_clock_ends(tmp_path: pathlib.Path) -> None:
    loop = "looks = 0\nwhile time.monotonic() < began + 0.01: looks += 1\nprint(looks)"
    assert answer(start(Clock(tmp_path, 1), loop)) == pytest.approx(100_000, rel=0.001)


@pytest.mark.parametrize(
    "end", ["os.kill(os.getpid(), 9)", "os.abort()", "sys.exit(3)", "time.sleep(9)"]
)
def test_a_process_that_dies_delays_no_other(tmp_path: pathlib.Path, end: str) -> None:
    """In its own turn, or asleep by another's hand."""
    clock = Clock(tmp_path, 3)
    pid = str(tmp_path / "pid")
    dies = start(clock, f"open({pid!r}, 'w').write(str(os.getpid())); time.sleep(1.5)\n{end}")
    kill = f"time.sleep(1.6); os.kill(int(open({pid!r}).read()), 9);" if "sleep" in end else ""
    rest = "time.sleep(20 + began - time.monotonic()); print(time.monotonic() - began)"
    lives = [start(clock, kill + rest), start(clock, rest)]
    assert [answer(process) for process in lives] == [pytest.approx(20, abs=1e-5)] * 2
    assert dies.wait(timeout=60) != 0
    dies.communicate()


def test_what_a_process_starts_lives_in_real_time(tmp_path: pathlib.Path) -> None:
    code = f"""
import subprocess
child = [{PYTHON!r}, "-c", "import time; print(time.monotonic())"]
read, write = os.pipe()
if os.fork() == 0:
    os.write(write, str(time.monotonic()).encode())
    os._exit(0)
os.wait()
print(json.dumps([time.monotonic(), float(os.read(read, 99)),
                  float(subprocess.run(child, capture_output=True).stdout)]))
"""
    real = time.monotonic()
    printed = answer(start(Clock(tmp_path, 1), code))
    assert printed == [
        pytest.approx(1000, abs=1),
        pytest.approx(real, abs=60),
        pytest.approx(real, abs=60),
    ]


# `futex` calls the C library's `syscall` on WORD, which all processes of a test share.
FUTEX = """
import ctypes, errno, mmap, os, select
libc = ctypes.CDLL(None, use_errno=True)
file = open({word!r}, "r+b")
page = mmap.mmap(file.fileno(), 4096)
WORD = ctypes.c_uint32.from_buffer(page)
class Span(ctypes.Structure):
    _fields_ = [("s", ctypes.c_long), ("ns", ctypes.c_long)]
def futex(operation, value, span=None, bits=0):
    argument = ctypes.byref(Span(*divmod(span, 10**9))) if span is not None else None
    answer = libc.syscall(ctypes.c_long(202), ctypes.byref(WORD), ctypes.c_long(operation),
                          ctypes.c_long(value), argument, None, ctypes.c_long(bits))
    return errno.errorcode[ctypes.get_errno()] if answer < 0 else answer
WAIT, WAKE, WAIT_BITSET, PRIVATE = 0, 1, 9, 128
def waited():
    return time.monotonic_ns() - before
before = time.monotonic_ns()
"""


def share_word(folder: pathlib.Path) -> str:
    word = folder / "word"
    word.write_bytes(bytes(4096))
    return FUTEX.format(word=str(word))


def run_all(clock: Clock, *codes: str) -> list[Any]:
    return [answer(process) for process in [start(clock, code) for code in codes]]


@pytest.mark.parametrize(
    "call", ["WAIT, 0", "WAIT, 0, 10**10", "WAIT_BITSET, 0, before + 10**10, 0xffffffff"]
)
def test_a_futex_waiter_wakes_at_the_moment_of_the_wake(tmp_path: pathlib.Path, call: str) -> None:
    word = share_word(tmp_path)
    waits = word + f"print(json.dumps([futex({call}), time.monotonic_ns()]))"
    wakes = word + (
        "time.sleep(0.005); now = time.monotonic_ns(); WORD.value = 1;"
        "answers = [futex(WAKE, 1), now, waited()]; time.sleep(1); print(json.dumps(answers))"
    )
    (answered, woke_at), (woken, now, after) = run_all(Clock(tmp_path, 2), waits, wakes)
    assert (answered, woken) == (0, 1)
    assert after == pytest.approx(5_000_000, abs=1000)
    assert woke_at == pytest.approx(now, abs=1000)


@pytest.mark.parametrize(
    ("call", "why", "after"),
    [
        ("WAIT, 7", "EAGAIN", 0),
        ("WAIT | PRIVATE, 0, 3_000_000", "ETIMEDOUT", 3_000_000),
        ("WAIT_BITSET, 0, before + 4_000_000, 0xffffffff", "ETIMEDOUT", 4_000_000),
        ("WAIT, 0, 0", "ETIMEDOUT", 0),
        ("77, 0", "ENOSYS", 0),
    ],
)
def test_a_futex_call_that_is_not_woken_fails(
    tmp_path: pathlib.Path, call: str, why: str, after: int
) -> None:
    code = share_word(tmp_path) + f"print(json.dumps([futex({call}), waited()]))"
    ((answered, took),) = run_all(Clock(tmp_path, 1), code)
    assert answered == why
    assert took == pytest.approx(after, abs=1000)


def test_a_wait_on_several_words_tells_which_one_changed(tmp_path: pathlib.Path) -> None:
    waits = (
        share_word(tmp_path)
        + """
class Waiter(ctypes.Structure):
    _fields_ = [("value", ctypes.c_uint64), ("address", ctypes.c_uint64),
                ("flags", ctypes.c_uint32), ("reserved", ctypes.c_uint32)]
words = [WORD, ctypes.c_uint32.from_buffer(page, 64)]
waiters = (Waiter * 2)(*[Waiter(0, ctypes.addressof(word), 2, 0) for word in words])
def several(until):
    span = Span(*divmod(until, 10**9))
    answer = libc.syscall(ctypes.c_long(449), waiters, ctypes.c_long(2), ctypes.c_long(0),
                          ctypes.byref(span), ctypes.c_long(1))
    return errno.errorcode[ctypes.get_errno()] if answer < 0 else answer
answers = [several(before + 10**6), waited(), several(before + 10**9), time.monotonic_ns()]
print(json.dumps([*answers, several(before + 10**9)]))
"""
    )
    wakes = share_word(tmp_path) + (
        "time.sleep(0.005); ctypes.c_uint32.from_buffer(page, 64).value = 1; futex(WAKE, 1);"
        "now = time.monotonic_ns(); time.sleep(1); print(now)"
    )
    (timed_out, first, changed, woke_at, again), now = run_all(Clock(tmp_path, 2), waits, wakes)
    assert (timed_out, changed, again) == ("ETIMEDOUT", 1, "EAGAIN")
    assert first == pytest.approx(1_000_000, abs=1000)
    assert woke_at == pytest.approx(now, abs=1000)


# A second word: beside the first one, or at the same place of another file, or in no file.
OTHERS = {
    "place": "other = ctypes.c_uint32.from_buffer(page, 4)",
    "file": "other = ctypes.c_uint32.from_buffer(mmap.mmap(os.open(SECOND, 2), 4096))",
    "process": "other = ctypes.c_uint32.from_buffer(mmap.mmap(-1, 4096))",
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_wake_of_another_word_ends_no_wait(tmp_path: pathlib.Path, other: str) -> None:
    second = tmp_path / "second"
    second.write_bytes(bytes(4096))
    word = share_word(tmp_path)
    waits = word + "print(json.dumps([futex(WAIT, 0, 10**8), waited()]))"
    wakes = (
        word
        + OTHERS[other].replace("SECOND", repr(str(second)))
        + ("\ntime.sleep(0.005); WORD = other; print(json.dumps([futex(WAKE, 1), waited()]))")
    )
    (answered, after), (woken, _) = run_all(Clock(tmp_path, 2), waits, wakes)
    assert (answered, woken) == ("ETIMEDOUT", 0)
    assert after == pytest.approx(100_000_000, abs=1000)


def test_a_futex_waiter_wakes_after_it_mapped_the_word_over_another(tmp_path: pathlib.Path) -> None:
    wakes = share_word(tmp_path) + "time.sleep(0.005); print(futex(WAKE, 1)); time.sleep(1)"
    other = tmp_path / "other"
    other.write_bytes(bytes(4096))
    waits = f"""{FUTEX.format(word=str(other))}
first = futex(WAIT, 0, 10**6)
libc.mmap.restype = ctypes.c_void_p
there, shared_and_fixed = ctypes.addressof(WORD), 0x11
file = os.open({str(tmp_path / "word")!r}, os.O_RDWR)
size, start = ctypes.c_long(4096), ctypes.c_long(0)
assert there == libc.mmap(ctypes.c_void_p(there), size, 3, shared_and_fixed, file, start)
print(json.dumps([first, futex(WAIT, 0, 10**9)]))
"""
    assert run_all(Clock(tmp_path, 2), waits, wakes) == [["ETIMEDOUT", 0], 1]


def test_a_wake_reaches_a_process_outside_of_the_clock(tmp_path: pathlib.Path) -> None:
    word = share_word(tmp_path)
    outside = subprocess.Popen(
        [PYTHON, "-c", SAY + word + "print(json.dumps(futex(WAIT, 0, 20 * 10**9)))"],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    wakes = word + "while not futex(WAKE, 1): time.sleep(0.001)\nprint(1)"
    assert run_all(Clock(tmp_path, 1), wakes) == [1]
    assert answer(outside) == 0


def test_a_waiter_without_a_waker_ends_with_one_line(tmp_path: pathlib.Path) -> None:
    process = start(Clock(tmp_path, 1), share_word(tmp_path) + "futex(WAIT, 0)")
    err = process.communicate(timeout=60)[1]
    assert process.returncode == 97
    assert "every thread waits for another one" in err


def test_a_poll_without_a_ready_descriptor_sleeps_in_virtual_time(tmp_path: pathlib.Path) -> None:
    code = """
import select
read, write = os.pipe()
poller = select.poll()
poller.register(read, select.POLLIN)
answers = []
def look(timeout):
    before = time.monotonic_ns()
    answers.append([len(poller.poll(timeout)), time.monotonic_ns() - before])
look(2500)
look(0)
os.write(write, b"1")
look(2500)
print(json.dumps(answers))
"""
    ((printed),) = run_all(Clock(tmp_path, 1), code)
    assert printed == [
        [0, pytest.approx(2_500_000_000, abs=1000)],
        [0, pytest.approx(0, abs=1000)],
        [1, pytest.approx(0, abs=1000)],
    ]


def test_a_poll_notices_what_another_participant_writes(tmp_path: pathlib.Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    waits = f"""
import select
end = os.open({str(fifo)!r}, os.O_RDWR)
poll = select.poll()
poll.register(end, select.POLLIN)
ready = len(poll.poll())
print(json.dumps([ready, time.monotonic() - began]))
"""
    writes = f"time.sleep(0.0405); os.write(os.open({str(fifo)!r}, os.O_RDWR), b'1'); print(0)"
    (ready, after), _ = run_all(Clock(tmp_path, 2), waits, writes)
    assert ready == 1
    assert after == pytest.approx(0.041, abs=1e-4)


STUCK = {
    "one waits for what is not time": (2, "os.read(os.pipe()[0], 1)", "waits for something other"),
    "one never comes": (3, "print(0)", "not all processes have joined"),
}


@pytest.mark.parametrize("name", STUCK)
def test_a_participant_that_waits_in_vain_ends_with_one_line(
    tmp_path: pathlib.Path, name: str
) -> None:
    processes, code, why = STUCK[name]
    clock = Clock(tmp_path, processes)
    stuck = start(clock, code, patience_s=1)
    waits = start(clock, "time.sleep(1); print(0)", patience_s=1)
    err = waits.communicate(timeout=60)[1]
    stuck.kill()
    stuck.communicate()
    assert waits.returncode == 97
    assert err.count("\n") == 1
    assert err.startswith("softclock: ")
    assert why in err
