"""docs/errors.md has every line that a program says, and refuses one without a mend."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from docs.commands import REPOSITORY

SOURCES = ("oci", "runtime_hook", "plugin", "libvcuda", "packaging", "docs/site")
OCI, HOOK, PLUGIN = "oci/vcuda_oci", "runtime_hook/vcuda_hook", "plugin/vcuda_plugin"
NO_MEND = ": no mend; say how it is mended, where it is raised"
NO_LINE = ": no line that this page can show; write it as others do"
NO_SITUATION = ": no situation for what it says; name it in SITUATIONS"
# What each of these files says more, and why that is refused.
REFUSED = {
    f"{PLUGIN}/needed.py": ('sys.exit("it: is odd")', ": it: is odd" + NO_MEND),
    f"{PLUGIN}/retry.py": ('raise VcudaError("odd", "it", "mend it")', NO_SITUATION),
    f"{PLUGIN}/gpu_probe.py": (
        'print(f"vcuda-node-agent: {told}: is odd", file=sys.stderr)',
        ": <told>: is odd" + NO_MEND,
    ),
    f"{HOOK}/show.py": (
        'sys.stderr.write(f"vcuda: {told}: is odd\\n")',
        ": <told>: is odd" + NO_MEND,
    ),
    f"{HOOK}/cli_live.py": ('parser.error("odd")', ": error: odd" + NO_MEND),
    f"{OCI}/deleted.py": (
        'os.write(2, f"{names.PROGRAM}: it: is odd\\n".encode())',
        ": it: is odd" + NO_MEND,
    ),
    "packaging/vcuda": ('sys.exit("it: is odd")', ": it: is odd" + NO_MEND),
    "oci/launcher/hook.c": (
        'fprintf (stderr, "vcuda-container-hook: %s: is odd\\n", told);',
        ": <told>: is odd" + NO_MEND,
    ),
    "libvcuda/src/slot.c": (
        "write (STDERR_FILENO, told, 3);",
        ": write (STDERR_FILENO, told, 3);" + NO_LINE,
    ),
    "libvcuda/src/credit.c": (
        'vcuda_say (VCUDA_LINE (VCUDA_GUEST_DIR, "is odd", "mend it"));',
        NO_SITUATION,
    ),
    "packaging/nfpm/removed.sh": ('echo "it: is odd" >&2', ": it: is odd" + NO_MEND),
    "packaging/nfpm/installed.sh": ("printf odd >&2", ": printf odd >&2" + NO_LINE),
}
TAKEN = {
    f"{PLUGIN}/needed.py": 'sys.exit(f"a: {told}: is new; mend it")',
    f"{HOOK}/show.py": 'sys.stderr.write(f"vcuda: {told}")',  # what another has said
    "packaging/vcuda": "sys.exit(3)",
    "libvcuda/src/slot.c": 'fprintf (stderr, "a: %s: is newer; mend it\\n", told);',
    "packaging/nfpm/removed.sh": 'echo "a: $told: is newest; mend it" >&2',
}


def page(where: Path, more: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """What is made of the sources when files of them say more."""
    for folder in SOURCES:
        shutil.copytree(f"{REPOSITORY}/{folder}", where / folder)
    for path, said in more.items():
        with open(where / path, "a") as file:
            file.write(_as_source(path, said))
    return subprocess.run(
        [sys.executable, "-B", f"{where}/docs/site/errors_page.py"],
        env={"PYTHONPATH": ":".join(f"{where}/{part}" for part in SOURCES[:3])},
        capture_output=True,
        text=True,
        check=False,
    )


def _as_source(path: str, said: str) -> str:
    if path.endswith(".c"):
        return f"\nvoid more (const char *told)\n{{\n  {said}\n}}\n"
    return f"\n{said}\n" if path.endswith(".sh") else f"\n\ndef more(told):\n    {said}\n"


def test_a_new_line_without_a_mend_or_a_place_is_refused(tmp_path: Path) -> None:
    made = page(tmp_path, {path: said for path, (said, _) in REFUSED.items()})
    assert (made.returncode, made.stdout) == (1, "")
    complaints = {path + why for path, (_, why) in REFUSED.items()}
    # These two have said nothing of their own so far.
    complaints |= {path + NO_SITUATION for path in (f"{OCI}/deleted.py", "packaging/vcuda")}
    assert set(made.stderr.splitlines()) == complaints


def test_a_new_line_with_its_mend_is_on_the_page_and_what_another_said_is_not(
    tmp_path: Path,
) -> None:
    made = page(tmp_path, TAKEN)
    assert (made.returncode, made.stderr) == (0, "")
    with open(os.path.join(REPOSITORY, "docs/errors.md")) as file:
        before = set(file.read().splitlines())
    assert set(made.stdout.splitlines()) - before == {
        "| `<told>: is new` | `mend it` |",
        "| `<told>: is newer` | `mend it` |",
        "| `<told>: is newest` | `mend it` |",
    }
