"""Each of the agent's processes has the rights that docs/security.md lists, and no others."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.agent.http.test_agent_http import asked, listening
from support.agent.node_agent import Agent, AgentNode
from support.api_server.cluster_api import KubeApi
from support.files import ROOT
from support.kubelet.fake_kubelet import Kubelet
from support.ledger.samples import record
from support.processes import children_of
from support.waiting import until
from vcuda_oci.fences import mps_folder
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.pages import limits
from vcuda_oci.start import claim_socket
from vcuda_plugin.agent.process import confine, rights


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A short one: sockets of MPS are below it."""
    with tempfile.TemporaryDirectory(prefix="rights") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


KEEPERS = (*claim_socket.KEEPERS, claim_socket.MPS_KEEPER)
# The kernel names them by bits.
BITS = confine._BITS


def table() -> dict[str, tuple[int, set[str]]]:
    """The uid and the capabilities that the page lists, by the name that ps shows."""
    with open(ROOT + "/docs/security.md") as page:
        lines = page.read().partition("## The agent's processes")[2].splitlines()
    found = {}
    for line in lines:
        if row := re.match(r"\| `(\S+)` \| (\d+) \| (.*?) \|", line):
            found[row[1]] = int(row[2]), set(re.findall(r"`(\w+)`", row[3]))
    return found


def status(pid: int) -> dict[str, str]:
    with open(f"/proc/{pid}/status") as lines:
        pairs = (line.partition(":") for line in lines)
        return {name: value.strip() for name, _, value in pairs}


def names_of(capabilities: str) -> set[str]:
    mask = int(capabilities, 16)
    named = {name for name, bit in BITS.items() if mask >> bit & 1}
    assert mask == sum(1 << BITS[name] for name in named), hex(mask)
    return named


def processes(agent: Agent) -> dict[str, int]:
    server = agent.fork_server()
    found = {name: agent.child(name) for name in table() if name in agent_children(server)}
    if "claim_socket" in found:
        below = {status(pid)["Name"]: pid for pid in children_of(found["claim_socket"])}
        found |= {name: pid for name, pid in below.items() if name in KEEPERS}
    return {"vcuda-node-agen": agent.process.pid, "fork_server": server, **found}


def workers(server: int) -> list[int]:
    return [pid for pid in children_of(server) if status(pid)["Name"] not in KEEPERS]


def agent_children(server: int) -> set[str]:
    return {status(pid)["Name"] for pid in children_of(server)}


@pytest.mark.parametrize("offer", ["plugin", "dra"])
def test_each_process_has_the_rights_of_the_table(
    node: AgentNode, offer: str, request: pytest.FixtureRequest
) -> None:
    # Names of DRA's sockets are long: a short folder.
    root = tempfile.mkdtemp(prefix="kubelet")
    request.addfinalizer(lambda: shutil.rmtree(root))
    node.kubelet.stop()
    node.kubelet = Kubelet(f"{root}/device-plugins")
    node.kubelet.start()
    api = KubeApi()
    api.start()
    path = api.kubeconfig(str(node.gpu.root.parent / "kubeconfig"))
    port = listening(node, gpu_offer=offer)
    held = Ledger(node.state_dir)
    with held:  # their processes run only where a container may be idle, or is under MPS
        uuid = node.gpu.smi("--query-gpu=uuid", "--format=csv,noheader").split()[0]
        under_mps = record("mps", isolation="mps", shares=[GpuShare(uuid, 1 << 30, 30)])
        for one in (record("box", idle_suspend=3600), under_mps):
            held.write(one, limits.page_of(one))
    program = str(node.gpu.root / "usr/bin/nvidia-cuda-mps-control")
    mps_folder.want(node.state_dir, uuid, program, str(node.gpu.libraries), "")
    expected = table().keys() - (set() if offer == "dra" else {"dra_process"})
    try:
        with node.agent(1, "--kubeconfig", path, "--node-name", "node-1") as agent:
            until(lambda: bool((asked(port, "/usage") or {}).get("gpus")))
            until(lambda: "node-1" in api.nodes)
            until(lambda: processes(agent).keys() == expected)
            folder = mps_folder.folder_of(node.state_dir, uuid)
            until(lambda: mps_folder.ready(folder) is not None)
            for name, pid in processes(agent).items():
                uid, capabilities = table()[name]
                for each in (pid, *(workers(pid) if name == "claim_socket" else ())):
                    had = status(each)
                    assert set(had["Uid"].split()) == set(had["Gid"].split()) == {str(uid)}, name
                    for mask in ("CapPrm", "CapEff"):
                        assert names_of(had[mask]) == capabilities, (name, mask)
                    # Only a process with CAP_SETPCAP can take from its bounding set.
                    bounding = table()["claim_socket"][1] if name in KEEPERS else None
                    assert names_of(had["CapBnd"]) == (bounding or capabilities), name
                    assert names_of(had["CapInh"]) == names_of(had["CapAmb"]) == set(), name
                    assert (had["NoNewPrivs"], had["Seccomp"]) == ("1", "2"), name
                    if uid:
                        assert had["Groups"] == "", name
    finally:
        api.stop()
        for folder in mps_folder.folders(node.state_dir):
            mps_folder.end_all(folder)


