"""`vcuda doctor --bundle`: what is in the archive, and that no secret is."""

from __future__ import annotations

import json
import os
import stat
import tarfile
import time
from typing import Any

import pytest

from contract.host.cli.test_cli_ledger import Node, node_with
from support.files import write
from support.ledger.samples import record
from vcuda_hook.doctor import bundle, redact, report, state
from vcuda_oci.ledger import events

SECRET = "c0rrect-horse-battery"
PARTS = [
    "about.json", "doctor.json", "settings.toml", "gpus.json", "records.json", "turns.json",
    "events.jsonl", "mounts.json", "services.log", "kernel.log",
]  # fmt: skip


@pytest.fixture
def node(tmp_path: Any, monkeypatch: Any) -> Node:
    """With a broken record, and a secret in the settings, an event and the journal."""
    node = node_with(tmp_path, monkeypatch)
    monkeypatch.setattr(report, "GROUPS", (state,))
    node.add_record(record("box", engine={"name": "web"}))
    node.breaks("half")
    with open(node.config, "a") as file:
        file.write(f"# token = {SECRET}\n")
    text = f"unknown request; AWS_SECRET={SECRET} VCUDA_CORE=30 https://me:{SECRET}@a.example/b"
    events.record(node.ledger.state_dir, "p", events.REFUSED, "box", text)
    write(f"{tmp_path}/path/journalctl", f"#!/bin/sh\necho Authorization: Bearer {SECRET}\n", 0o755)
    write(f"{tmp_path}/path/dmesg", "#!/bin/sh\necho 'NVRM: Xid 79'; echo 'other'\n", 0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/path:{os.environ['PATH']}")
    return node


def contents(path: str) -> dict[str, str]:
    with tarfile.open(path) as archive:
        found = {}
        for entry in archive.getmembers():
            file = archive.extractfile(entry)
            assert file is not None and stat.S_IMODE(entry.mode) == 0o600
            found[entry.name.removeprefix("vcuda-bundle/")] = file.read().decode()
    return found


def test_the_archive_has_what_is_listed_and_no_secret(
    node: Node, tmp_path: Any, capfd: Any
) -> None:
    path = f"{tmp_path}/report.tar.gz"
    assert node.vcuda("doctor", "--bundle", path) == 0
    heading, *lines, last = capfd.readouterr().out.splitlines()
    assert heading.split() == ["PART", "BYTES", "WHAT"]
    assert last == f"written: {path}; read it before you pass it on"
    found = contents(path)
    assert {line.split()[0]: int(line.split()[1]) for line in lines} == {
        name: len(text.encode()) for name, text in found.items()
    }
    assert list(found) == PARTS
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert SECRET not in json.dumps(found)
    assert "VCUDA_CORE=30" in found["events.jsonl"] and redact.REMOVED in found["events.jsonl"]
    assert found["services.log"] == "Authorization: <removed>\n"
    assert found["kernel.log"] == "NVRM: Xid 79\n"
    records = json.loads(found["records.json"])
    assert [each["record"]["id"] for each in records["records"]] == ["box"]
    assert [os.path.basename(each["path"]) for each in records["broken"]] == ["half.json"]
    assert [gpu["uuid"] for gpu in json.loads(found["gpus.json"])["gpus"]] == ["GPU-0", "GPU-1"]
    assert "records" in {each["name"] for each in json.loads(found["doctor.json"])}


def test_a_dry_run_lists_and_writes_nothing(node: Node, tmp_path: Any, capfd: Any) -> None:
    before = sorted(os.listdir(tmp_path))
    assert node.vcuda("doctor", "--dry-run", "--json") == 0
    assert [part["name"] for part in json.loads(capfd.readouterr().out)] == PARTS
    path = f"{tmp_path}/report.tar.gz"
    assert node.vcuda("doctor", "--bundle", path, "--dry-run") == 0
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("there", ["file", "link", "no folder"])
def test_no_other_file_is_written_over(node: Node, tmp_path: Any, capfd: Any, there: str) -> None:
    path = f"{tmp_path}/report"
    victim = write(f"{tmp_path}/victim", "whole")
    if there == "file":
        write(path, "whole")
    elif there == "link":
        os.symlink(victim, path)
    else:
        path = f"{tmp_path}/nowhere/report"
    assert node.vcuda("doctor", "--bundle", path) == 1
    line = capfd.readouterr().err
    assert line.startswith(f"vcuda: {path}: cannot be created: ") and "name a new file" in line
    with open(victim) as file:
        assert file.read() == "whole"


def test_a_part_that_hangs_is_named_and_the_others_are_there(
    node: Node, tmp_path: Any, monkeypatch: Any, capfd: Any
) -> None:
    write(f"{tmp_path}/path/journalctl", "#!/bin/sh\nexec sleep 60\n", 0o755)
    write(f"{tmp_path}/path/dmesg", "#!/bin/sh\nkill -9 $$\n", 0o755)
    monkeypatch.setattr(bundle, "_COMMAND_SECONDS", 0.5)
    path = f"{tmp_path}/report"
    assert node.vcuda("doctor", "--bundle", path) == 0
    found = contents(path)
    assert "timed out" in json.loads(found["services.log"])["unknown"]
    assert found["kernel.log"] == "" and "box" in found["records.json"]


def test_a_part_that_takes_too_long_to_redact_is_left_out(
    node: Node, tmp_path: Any, monkeypatch: Any
) -> None:
    def endless(text: str) -> str:
        while "NVRM" in text:
            time.sleep(0.1)
        return text

    monkeypatch.setattr(redact, "text", endless)
    monkeypatch.setattr(bundle, "SECONDS", 1.0)
    path = f"{tmp_path}/report"
    assert node.vcuda("doctor", "--bundle", path) == 0
    found = contents(path)
    assert json.loads(found["kernel.log"]) == {"unknown": "no answer in 2 s"}
    assert "box" in found["records.json"]


def test_half_a_file_is_removed_from_its_folder_alone(
    node: Node, tmp_path: Any, monkeypatch: Any, capfd: Any
) -> None:
    """The folder is replaced by a link to another one while the disk is full."""
    mine, other = tmp_path / "mine", tmp_path / "other"
    mine.mkdir()
    other.mkdir()
    victim = write(f"{other}/report", "whole")
    real = os.open

    def opened(path: Any, flags: int, *more: Any, **at: Any) -> int:
        fd = real(path, flags, *more, **at)
        if path == "report":
            os.close(fd)
            fd = real("/dev/full", os.O_WRONLY)
            mine.rename(tmp_path / "moved")
            mine.symlink_to(other)
        return fd

    monkeypatch.setattr(os, "open", opened)
    assert node.vcuda("doctor", "--bundle", f"{mine}/report") == 1
    assert f"vcuda: {mine}/report: cannot be written: No space left" in capfd.readouterr().err
    with open(victim) as file:
        assert file.read() == "whole"
    assert os.listdir(tmp_path / "moved") == []


def test_many_events_are_cut_at_a_whole_line(node: Node, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(bundle, "_MOST_BYTES", 4096)
    for number in range(100):
        events.record(node.ledger.state_dir, "p", "claimed", "box", f"number {number}")
    path = f"{tmp_path}/report"
    assert node.vcuda("doctor", "--bundle", path) == 0
    found = contents(path)
    lines = [json.loads(line) for line in found["events.jsonl"].splitlines()]
    assert lines[-1]["text"] == "number 99" and 10 < len(lines) < 60
    assert all(len(text.encode()) <= 4096 for text in found.values())


@pytest.mark.parametrize(
    "text",
    [
        f"token={SECRET}",
        f"HF_TOKEN: '{SECRET}'",
        f'"client_secret": "{SECRET}"',
        f"--password {SECRET}".replace(" ", "="),
        f"Authorization: Basic {SECRET}",
        f"https://user:{SECRET}@registry.example/x",
        f"DATABASE_URL={SECRET}",
        f"PGPASS='{SECRET} and more'",
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}\ncut",
        f"hf_abcdef{SECRET}",
        f"eyJhbGciOi.eyJ{SECRET}.x",
    ],
)
def test_a_secret_of_each_form_is_removed(text: str) -> None:
    assert SECRET not in redact.text(f"before {text} after")
    assert SECRET not in json.dumps(redact.tree({"a": [{"b": text}]}))


def test_what_a_maintainer_needs_stays() -> None:
    kept = "box: GPU-0 at /run/vcuda/x, VCUDA_CORE=30 NVIDIA_VISIBLE_DEVICES=all, key = value"
    assert redact.text(kept) == kept
    tree = {"env": {"A": "b"}, "annotations": {"c": "d"}, "password": 5, "image": "a/b:1"}
    assert redact.tree(tree) == {
        "env": redact.REMOVED,
        "annotations": redact.REMOVED,
        "password": redact.REMOVED,
        "image": "a/b:1",
    }


@pytest.mark.parametrize(
    "text",
    [
        f"--password {SECRET}",
        f"Authorization: token {SECRET}",
        f"Cookie: session={SECRET}",
        f'{{\\"password\\": \\"{SECRET}\\"}}',
        f'"password": "a\\"{SECRET}"',
        f"https://u:a/{SECRET}@host/path",
        f"https://u:a@{SECRET}@host/path",
        f"github_pat_{SECRET}",
        f"nvapi-{SECRET}",
    ],
)
def test_a_known_form_of_a_secret_is_removed(text: str) -> None:
    assert SECRET not in redact.text(text)


def test_release_and_settings_are_read_through_links(node: Node, tmp_path: Any, capfd: Any) -> None:
    """A ConfigMap's settings are a link, and so is /etc/os-release of Debian."""
    os.rename(node.config, f"{node.config}.real")
    os.symlink(f"{node.config}.real", node.config)
    path = f"{tmp_path}/report.tar.gz"
    assert node.vcuda("doctor", "--bundle", path) == 0
    found = contents(path)
    assert json.loads(found["about.json"])["release"]
    assert "unknown" not in found["settings.toml"]
