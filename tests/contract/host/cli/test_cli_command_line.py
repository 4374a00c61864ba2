"""The command line of `vcuda`: accepted and refused arguments, exit codes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import pytest

from support.files import ROOT, write
from vcuda_hook.cli import main
from vcuda_hook.run import command
from vcuda_oci.start import apply_share

PROJECT = ROOT + "/pyproject.toml"
VERBS = [
    "run", "ps", "inspect", "gpus", "release", "configure", "cdi", "doctor", "demo",
    "limit", "top", "events", "why", "completion", "help", "version",
]  # fmt: skip


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_of_everything_ends_with_an_example(verb: str, capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main([*([verb] if verb else []), "--help"])
    assert ended.value.code == 0
    assert "example: vcuda " in capsys.readouterr().out


def test_help_of_limit_says_that_omitted_values_stay(capsys: Any) -> None:
    assert main.main(["help", "limit"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "weighted or best-effort; default: unchanged" in shown
    assert "1 to 10000; default: unchanged, or 100" in shown


def test_version_is_printed(capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(["--version"])
    assert ended.value.code == 0
    (version,) = re.findall(r"(?m)^version = \"(.*)\"$", read(PROJECT))
    assert capsys.readouterr().out == f"vcuda {version}\n"
    assert main.main(["version"]) == 0
    assert capsys.readouterr().out == f"vcuda {version}\n"


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_as_a_verb_prints_what_the_option_does(verb: str, capsys: Any) -> None:
    words = [verb] if verb else []
    with pytest.raises(SystemExit):
        main.main([*words, "--help"])
    shown = capsys.readouterr().out
    assert main.main(["help", *words]) == 0
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize(
    ("words", "usage"),
    [
        (["ps", "--nosuch"], "usage: vcuda ps "),
        (["limit", "box", "--cores", "30"], "usage: vcuda limit "),
        (["cdi", "generate", "--nosuch"], "usage: vcuda cdi generate "),
        (["--nosuch", "ps"], "usage: vcuda [-h]"),
        (["help", "nosuch"], "usage: vcuda [-h]"),
    ],
)
def test_an_unknown_option_prints_the_usage_of_its_verb(
    words: list[str], usage: str, capsys: Any
) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(words)
    assert ended.value.code == 2
    stderr = capsys.readouterr().err
    assert stderr.startswith(usage)
    assert words[-1] in stderr or "--nosuch" in stderr or "--cores" in stderr


@pytest.mark.parametrize("verb", ["ps", "run", "demo"])
def test_named_settings_that_are_not_there_are_an_error(
    verb: str, tmp_path: Any, capsys: Any
) -> None:
    words = ["--core", "30", "true"] if verb == "run" else []
    assert main.main(["--config", f"{tmp_path}/none", verb, *words]) == 1
    assert capsys.readouterr().err == (
        f"vcuda: {tmp_path}/none: no such file; name an existing file, or leave --config out\n"
    )


def test_interrupt_is_one_line(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "_main", interrupted)
    assert (main.main(["gpus"]), capsys.readouterr().err) == (130, "vcuda: interrupted\n")


@pytest.mark.parametrize("words", [["help"], ["--help"], ["gpus", "--help"], ["version"]])
def test_a_full_standard_output_is_one_line(words: list[str]) -> None:
    program = "import sys; from vcuda_hook.cli.main import main; sys.exit(main())"
    with open("/dev/full", "w") as full:
        ran = subprocess.run(
            [sys.executable, "-c", program, *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": f"{ROOT}/oci:{ROOT}/runtime_hook"},
        )
    assert (ran.returncode, ran.stderr) == (
        1,
        "vcuda: standard output: cannot be written: No space left on device; "
        "free space there, or write elsewhere\n",
    )


@pytest.mark.parametrize(
    "words",
    [[], ["walk"], ["ps", "extra"], ["inspect"], ["completion", "csh"], ["run", "--rootfs"]],
    ids=["no verb", "unknown verb", "a word too many", "no id", "unknown shell", "no value"],
)
def test_a_command_line_without_sense_ends_with_2(words: list[str], capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(words)
    assert ended.value.code == 2
    assert "usage: vcuda" in capsys.readouterr().err


def test_a_wrong_setting_is_one_line_that_names_file_and_line(tmp_path: Any, capsys: Any) -> None:
    settings = write(f"{tmp_path}/config.toml", '\nstate_dir = "/run/vcuda"\n')
    assert main.main(["--config", settings, "ps"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        f"vcuda: {settings}:2: unknown key 'state_dir'; did you mean 'state-dir'?\n"
    )


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--", "true"], "vcuda run: no --core; add how much compute: --core 30 is 30 %"),
        (["--core", "30"], "vcuda run: no command; end it like: -- nvidia-smi"),
        (
            ["--core", "30", "--env", "=x", "true"],
            "--env: '=x' is not a variable; write NAME=value",
        ),
        (
            ["--core", "30", "--volume", "/tmp:relative", "true"],
            "--volume: '/tmp:relative' is not a volume; write /host/folder:/folder[:ro]",
        ),
        (
            ["--core", "30", "--volume", "/nonexistent:/x", "true"],
            "/nonexistent: does not exist; make it, or name another --volume",
        ),
        (
            ["--core", "30", "--name", "../x", "true"],
            "--name: '../x' cannot name a container; use up to 64 letters, digits and _.+-",
        ),
        (
            ["--core", "30", "--runtime", "nosuchrunc", "true"],
            "nosuchrunc: no such runtime; install runc or crun, or name one by --runtime",
        ),
        (
            ["--core", "30", "--bundle", "/nonexistent"],
            "/nonexistent/config.json: cannot be read: No such file or directory; "
            "name the bundle with --bundle",
        ),
    ],
)
def test_run_refuses_in_one_line_before_anything_is_started(
    words: list[str], complaint: str, tmp_path: Any, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(apply_share, "SHIM", os.devnull)
    monkeypatch.setattr(
        "vcuda_hook.run.command.watch.watch_this_process", lambda *_: pytest.fail("started")
    )
    settings = write(
        f"{tmp_path}/config.toml", f'state-dir = "{tmp_path}/state"\nruntime="/bin/true"'
    )
    assert main.main(["--config", settings, "run", *words]) == 1
    assert capsys.readouterr().err == f"vcuda: {complaint}\n"
    assert not os.path.exists(f"{tmp_path}/state")


def test_run_without_root_is_refused(tmp_path: Any, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    settings = write(f"{tmp_path}/config.toml", "")
    assert main.main(["--config", settings, "run", "--core", "30", "true"]) == 1
    assert capsys.readouterr().err == (
        "vcuda: vcuda run: starting containers takes root; run it with sudo\n"
    )


@pytest.mark.parametrize("dashes", [[], ["--"]], ids=["without --", "with --"])
def test_arguments_after_the_name_are_the_command(
    dashes: list[str], monkeypatch: Any, tmp_path: Any
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(command, "run", lambda arguments, settings: seen.append(arguments) or 0)
    words = ["run", "--core", "30", "--gpu", "0", "--gpu", "1", *dashes, "ls", "--core", "-x", "--"]
    assert main.main(["--config", write(f"{tmp_path}/config.toml", ""), *words]) == 0
    assert seen[0].command == ["ls", "--core", "-x", "--"]
    assert command.request_words(seen[0]) == {"core": "30", "gpu": "0,1"}


def test_the_policys_options_become_request_parameters(monkeypatch: Any, tmp_path: Any) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(command, "run", lambda arguments, settings: seen.append(arguments) or 0)
    words = ["--policy", "elastic", "--core-limit", "60", "--weight", "", "--priority", "0"]
    words += ["--latency", "low", "--idle-suspend", "10m", "--isolation", "mig"]
    line = ["--config", write(f"{tmp_path}/config.toml", ""), "run", "--core", "30", *words, "ls"]
    assert main.main(line) == 0
    assert command.request_words(seen[0]) == {
        "core": "30",
        "policy": "elastic",
        "core-limit": "60",
        "weight": "",
        "priority": "0",
        "latency": "low",
        "idle-suspend": "10m",
        "isolation": "mig",
    }


@pytest.mark.parametrize(
    ("text", "volume"),
    [
        ("/tmp:/t", ("/tmp", "/t", False)),
        ("/tmp:/t:ro", ("/tmp", "/t", True)),
        ("/tmp:/t:rw", ("/tmp", "/t", False)),
    ],
)
def test_a_volume_is_source_destination_and_perhaps_ro(text: str, volume: Any) -> None:
    assert command.parse_volume(text) == volume


def read(path: str) -> str:
    with open(path) as file:
        return file.read()
