"""The claim socket releases an ended container's share without starting Python."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from support.ledger.samples import record, shares_of
from support.wrapper.installed_wrapper import Installed
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.pages import limits

STOPPED = {"ociVersion": "1.0.2", "id": "box", "status": "stopped", "bundle": "/b"}


class Ended:
    """A container `box` that holds a share, and a neighbour `other`."""

    def __init__(self, installed: Installed, state_dir: str) -> None:
        self.installed, self.ledger = installed, Ledger(state_dir)
        installed.configure(state_dir=state_dir)
        for allocation in (record("box"), record("other")):
            with self.ledger:
                self.ledger.write(allocation, limits.page_of(allocation))

    def hook(self, *words: str, state: bytes = b"", **options: Any) -> tuple[int, str]:
        """Exit status and stderr."""
        options.setdefault("input", state or json.dumps(STOPPED).encode())
        ran = subprocess.run([self.installed.hook, *words], capture_output=True, **options)
        return ran.returncode, ran.stderr.decode()

    def python_starts(self) -> int:
        return self.installed.python_starts()

    def holders(self) -> list[str]:
        return sorted(shares_of(self.ledger))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed.counting_python_starts(str(tmp_path_factory.mktemp("prefix")))


@pytest.fixture
def ended(installed: Installed, tmp_path: Any) -> Iterator[Ended]:
    yield Ended(installed, f"{tmp_path}/state")
    installed.forget_python_starts()


@pytest.mark.parametrize("words", [["poststop"], ["poststop", "box"]])
def test_the_claim_server_releases_the_share_and_twice_is_once(
    ended: Ended, words: list[str]
) -> None:
    with ended.installed.claim_server():
        for _ in range(2):
            assert ended.hook("--config", ended.installed.settings, *words) == (0, "")
            assert ended.holders() == ["other"]
    assert ended.python_starts() == 0


def test_without_a_claim_server_python_does_it_with_the_same_state(ended: Ended) -> None:
    assert ended.hook("poststop", "box") == (0, "")
    assert (ended.holders(), ended.python_starts()) == (["other"], 1)


def test_another_instance_of_the_container_retains_its_share(ended: Ended) -> None:
    state = json.dumps({**STOPPED, "id": "box2"}).encode()
    with ended.installed.claim_server():
        assert ended.hook("poststop", "box", state=state) == (0, "")
    assert (ended.holders(), ended.python_starts()) == (["box", "other"], 0)


@pytest.mark.parametrize("state", [b"garbage", b"[]", b'{"id": 5}', b"\xff", b"[" * 9999])
def test_an_invalid_state_is_one_line_and_no_failure(ended: Ended, state: bytes) -> None:
    line = "vcuda-container-hook: standard input: not a container's state; "
    with ended.installed.claim_server():
        assert ended.hook("poststop", "box", state=state) == (
            0,
            line + "let the runtime call this hook (allocation box)\n",
        )
    assert (ended.holders(), ended.python_starts()) == (["box", "other"], 0)


def test_a_state_that_no_packet_holds_is_read_by_python(ended: Ended) -> None:
    annotations = {"long": "x" * 200_000}
    state = json.dumps({**STOPPED, "annotations": annotations}).encode()
    with ended.installed.claim_server():
        assert ended.hook("poststop", "box", state=state) == (0, "")
    assert (ended.holders(), ended.python_starts()) == (["other"], 1)


def test_a_state_with_a_nul_is_pythons_to_refuse(ended: Ended) -> None:
    state = json.dumps(STOPPED).encode() + b"\0"
    with ended.installed.claim_server():
        status, stderr = ended.hook("poststop", "box", state=state)
    assert (status, stderr.count("\n"), ended.python_starts()) == (0, 1, 1)
    assert ended.holders() == ["box", "other"]


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_a_caller_that_closed_a_stream_gets_what_python_makes_of_it(
    ended: Ended, closed: str
) -> None:
    command = ["sh", "-c", f'exec "$0" poststop box {closed}', ended.installed.hook]
    with ended.installed.claim_server():
        ran = subprocess.run(command, input=json.dumps(STOPPED).encode(), capture_output=True)
    assert (ran.returncode, ended.python_starts()) == (0, 1)
    assert ended.holders() == (["box", "other"] if closed == "<&-" else ["other"])


@pytest.mark.parametrize("kind", ["createRuntime", "poststart"])
def test_hooks_of_other_kinds_start_python(ended: Ended, kind: str) -> None:
    with ended.installed.claim_server():
        status, _ = ended.hook(kind)
    assert (status != 0, ended.python_starts()) == (True, 1)
    assert ended.holders() == ["box", "other"]
