"""Native programs that write past a buffer are aborted: all that are linked with musl."""

from __future__ import annotations

import functools
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from support.files import ROOT

# BUFFER has eight bytes; WORDS, the program's first argument, fit or do not.
PROGRAM = """
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static __attribute__ ((noinline)) int
put (const char *words)
{
  char buffer[8];
  CALL;
  __asm__ volatile ("" : : "r" (buffer) : "memory");
  return 0;
}
int
main (int argc, char **argv)
{
  return argc == 2 ? put (argv[1]) : 2;
}
"""
CALLS = {
    "memcpy": "memcpy (buffer, words, strlen (words) + 1)",
    "strcpy": "strcpy (buffer, words)",
    "snprintf": 'snprintf (buffer, strlen (words) + 1, "%s", words)',
    "read": "if (read (0, buffer, strlen (words)) < 0) return 1",
    "loop": "for (char *at = buffer; *words;) *at++ = *words++",
}


@functools.cache
def compiler() -> list[str]:
    """The launcher's compiler command in build.mk, without the sources."""
    words = "$(MUSL_CC) $(MUSL_CFLAGS) $(MUSL_LINKING) $(MUSL_LIBRARY)/crtn.o"
    asked = subprocess.run(
        ["make", "-s", "--eval", f"compiler: ; @echo {shlex.quote(words)}", "compiler"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return shlex.split(asked.stdout)


@pytest.mark.parametrize("call", CALLS)
def test_a_write_past_a_buffer_ends_the_program(call: str, tmp_path: Path) -> None:
    (tmp_path / "put.c").write_text(PROGRAM.replace("CALL", CALLS[call]))
    program = str(tmp_path / "put")
    words = [*compiler(), "-w", "-o", program, str(tmp_path / "put.c")]
    subprocess.run(words, cwd=ROOT, check=True)
    fits, too_long = (
        subprocess.run([program, "x" * length], stdin=subprocess.DEVNULL).returncode
        for length in (7, 64)
    )
    assert fits == 0
    # musl ends a program with an overwritten stack by a fault.
    assert too_long == (-signal.SIGSEGV if call == "loop" else -signal.SIGABRT)


def test_each_command_that_compiles_with_musl_has_these_checks() -> None:
    programs = [f"bin/vcuda-container-{part}" for part in ("runtime", "hook")]
    programs += ["lib/vcuda-procfs-hook", "lib/vcuda-turn-keeper"]
    asked = subprocess.run(
        ["make", "--dry-run", "--always-make", *(f"build/{program}" for program in programs)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    compiles = [line for line in asked.stdout.splitlines() if line.startswith("musl-gcc ")]
    for program in programs:
        assert any(f"-o build/{program} " in line for line in compiles), program
    checks = ("-fstack-protector-strong", "-include oci/launcher/musl/fortify.h", "-fPIE")
    assert [line for line in compiles if not all(check in line for check in checks)] == []
