"""Ends of containers and turn keepers in the middle of turns, as scripts of the judge."""

from __future__ import annotations

# A killed process has dropped its locks when its last thread has ended. Virtual time stands still
# meanwhile.
COMMON = """
import fcntl, json, os, select, signal, sys, time
from vcuda_oci.pages import layout, page_reader
given = json.loads(sys.argv[1])
WAIT, HELD = 2, 3
def state(tenant):
    with open(given["limits"][tenant], "rb") as page:
        return page_reader.read_limits(page.read()).gpus[0].turn & 3
def wait_for(*wanted, tenant):
    while state(tenant) not in wanted:
        time.sleep(0.0001)
def kill(pid):
    end = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    select.select([end], [], [])
"""

# Kills a container two milliseconds into its turn, while its kernels are queued. Prints how many
# milliseconds later its turn has ended.
_HOLDER = """
time.sleep(0.5)
wait_for(WAIT, tenant=%(holder)d)
wait_for(HELD, tenant=%(holder)d)
time.sleep(0.002)
assert state(%(holder)d) == HELD
kill(given["pids"][%(holder)d])
killed = time.monotonic()
wait_for(WAIT, tenant=%(holder)d)
print(json.dumps(1000 * (time.monotonic() - killed)))
"""

KEEPER_KILLED = (
    COMMON
    + """
time.sleep(0.5)
wait_for(HELD, tenant=0)
kill(given["keeper"])
print("true")
"""
)

# Prints for how long, in seconds, a container without its keeper goes on between the times that it
# waits for a turn.
TRIES = (
    COMMON
    + """
time.sleep(0.5)
wait_for(HELD, tenant=0)
kill(given["keeper"])
at = {name: offset for name, offset, _ in layout.offsets()}
marks_at = at["usage.slot"] + at["usage_slot.turn_marks"]
WANTS = 4
def wants():
    with open(given["usage"][1], "rb") as page:
        return os.pread(page.fileno(), 1, marks_at)[0] & WANTS
waited, pauses = time.monotonic(), []
while len(pauses) < 8:
    time.sleep(0.02)
    if wants():
        now = time.monotonic()
        pauses += [now - waited] * (now - waited > 0.5)
        waited = now
print(json.dumps(pauses))
"""
)

# The first keeper is asked to end amid the window; the next one, which waits for the lock, gets it
# %(away)s seconds later. Virtual time stands still while the first one ends.
_UPGRADE = """
lock = os.open(given["state"] + "/turns.lock", os.O_RDONLY | os.O_CREAT, 0o600)
time.sleep(4.005)  # between two polls of the next one
os.kill(given["keeper"], signal.SIGTERM)
time.sleep(0.002)
fcntl.flock(lock, fcntl.LOCK_EX)
time.sleep(%(away)s)
fcntl.flock(lock, fcntl.LOCK_UN)
print("true")
"""


def holder_killed(tenant: int) -> str:
    return COMMON + _HOLDER % {"holder": tenant}


def upgrade(away_s: float) -> str:
    return COMMON + _UPGRADE % {"away": away_s}
