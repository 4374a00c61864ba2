"""`vcuda configure podman|crio --hooks`: the file in hooks.d, and undo."""

from __future__ import annotations

import json
import os
from typing import Any

import jsonschema
import pytest

from support.files import mode_of, script, write
from vcuda_hook.cli import main
from vcuda_oci.start import apply_share

# Version 1.0.0 of oci-hooks(5).
STAGES = ("precreate", "prestart", "createRuntime", "createContainer", "startContainer")
TEXTS = {"type": "array", "items": {"type": "string"}}
HOOK = {
    "path": {"type": "string", "pattern": "^/"},
    "args": TEXTS,
    "env": {"type": "array", "items": {"type": "string", "pattern": "^[^=]+="}},
    "timeout": {"type": "integer", "minimum": 1},
}
WHEN = {
    "always": {"type": "boolean"},
    "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
    "commands": TEXTS,
    "hasBindMounts": {"type": "boolean"},
}


def closed(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


SCHEMA = closed(
    {
        "version": {"const": "1.0.0"},
        "hook": closed(HOOK, "path"),
        "when": {**closed(WHEN), "minProperties": 1},
        "stages": {
            "type": "array",
            "minItems": 1,
            "items": {"enum": [*STAGES, "poststart", "poststop"]},
        },
    },
    "version",
    "hook",
    "when",
    "stages",
)


class HooksFolder:
    """A hooks.d, settings of our own, and an installed hook."""

    def __init__(self, folder: str) -> None:
        self.folder, self.settings = folder, write(f"{folder}/vcuda/config.toml", "")
        self.path = f"{folder}/oci/hooks.d/vcuda.json"
        self.hook = script(f"{folder}/bin/vcuda-container-hook", "")

    def run(self, engine: str, *words: str) -> int:
        where = ["--hooks", "--config", self.path]
        return main.main(["--config", self.settings, "configure", engine, *where, *words])

    def read(self) -> Any:
        with open(self.path) as file:
            tree = json.load(file)
        jsonschema.validate(tree, SCHEMA)
        return tree

    def leftovers(self) -> list[str]:
        return sorted(os.listdir(self.folder))


@pytest.fixture
def hooks(tmp_path: Any, monkeypatch: Any) -> HooksFolder:
    made = HooksFolder(str(tmp_path))
    monkeypatch.setattr(apply_share, "HOOK", made.hook)
    return made


@pytest.mark.parametrize("engine", ["crio", "podman"])
def test_the_hook_is_called_for_both_ends_of_a_container_that_asks(
    hooks: HooksFolder, engine: str
) -> None:
    assert hooks.run(engine) == 0
    assert mode_of(hooks.path) == 0o644
    once = hooks.read()
    assert once == {
        "version": "1.0.0",
        "hook": {
            "path": hooks.hook,
            "args": [hooks.hook, "--config", hooks.settings, "byStatus"],
            "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "timeout": 30,
        },
        "when": {"annotations": {r"^vcuda\.io/": ".*"}},
        "stages": ["createRuntime", "poststop"],
    }
    assert hooks.run(engine, "--always") == 0
    assert hooks.read() == {**once, "when": {"always": True}}
    assert hooks.run(engine) == 0
    assert hooks.read() == once
    assert hooks.run(engine, "--undo") == 0
    assert hooks.leftovers() == ["bin", "vcuda"]


def test_the_file_is_one_for_both_engines(hooks: HooksFolder, capsys: Any) -> None:
    assert hooks.run("podman") == 0
    capsys.readouterr()
    assert hooks.run("crio") == 0
    assert capsys.readouterr().out.splitlines()[0] == f"nothing to change in {hooks.path}"
    assert hooks.run("crio", "--undo") == 0
    assert hooks.leftovers() == ["bin", "vcuda"]


def test_a_dry_run_shows_the_file_and_makes_none(hooks: HooksFolder, capsys: Any) -> None:
    assert hooks.run("podman", "--dry-run") == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[:2] == [f"--- {hooks.path}", f"+++ {hooks.path} (new)"]
    assert '+  "version": "1.0.0",' in printed
    assert hooks.leftovers() == ["bin", "vcuda"]


def test_a_file_of_another_program_stays(hooks: HooksFolder, capsys: Any) -> None:
    text = '{"version": "1.0.0", "hook": {"path": "/opt/mine"}}'
    write(hooks.path, text)
    assert hooks.run("podman") == 1
    assert capsys.readouterr().err == (
        f"vcuda: {hooks.path}: hook exists with another value; remove it, and run this again\n"
    )
    assert open(hooks.path).read() == text  # noqa: SIM115


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["docker"], "--hooks: docker reads no hooks.d; leave it out; these have one: crio, "),
        (["podman", "--default"], "--default: is an option of runtimes; leave it out, or --hooks"),
        (
            ["crio", "--runtime-path", "/x"],
            "--runtime-path: is an option of runtimes; leave it out, ",
        ),
    ],
)
def test_options_of_the_other_entry_point_are_refused(
    hooks: HooksFolder, capsys: Any, words: list[str], line: str
) -> None:
    assert hooks.run(*words) == 1
    assert capsys.readouterr().err.startswith(f"vcuda: {line}")
    assert hooks.leftovers() == ["bin", "vcuda"]


def test_always_without_hooks_is_refused(hooks: HooksFolder, capsys: Any) -> None:
    assert main.main(["--config", hooks.settings, "configure", "podman", "--always"]) == 1
    assert capsys.readouterr().err == "vcuda: --always: is an option of hooks; use --hooks too\n"


def test_a_hook_that_is_not_installed_is_named(hooks: HooksFolder, capsys: Any) -> None:
    os.unlink(hooks.hook)
    assert hooks.run("podman") == 1
    assert capsys.readouterr().err.startswith(
        f"vcuda: {hooks.hook}: is not a program; install vcuda"
    )
    assert not os.path.exists(hooks.path)
