"""The seccomp filter of the agent's HTTP process, tried with sockets and signals."""

from __future__ import annotations

import errno
import subprocess
import sys

import pytest

from support.files import ROOT

# Signal 0, so that a process that may send it survives and prints the result.
TRY = """
import ctypes, os, socket, sys
sys.path[:0] = sys.argv[2].split(":")
from vcuda_plugin.agent.process import confine, rights, system_calls as numbers
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *words):
    column = numbers._MACHINES[os.uname().machine].column
    if libc.syscall(numbers._NUMBERS[name][column], *words) < 0:
        raise OSError(ctypes.get_errno(), name)
listening = socket.create_server(("127.0.0.1", 0))
address, me, info = listening.getsockname(), os.getpid(), ctypes.create_string_buffer(128)
info[8] = b"\\xff"; info[9] = b"\\xff"; info[10] = b"\\xff"; info[11] = b"\\xff"  # SI_QUEUE
stream = socket.socket()
confine.confine(rights.of("vcuda_plugin.agent.http.http_process"))
try:
    exec(sys.argv[1])
    print("could")
except OSError as error:
    print(error.errno)
"""
REFUSED = {
    "stream.connect(address)": errno.EPERM,
    "stream.sendto(b'x', socket.MSG_FASTOPEN, address)": errno.EPERM,
    "stream.sendmsg([b'x'], [], socket.MSG_FASTOPEN, address)": errno.EPERM,
    "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)": errno.ESOCKTNOSUPPORT,
    "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)": errno.ESOCKTNOSUPPORT,
    "socket.socket(socket.AF_NETLINK, socket.SOCK_STREAM)": errno.EAFNOSUPPORT,
    "call('tkill', me, 0)": errno.EPERM,
    "call('tgkill', me, me, 0)": errno.EPERM,
    "call('rt_sigqueueinfo', me, 0, info)": errno.EPERM,
    "call('rt_tgsigqueueinfo', me, me, 0, info)": errno.EPERM,
}
ALLOWED = [
    "socket.create_server(('127.0.0.1', 0))",
    "[one.sendmsg([b'x']) + one.send(b'x') for one in socket.socketpair()]",
]


def tried(what: str) -> str:
    sources = ":".join(f"{ROOT}/{part}" for part in ("oci", "runtime_hook", "plugin"))
    command = [sys.executable, "-IBc", TRY, what, sources]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("what", REFUSED)
def test_it_connects_to_no_server_and_signals_no_process(what: str) -> None:
    assert tried(what) == str(REFUSED[what])


@pytest.mark.parametrize("what", ALLOWED)
def test_it_may_have_streams(what: str) -> None:
    assert tried(what) == "could"
