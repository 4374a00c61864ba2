"""What is written in C, compiled for arm64 as its packages are: in emulation the launcher and the
hooks do what those of amd64 do, by the same tests.

The programs that they exec are this machine's. The emulator's own thread keeps the procfs hook from
entering another mount namespace: the hook runs as far as that.
"""

from __future__ import annotations

import subprocess

import pytest

from contract.runtime.claim_socket.test_claim_socket_poststop import (  # noqa: F401
    ended,
    test_a_state_that_no_packet_holds_is_read_by_python,
    test_an_invalid_state_is_one_line_and_no_failure,
    test_another_instance_of_the_container_retains_its_share,
    test_hooks_of_other_kinds_start_python,
    test_the_claim_server_releases_the_share_and_twice_is_once,
    test_without_a_claim_server_python_does_it_with_the_same_state,
)

# The fixtures and the tests of amd64's, for the programs below.
from contract.runtime.launcher.test_delete import (  # noqa: F401
    node,
    test_a_container_of_the_same_name_in_another_place_keeps_its_share,
    test_a_delete_of_a_container_without_a_share_becomes_the_runtime,
    test_a_ledger_that_cannot_be_locked_is_one_line_and_no_failure,
    test_a_runtime_that_a_signal_ends_ends_the_launcher_alike,
    test_after_a_failed_delete_the_runtimes_state_decides,
    test_delete_releases_the_share_through_the_claim_socket,
)
from contract.runtime.launcher.test_launcher import (  # noqa: F401
    test_a_config_that_is_no_file_is_left_to_the_runtime,
    test_a_config_that_was_not_read_whole_goes_to_python,
    test_a_creation_with_a_config_that_may_ask_goes_to_python,
    test_a_request_counts_however_much_stands_before_it,
    test_a_request_is_found_however_it_is_written,
    test_a_setting_is_read_as_the_toml_that_it_is,
    test_every_other_call_reaches_the_runtime_unchanged,
    test_without_settings_runc_is_the_runtime,
)
from contract.runtime.launcher.test_launcher_errors import (  # noqa: F401
    test_a_runtime_that_is_not_there_is_one_line,
    test_an_error_of_the_launcher_is_the_logs_last_line,
)
from support.files import ROOT
from support.host import arm64
from support.wrapper.installed_wrapper import Installed
from support.wrapper.launcher import Launcher

PROCFS_HOOK = "build/arm64/lib/vcuda-procfs-hook"


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    arm64.make(PROCFS_HOOK, "build/arm64/musl/version")


@pytest.fixture(scope="module")
def built(compiled: None, tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    return Launcher(tmp_path_factory.mktemp("launcher"), "arm64")


@pytest.fixture(scope="module")
def installed(compiled: None, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed.counting_python_starts(str(tmp_path_factory.mktemp("prefix")), "arm64")


def test_the_programs_are_arm64_and_this_machine_runs_none_of_them(
    built: Launcher, installed: Installed
) -> None:
    for place in (installed.launcher, installed.hook, built.installed.launcher):
        with open(place + ".arm64", "rb") as file:
            head = file.read(20)
        assert (head[:5], head[18:]) == (b"\x7fELF\x02", b"\xb7\x00")
    with pytest.raises(OSError, match="Exec format error"):
        subprocess.run([installed.launcher + ".arm64"])


def procfs_hook(state: str) -> tuple[int, str]:
    words = [arm64.EMULATOR, PROCFS_HOOK, "/", "/tmp", "tty"]
    ran = subprocess.run(words, cwd=ROOT, input=state, capture_output=True, text=True)
    return ran.returncode, ran.stderr.partition(";")[0]


@pytest.mark.parametrize("state", ["", "{}", '{"pid": 1}', '{"a": {"pid": 5}}', '{"pid": 7e3}'])
def test_the_procfs_hook_ends_where_a_state_names_no_process(state: str) -> None:
    line = "vcuda-procfs-hook: the container's state on stdin: names no process"
    assert procfs_hook(state) == (1, line)


def test_the_procfs_hook_fails_for_an_ended_process() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    place = f"/proc/{gone.pid}/ns/mnt"
    assert procfs_hook(f'{{"pid": {gone.pid}}}') == (
        1,
        f"vcuda-procfs-hook: {place}: No such file or directory",
    )


def test_on_its_own_machine_all_but_the_software_gpu_is_compiled() -> None:
    """By that machine's own compilers: no cross compiler is asked for."""
    words = ["make", "--no-print-directory", "-n", "-B", "compile"]
    printed = {
        machine: subprocess.run(
            [*words, f"MACHINE={machine}"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        for machine in ("x86_64", "aarch64")
    }
    assert "build/softgpu/" in printed["x86_64"]
    assert "softgpu" not in printed["aarch64"]
    assert "aarch64-linux-gnu" not in printed["aarch64"]
    for made in (
        "build/lib/libvcuda.so.1",
        "build/bin/vcuda-container-runtime",
        "build/man/vcuda.1",
    ):
        assert made in printed["aarch64"]
