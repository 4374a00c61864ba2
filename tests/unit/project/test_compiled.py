"""The tests' C programs: what is kept is used for the same sources and command only."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from support import compiled


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(compiled, "KEPT", str(tmp_path / "kept"))
    (tmp_path / "value.h").write_text("#define VALUE 1\n")
    (tmp_path / "main.c").write_text('#include "value.h"\nint main () { return VALUE + MORE; }\n')
    return str(tmp_path / "main.c")


def answer(source: str, more: int) -> int:
    program = os.path.dirname(source) + "/program"
    command = ["gcc", f"-DMORE={more}", source]
    compiled.make(program, command, [source, os.path.dirname(source) + "/value.h"])
    return subprocess.run([program]).returncode


def test_a_program_is_compiled_once_for_all_that_ask(source: str) -> None:
    assert answer(source, 1) == 2
    (kept,) = Path(compiled.KEPT).iterdir()
    made = kept.stat().st_mtime_ns
    assert answer(source, 1) == 2
    assert [path.stat().st_mtime_ns for path in Path(compiled.KEPT).iterdir()] == [made]


def test_another_flag_or_a_changed_header_makes_another_program(source: str) -> None:
    assert (answer(source, 1), answer(source, 2)) == (2, 3)
    Path(source).with_name("value.h").write_text("#define VALUE 5\n")
    assert answer(source, 1) == 6


def test_a_source_that_does_not_compile_leaves_nothing(source: str) -> None:
    Path(source).write_text("no C")
    with pytest.raises(subprocess.CalledProcessError):
        answer(source, 1)
    assert os.listdir(compiled.KEPT) == []
