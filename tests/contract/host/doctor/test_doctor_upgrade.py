"""`vcuda doctor --upgrade`: each thing that another version would change."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from support.files import write
from support.ledger.samples import record
from support.wrapper.fake_runtime import FakeRuntime
from vcuda_hook.cli import main
from vcuda_hook.doctor import upgrade
from vcuda_hook.doctor.finding import ERROR, INFO, OK, UNKNOWN, WARNING
from vcuda_hook.engines import docker
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model import names
from vcuda_oci.pages import limits
from vcuda_oci.system import settings_file

DEFAULTS = settings_file._DEFAULTS
NEW_SHIM, OLD_SHIM = "libvcuda-00000000000000aa.so", "libvcuda-00000000000000bb.so"


def lines(text: str, former: Any = DEFAULTS) -> list[tuple[str, str, str, str]]:
    found = upgrade.settings_lines(text, "/c", former)
    return [(each.severity, each.where, each.what, each.hint) for each in found]


def test_each_line_that_the_new_version_refuses_is_an_error() -> None:
    text = 'runtime = "runc"\nplacment = "spread"\n# a comment\nbypass = "kill"\n'
    found = lines(text)
    assert [(severity, where) for severity, where, _, _ in found] == [
        (ERROR, "/c:2"),
        (ERROR, "/c:4"),
    ]
    assert found[0][2] == "unknown key 'placment'"
    assert "placement" in found[0][3]
    ((severity, where, what, _),) = lines('bypass = "stop"\nbypass = "stop"\n')
    assert (severity, where, what) == (ERROR, "/c:2", "'bypass' is set twice")


def test_a_default_that_changes_is_named_unless_the_file_sets_it() -> None:
    former = {**DEFAULTS, "placement": "spread", "bypass": "stop", "a-former-setting": "1"}
    assert lines('bypass = "report"\n', former) == [
        (
            WARNING,
            "/c",
            'the default of placement changes from "spread" to "binpack"',
            'to keep it, write placement = "spread"',
        )
    ]
    assert lines("")[0][0] == OK
    assert lines("", None)[0][0] == UNKNOWN


def test_refused_lines_do_not_hide_where_the_records_are(tmp_path: Path) -> None:
    path = write(f"{tmp_path}/config.toml", 'old-key = "1"\nstate-dir = "/somewhere"\n')
    assert upgrade.accepted(path).state_dir == "/somewhere"


def test_file_of_another_user_names_no_state_folder(tmp_path: Path) -> None:
    """Runtimes that its records name would be run as root."""
    path = write(f"{tmp_path}/config.toml", 'state-dir = "/somewhere"\n')
    os.chmod(path, 0o666)
    assert upgrade.accepted(path).state_dir == DEFAULTS["state-dir"]


def test_key_that_is_set_twice_counts_once(tmp_path: Path) -> None:
    path = write(f"{tmp_path}/config.toml", 'state-dir = "/a"\nold = "1"\nstate-dir = "/b"\n')
    assert upgrade.accepted(path).state_dir == "/a"
    found = lines(Path(path).read_text())
    assert [where for _, where, _, _ in found] == ["/c:2", "/c:3"]


@pytest.mark.parametrize("other", ["--bundle=/x", "--dry-run"])
def test_upgrade_and_bundle_exclude_each_other(other: str, capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(["doctor", "--upgrade", other])
    assert ended.value.code == 2
    assert "--bundle" in capsys.readouterr().err


def test_records_and_pages_that_the_new_version_cannot_read_are_errors(
    tmp_path: Path, capfd: Any
) -> None:
    ledger, runtime = Ledger(f"{tmp_path}/state"), FakeRuntime(f"{tmp_path}/bin")
    with ledger:
        for id in ("good", "page", "record"):
            holding = record(id, runtime=runtime.words)
            ledger.write(holding, limits.page_of(holding))
    page = f"{ledger.containers}/page/limits"
    with open(page, "r+b") as file:
        os.pwrite(file.fileno(), struct.pack("=I", 0), 4)
    write(f"{ledger.allocations}/record.json", '{"version": 99}')
    settings = write(f"{tmp_path}/config.toml", f'state-dir = "{tmp_path}/state"\n')
    code = main.main(["--config", settings, "doctor", "--upgrade", "--json"])
    found = [each for each in json.loads(capfd.readouterr().out) if each["severity"] == "error"]
    assert [(each["name"], each["where"]) for each in found] == [
        ("upgrade-records", f"{ledger.allocations}/record.json"),
        ("upgrade-records", "page"),
    ]
    assert "limits page has version 0" in found[1]["what"]
    assert code == 2


def test_an_engine_file_that_would_be_written_differently_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, engine = f"{tmp_path}/config.toml", f"{tmp_path}/daemon.json"
    program = write(f"{tmp_path}/usr/bin/{names.PROGRAM}", "", 0o755)
    words = ["--config", engine, "--runtime-path", program, "--default"]
    write(settings, "")
    assert main.main(["--config", settings, "configure", "docker", *words]) == 0
    before = Path(engine).read_text()
    (same,) = upgrade.engines(settings, f"{tmp_path}/usr")
    assert (same.severity, same.what) == (OK, "what 'vcuda configure' wrote stays as it is")

    plan = docker.plan

    def planned(tree: Any, options: Any) -> Any:
        made = plan(tree, options)
        made.settings.append((("features", "cdi"), True))
        return made

    monkeypatch.setattr(docker, "plan", planned)
    (found,) = upgrade.engines(settings, f"{tmp_path}/usr")
    assert (found.severity, found.where) == (INFO, engine)
    assert found.what.startswith("'vcuda configure docker' would now write it differently")
    assert Path(engine).read_text() == before


def test_units_that_change_are_named_and_those_that_are_hidden_by_others(tmp_path: Path) -> None:
    def unit(prefix: str, name: str, text: str) -> None:
        write(f"{tmp_path}/{prefix}/lib/systemd/system/{name}", text)

    for name in ("same.service", "changed.service", "hidden.service"):
        unit("old", name, "a")
    unit("new", "same.service", "a")
    for name in ("changed.service", "fresh.mount", "hidden.service"):
        unit("new", name, "b")
    write(f"{tmp_path}/etc/hidden.service", "mine")
    found = upgrade.units(f"{tmp_path}/old", f"{tmp_path}/new", f"{tmp_path}/etc")
    assert [(each.severity, os.path.basename(each.where), each.what) for each in found] == [
        (INFO, "changed.service", "changes"),
        (INFO, "fresh.mount", "is new"),
        (WARNING, "hidden.service", "hides the package's unit, which changes"),
    ]
    (none,) = upgrade.units(f"{tmp_path}/new", f"{tmp_path}/new", f"{tmp_path}/etc")
    assert none.severity == OK


def test_a_specification_outside_of_the_packages_care_is_a_warning(tmp_path: Path) -> None:
    for name, shim in (("mine", OLD_SHIM), ("new", NEW_SHIM)):
        mount = {"hostPath": f"/usr/lib/vcuda/{shim}", "containerPath": "/x"}
        write(f"{tmp_path}/{name}.json", json.dumps({"kind": "vcuda.io/gpu", "mounts": [mount]}))
    (found,) = upgrade.specifications([str(tmp_path)], NEW_SHIM)
    assert (found.severity, found.where) == (WARNING, f"{tmp_path}/mine.json")
    assert found.hint.endswith(f"'vcuda cdi generate --output {tmp_path}/mine.json'")
