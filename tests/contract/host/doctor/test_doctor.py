"""`vcuda doctor` as a command: output, exit codes, and its documentation."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.files import ROOT, script, write
from support.ledger.samples import record
from support.wrapper.fake_runtime import FakeRuntime
from vcuda_hook.cli import main
from vcuda_hook.doctor import containers, driver, finding, report, state, upgrade
from vcuda_hook.doctor.finding import ERROR, INFO, OK, SEVERITIES, UNKNOWN, WARNING, Finding
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model import names
from vcuda_oci.pages import limits

SOFTGPU = ROOT + "/build/softgpu/softgpu"


@pytest.fixture
def root(tmp_path: Any) -> Iterator[str]:
    path = f"{tmp_path}/root"
    subprocess.run([SOFTGPU, "create", path, "--gpus", "1"], check=True, capture_output=True)
    yield path
    subprocess.run([SOFTGPU, "destroy", path], check=True, capture_output=True)


@pytest.fixture
def vcuda(root: str, tmp_path: Any, monkeypatch: Any) -> Callable[..., int]:
    """`vcuda doctor` of the groups that do not depend on the machine."""
    monkeypatch.setattr(report, "GROUPS", (driver, containers))
    settings = write(
        f"{tmp_path}/config.toml", f'driver-root = "{root}"\nstate-dir = "{tmp_path}/state"\n'
    )
    return lambda *words: main.main(["--config", settings, "doctor", *words])


def test_a_host_that_is_well_gets_one_line_a_check_and_0(
    vcuda: Any, root: str, tmp_path: Any, capfd: Any
) -> None:
    assert vcuda() == 0
    captured = capfd.readouterr()
    assert captured.err == ""
    assert captured.out == (
        f"ok       settings             {tmp_path}/config.toml: make sense\n"
        f"ok       driver               {root}: version 580.95.05\n"
        "ok       driver-versions      libraries and the kernel's driver are of one version\n"
        "ok       device-nodes         all 4 are there\n"
        "ok       dead-containers      none holds a share\n"
        "ok       shim-not-loaded      no program in a container goes round the shim\n"
        "ok       older-shim           no container has the shim of another version\n"
        "7 ok\n"
    )


def holds(tmp_path: Any, *ids: str) -> None:
    """Records of containers that are dead."""
    ledger, runtime = Ledger(f"{tmp_path}/state"), FakeRuntime(f"{tmp_path}/bin")
    with ledger:
        for id in ids:
            dead = record(id, runtime=runtime.words)
            ledger.write(dead, limits.page_of(dead))


def test_a_finding_is_a_line_with_its_hint_and_decides_the_exit_code(
    vcuda: Any, root: str, tmp_path: Any, capfd: Any
) -> None:
    holds(tmp_path, "a", "b")
    assert vcuda() == 1
    lines = capfd.readouterr().out.splitlines()
    assert lines[4:] == [
        "warning  dead-containers      a, b: dead, and shares not released; run 'vcuda release "
        "--all-dead'; the next claim that needs the room does it too",
        "ok       shim-not-loaded      no program in a container goes round the shim",
        "ok       older-shim           no container has the shim of another version",
        "1 warning, 6 ok",
    ]
    os.unlink(root + "/dev/nvidia-uvm")
    assert vcuda() == 2
    lines = capfd.readouterr().out.splitlines()
    assert lines[3] == (
        f"error    device-nodes         {root}/dev/nvidia-uvm: is not there, or no character "
        f"device; run 'chroot {root} nvidia-modprobe -c 0 -u' and create the container again"
    )
    assert lines[-1] == "1 error, 1 warning, 5 ok"


def test_json_is_the_same_findings(vcuda: Any, root: str, tmp_path: Any, capfd: Any) -> None:
    holds(tmp_path, "a")
    assert vcuda("--json") == 1
    printed = json.loads(capfd.readouterr().out)
    assert printed == [
        entry("settings", OK, "make sense", f"{tmp_path}/config.toml"),
        entry("driver", OK, "version 580.95.05", root),
        entry("driver-versions", OK, "libraries and the kernel's driver are of one version"),
        entry("device-nodes", OK, "all 4 are there"),
        entry(
            "dead-containers",
            WARNING,
            "dead, and its share not released",
            "a",
            "run 'vcuda release --all-dead'; the next claim that needs the room does it too",
        ),
        entry("shim-not-loaded", OK, "no program in a container goes round the shim"),
        entry("older-shim", OK, "no container has the shim of another version"),
    ]


def entry(name: str, severity: str, what: str, where: str = "", hint: str = "") -> dict[str, str]:
    return {"name": name, "severity": severity, "what": what, "where": where, "mend": hint}


def test_settings_that_make_no_sense_are_a_finding_and_no_end(
    vcuda: Any, tmp_path: Any, capfd: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(report, "GROUPS", ())
    settings = write(f"{tmp_path}/config.toml", '\nstate_dir = "/x"\n')
    assert vcuda("--json") == 2
    assert json.loads(capfd.readouterr().out) == [
        entry(
            "settings",
            ERROR,
            "unknown key 'state_dir': no container gets a share, and what follows is of the "
            "defaults",
            f"{settings}:2",
            "did you mean 'state-dir'?",
        )
    ]


def test_only_the_usual_settings_may_be_missing(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(report, "GROUPS", ())
    path = f"{tmp_path}/no/config.toml"
    (found,) = report.examine(path, 30)
    assert (found.severity, found.what.partition(":")[0]) == ("error", "no such file")
    monkeypatch.setattr(names, "DEFAULT_CONFIG", path)
    assert report.examine(path, 30) == [
        Finding("settings", OK, "not there, so the defaults count", path)
    ]


def test_a_runtime_that_hangs_makes_its_checks_unknown_and_no_other(
    vcuda: Any, tmp_path: Any
) -> None:
    holds(tmp_path, "a")
    script(f"{tmp_path}/bin/runc", "#!/bin/sh\nsleep 600\n")
    found = report.examine(f"{tmp_path}/config.toml", 10)
    assert [(each.name, each.severity, each.what) for each in found[3:]] == [
        ("device-nodes", OK, "all 4 are there"),
        ("dead-containers", UNKNOWN, "not checked: no answer in 10 s"),
        ("shim-not-loaded", UNKNOWN, "not checked: no answer in 10 s"),
        ("older-shim", UNKNOWN, "not checked: no answer in 10 s"),
    ]


def test_runtime_without_an_answer_for_a_live_container_is_reported(
    vcuda: Any, tmp_path: Any
) -> None:
    holds(tmp_path, "a")
    script(f"{tmp_path}/bin/runc", "#!/bin/sh\necho 'a loader misses a library' >&2\nexit 127\n")
    found = report.examine(f"{tmp_path}/config.toml", 30)
    assert found[-3:-1] == [
        Finding("dead-containers", OK, "none holds a share"),
        Finding(
            "shim-not-loaded",
            UNKNOWN,
            "its processes cannot be examined",
            "a",
            "run it as root on the host, where its runtime answers",
        ),
    ]


@pytest.mark.parametrize(
    ("severities", "code", "expected"),
    [
        ([OK, OK], 0, "2 ok"),
        ([OK, INFO, INFO], 0, "2 info, 1 ok"),
        ([UNKNOWN, OK], 1, "1 unknown, 1 ok"),
        ([WARNING, INFO, WARNING], 1, "2 warnings, 1 info"),
        (
            [ERROR, WARNING, UNKNOWN, INFO, OK, ERROR],
            2,
            "2 errors, 1 warning, 1 unknown, 1 info, 1 ok",
        ),
    ],
)
def test_the_worst_finding_decides_the_exit_code(
    severities: list[str], code: int, expected: str
) -> None:
    findings = [Finding("x", severity, "y") for severity in severities]
    assert (finding.exit_code(findings), report.summary(findings)) == (code, expected)


def test_a_hostile_name_stays_on_its_line() -> None:
    found = Finding("x", ERROR, "process 1 (a\nok  all is well)", "b\x1b[2J", "mend it")
    assert str(found) == "b?[2J: process 1 (a?ok  all is well); mend it"


def test_every_check_gives_a_complete_finding_on_a_real_host(
    root: str, tmp_path: Any, capfd: Any
) -> None:
    settings = write(
        f"{tmp_path}/config.toml", f'driver-root = "{root}"\nstate-dir = "{tmp_path}/state"\n'
    )
    code = main.main(["--config", settings, "doctor", "--json"])
    printed = json.loads(capfd.readouterr().out)
    assert list(dict.fromkeys(each["name"] for each in printed)) == list(report.CHECKS)
    assert {tuple(each) for each in printed} == {("name", "severity", "what", "where", "mend")}
    assert {each["severity"] for each in printed} <= set(SEVERITIES)
    # Every problem has a hint.
    assert [e for e in printed if e["severity"] in (ERROR, WARNING, INFO) and not e["mend"]] == []
    assert code == finding.exit_code(
        [Finding(e["name"], e["severity"], e["what"]) for e in printed]
    )
    assert not os.path.exists(f"{tmp_path}/state")


def test_the_documentation_names_every_check_and_no_other() -> None:
    with open(ROOT + "/docs/doctor.md") as file:
        rows = re.findall(r"(?m)^\| `([\w-]+)` \| (\w+) \| ", file.read())
    checks = [(name, worst) for name, worst in rows if name not in SEVERITIES]
    assert [name for name, _ in checks] == [*report.CHECKS, *upgrade.CHECKS]
    assert {worst for _, worst in checks} <= set(SEVERITIES)


def test_the_state_is_looked_at_where_the_settings_say(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(report, "GROUPS", (state,))
    settings = write(f"{tmp_path}/config.toml", f'state-dir = "{tmp_path}/elsewhere"\n')
    write(f"{tmp_path}/elsewhere/allocations/x.json", "{}")
    found = {each.name: each for each in report.examine(settings, 30)}
    assert found["records"].where == f"{tmp_path}/elsewhere/allocations/x.json"
