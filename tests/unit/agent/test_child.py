"""A forked child of the agent ends like a separate program, and the agent sees each kind of end."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system import settings_file
from vcuda_plugin.agent.process import child

SETTINGS = settings_file.parse('placement = "spread"', "/c")
MODULE = "support.agent.ending_child"


@pytest.fixture
def forked() -> Iterator[None]:
    with child.forked(SETTINGS, MODULE):
        yield


def ends(how: str) -> tuple[int, bytes]:
    """Run a child that ends in this way; return its status and output."""

    async def end() -> tuple[int, bytes]:
        async with child.running(MODULE, how) as (process, said):
            heard = await said.read()
            return await process.wait(), heard

    return asyncio.run(end())


@pytest.mark.parametrize(
    ("how", "status", "said", "complaint"),
    [
        ("returns", 0, b"here\n", ""),
        ("knows its settings", 0, b"spread\n", ""),
        ("exits", 3, b"here\n", ""),
        ("complains", 1, b"here\n", "it: is odd\n"),
        ("fails", 1, b"here\n", "ValueError: odd\n"),
        ("is killed", -signal.SIGKILL, b"", ""),
    ],
)
def test_a_child_ends_as_a_program_of_its_own_would(
    how: str,
    status: int,
    said: bytes,
    complaint: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with child.forked(SETTINGS, MODULE):
        assert ends(how) == (status, said)
    assert capfd.readouterr().err.endswith(complaint)


def test_a_child_receives_what_is_sent(forked: None) -> None:
    async def talk() -> bytes:
        async with child.running(MODULE, "echoes") as (process, said):
            process.stdin.write(b"go on\n")
            return await said.read()

    assert asyncio.run(talk()) == b"go on\n"


def test_a_child_that_just_ended_is_not_reported_as_unknown(
    forked: None, caplog: pytest.LogCaptureFixture
) -> None:
    async def one_that_dies() -> int | None:
        async with child.running(MODULE, "waits") as (process, said):
            pid = int(await said.readline())
            os.kill(pid, signal.SIGKILL)
            while os.path.exists(f"/proc/{pid}"):
                pass  # and the loop has no turn
        return process.returncode

    assert asyncio.run(one_that_dies()) == -signal.SIGKILL
    assert caplog.messages == []


def test_a_child_ends_with_its_block_by_force_if_need_be(
    forked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "_END_SECONDS", 0.2)

    async def end(how: str) -> int | None:
        async with child.running(MODULE, how) as (process, said):
            await said.readline()
        return process.returncode

    assert asyncio.run(end("waits")) == -signal.SIGTERM
    assert asyncio.run(end("heeds nothing")) == -signal.SIGKILL


def test_a_child_terminated_at_its_start_ends(
    forked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "_END_SECONDS", 3)

    async def begin_and_end() -> int | None:
        async with child.running(MODULE, "waits") as (process, _):
            pass
        return process.returncode

    assert {asyncio.run(begin_and_end()) for _ in range(10)} == {-signal.SIGTERM}


def test_killing_the_fork_server_ends_all_children(
    forked: None,
) -> None:
    async def kill() -> tuple[str, int]:
        async with child.running(MODULE, "waits") as (process, said):
            pid = int(await said.readline())
            with open(f"/proc/{pid}/stat") as stat:
                server = int(stat.read().rpartition(")")[2].split()[1])
            os.kill(server, signal.SIGKILL)
            with pytest.raises(VcudaError) as error:
                await child.watch()
            await process.wait()
            for _ in range(1000):
                if not os.path.exists(f"/proc/{pid}"):
                    break
                await asyncio.sleep(0.01)
            else:
                os.kill(pid, signal.SIGKILL)
                raise AssertionError("it outlives the fork server")
        async with child.running(MODULE, "waits") as (process, _):
            return str(error.value), await process.wait()

    assert asyncio.run(kill()) == (
        "fork server: has ended; see the kernel's log for what killed it",
        1,
    )


def test_child_reports_its_missing_package(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def end() -> int:
        async with child.running("unit.no_such_child") as (process, _):
            return await process.wait()

    with child.forked(SETTINGS, "unit.no_such_child"):
        assert asyncio.run(end()) == 1
    assert "No module named 'unit.no_such_child'" in capfd.readouterr().err