def test_the_page_and_the_program_name_the_same_rights() -> None:
    expected = {
        "vcuda-node-agen": rights.AGENT,
        "fork_server": rights.FORK_SERVER,
        **rights.KEEPERS,
        **{module.rpartition(".")[2]: each for module, each in rights.OF.items()},
    }
    assert table() == {name: (each.uid, set(each.capabilities)) for name, each in expected.items()}


# What an attacker tries in the HTTP process. It prints what did not fail.
ATTEMPTS = """
import ctypes, os, socket, subprocess, sys
from vcuda_oci.system import settings_file
from vcuda_plugin.agent.http import http_process
from vcuda_plugin.agent.process import confine, rights

state = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)
confine.confine(rights.OF["vcuda_plugin.agent.http.http_process"])
settings = settings_file.parse(f'state-dir = "{state}"', "/c")
if not confine.only_files(*http_process.needed_files(settings, "n")):
    print("no Landlock")

def attempt(what, call):
    try:
        call()
        print(what)
    except OSError:
        pass

def syscall(*words):
    if libc.syscall(*words) < 0:
        raise OSError(ctypes.get_errno(), "")

attempt("reads a page", lambda: open(state + "/page").read())
attempt("writes its counts", lambda: open(state + "/http/counts", "w").write("1"))
attempt("listens", lambda: socket.create_server(("127.0.0.1", 0)).close())
attempt("reads shadow", lambda: open("/etc/shadow").read())
attempt("reads another's memory", lambda: open("/proc/1/mem", "rb").read(1))
attempt("writes a record", lambda: open(state + "/record", "w").write("1"))
attempt("overwrites a page", lambda: open(state + "/page", "r+").write("1"))
attempt("starts a program", lambda: subprocess.run(["/bin/true"]))
attempt("forks", os.fork)
attempt("connects to a server", lambda: socket.create_connection(("127.0.0.1", int(sys.argv[2]))))
attempt("reads packets", lambda: socket.socket(17, socket.SOCK_RAW))
attempt("ends a process", lambda: os.kill(os.getppid(), 0))
attempt("is root again", lambda: os.setresuid(0, 0, 0))
attempt("makes a namespace", lambda: syscall(272, 0x10000000))
attempt("mounts", lambda: syscall(165, b"none", b"/tmp", b"tmpfs", 0, None))
attempt("opens by handle", lambda: syscall(304, -1, None, 0))
"""


def test_a_taken_over_http_process_reads_pages_and_little_else(tmp_path: Path) -> None:
    (tmp_path / "http").mkdir()
    os.chown(tmp_path / "http", rights.HTTP_UID, rights.HTTP_UID)
    for name in ("page", "record"):
        (tmp_path / name).touch(0o600)
    with pytest.MonkeyPatch.context() as patch, open(os.devnull) as nothing:
        patch.setenv("PYTHONPATH", f"{ROOT}/oci:{ROOT}/runtime_hook:{ROOT}/plugin")
        import socket

        with socket.create_server(("127.0.0.1", 0)) as other:
            words = [sys.executable, "-c", ATTEMPTS, str(tmp_path), str(other.getsockname()[1])]
            tried = subprocess.run(
                words, stdin=nothing, capture_output=True, text=True, check=False
            )
    assert tried.returncode == 0, tried.stderr
    assert tried.stdout.splitlines() == ["reads a page", "writes its counts", "listens"]
