"""Commands on files that belong to root or to another user."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.files import mode_of
from support.host.engine_conf import EngineConf
from support.host.engine_files import found_below
from support.ledger.event_log import EventLog
from vcuda_hook.cli import main
from vcuda_hook.doctor.finding import UNKNOWN, Finding
from vcuda_hook.live import in_time
from vcuda_oci.ledger import events


@pytest.fixture
def conf(tmp_path: Path) -> EngineConf:
    return EngineConf(str(tmp_path))


@pytest.fixture
def open_folder() -> Iterator[str]:
    """A folder that every user may enter: pytest's own may be closed to all but root."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield folder


def test_configure_retains_mode_owner_and_link(conf: EngineConf) -> None:
    conf.write("{}", 0o640)
    os.chown(conf.path, 12, 34)
    link = f"{conf.folder}/link"
    os.symlink("engine/file", link)
    for words in (["docker"], ["docker", "--undo"]):
        assert conf.run(*words, path=link) == 0
        status = os.stat(conf.path)
        assert (mode_of(conf.path), status.st_uid, status.st_gid) == (0o640, 12, 34)
        assert os.readlink(link) == "engine/file"
    assert conf.read() == "{}"


def test_doctor_reports_a_file_that_only_root_may_read(
    open_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{open_folder}/programs")

    def as_nobody() -> list[dict[str, str]]:
        path = "/etc/docker/daemon.json"
        found_below(open_folder, {path: "{}"})
        os.chmod(f"{open_folder}{path}", 0o600)
        os.seteuid(65534)
        return [each.__dict__ for each in found_below(open_folder, {})]

    ((first, *_),) = in_time.ask([as_nobody], 30)
    path = f"{open_folder}/etc/docker/daemon.json"
    assert Finding(**first) == Finding(
        "engine-settings",
        UNKNOWN,
        f"cannot be read: [Errno 13] Permission denied: '{path}'",
        path,
        "run it as root",
    )


def test_events_of_another_user_are_refused_with_a_hint() -> None:
    with tempfile.TemporaryDirectory() as folder:
        tells = EventLog(folder)
        tells.record("claimed", "box")
        for open_to_all in (folder, tells.state_dir):
            os.chmod(open_to_all, 0o755)
        hears, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            status = 99
            try:
                os.dup2(write_end, 2)
                sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
                status = main.main(tells.words)
                sys.stderr.flush()
            finally:
                os._exit(status)
        os.close(write_end)
        with open(hears) as line:
            printed = line.read()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        path = f"{tells.state_dir}/{events.NAME}"
    assert (status, printed) == (
        1,
        f"vcuda: {path}: cannot be read: Permission denied; run it as root: events name the "
        "containers of all\n",
    )
