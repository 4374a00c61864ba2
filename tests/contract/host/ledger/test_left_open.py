"""Root cuts the pages that a process holds open, and nothing else that the process swaps in.

Each test runs in namespaces of its own: a state folder on a tmpfs, and a /proc with few processes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest

from support.files import ROOT, write
from support.needed import skip_or_fail

# Number of root's sweeps while the other process swaps files; more in `make soak-races`.
SWEEPS = int(os.environ.get("VCUDA_SOAK", "1000"))
VICTIM = b"the host's own\n" * 1000

RACE = f"""
import sys; sys.path[:0] = [{ROOT!r} + "/oci", {ROOT!r} + "/tests"]
import array, os, signal, socket, time
from support.ledger.samples import GIB, host, record
from vcuda_oci.ledger import claim
from vcuda_oci.placement.rules import Rules
from vcuda_oci.pages import limits
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.guest import left_open
from vcuda_oci.container.identity import Owner
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.request import Request

what, state, victim, rounds = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
ledger = Ledger(state)
with ledger:
    ledger.write(record("gone"), limits.page_of(record("gone")))

def swap(page, fills):
    '''As another user without rights: the page and the victim take turns under the same numbers.'''
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    theirs = os.open(victim, os.O_RDONLY)
    block, places = bytes(1 << 16), [os.dup(theirs) for _ in range(64)]
    os.write(2, b"swapping\\n")
    while True:
        if fills:
            try:
                os.lseek(page, 0, os.SEEK_END)
                while os.write(page, block):
                    pass
            except OSError:
                pass
        for _ in range(64):
            for place in places:
                os.dup2(page, place)
            for place in places:
                os.dup2(theirs, place)

# The page goes over a socket, as from a container to another one.
ours, others = socket.socketpair()
child = os.fork()
if child == 0:
    _, handed, _, _ = others.recvmsg(1, socket.CMSG_SPACE(4))
    swap(array.array("i", handed[0][2])[0], what == "claims")
page = os.open(ledger.containers + "/gone/usage", os.O_RDWR)
ours.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [page]))])
os.close(page)
with ledger:
    # An earlier version left no name either; now a removed container's page keeps one in `ended`.
    os.unlink(ledger.containers + "/gone/usage")
    ledger.remove("gone")
cut = claimed = 0
for number in range(rounds):
    if what == "claims":
        id = f"box{{number}}"
        while os.statvfs(state).f_bavail:
            time.sleep(0.0001)
        try:
            wanted = claim.Claim(
                Owner(id, id), Request.of(1, 1 << 20), ["/nowhere/runc"], os.getpid()
            )
            made = claim.claim(ledger, host(16), wanted, Rules())
            claimed += 1
        except VcudaError as error:
            print(error)
        with ledger:
            ledger.remove(id)
    else:
        cut += left_open.cut_back(state)
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
print(claimed if what == "claims" else bool(cut))
"""


@pytest.fixture
def folder() -> Iterator[str]:
    """A folder that any user may read."""
    if os.geteuid() != 0:
        skip_or_fail("namespaces and mounts take root")
    with tempfile.TemporaryDirectory() as path:
        os.chmod(path, 0o755)
        yield path


def race(folder: str, what: str, rounds: int) -> tuple[str, bytes]:
    """Root's output, and the victim file's content afterwards."""
    state, victim = folder + "/state", folder + "/victim"
    os.mkdir(state)
    write(victim, VICTIM)
    mount = f"mount -t tmpfs -o size=4m,mode=755 none {state} && exec "
    apart = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    program = [sys.executable, "-IBc", RACE, what, state, victim, str(rounds)]
    done = subprocess.run(
        [*apart, "sh", "-c", mount + '"$@"', "sh", *program],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "swapping\n")
    with open(victim, "rb") as file:
        return done.stdout, file.read()


def test_a_file_that_is_swapped_in_for_a_page_is_never_cut(folder: str) -> None:
    printed, victim = race(folder, "cuts", SWEEPS)
    assert victim == VICTIM
    assert printed == "True\n"  # the page itself was


@pytest.mark.parametrize("claims", [SWEEPS // 40])
def test_a_claim_on_a_full_state_folder_cuts_no_file_that_is_swapped_in(
    folder: str, claims: int
) -> None:
    printed, victim = race(folder, "claims", claims)
    assert victim == VICTIM
    assert printed == f"{claims}\n"
