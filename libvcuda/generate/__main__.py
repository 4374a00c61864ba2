"""python3 -m generate INCLUDE LIBVCUDA OUT: writes entries.S, real.h and vcuda.map to OUT.

LIBVCUDA is the folder of policy.list, exports.list and undeclared.h.
"""

from __future__ import annotations

import os
import subprocess
import sys

from . import emit, headers, policy


def write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)


def main(arguments: list[str]) -> int:
    include, folder, out = arguments
    compiler = os.environ.get("CC", "cc")
    try:
        entries = headers.all_entries(include, folder, compiler)
        listed = policy.read(os.path.join(folder, "policy.list"))
        rules = policy.assign(entries, listed)
        unasked = policy.unasked(entries, listed)
    except (OSError, subprocess.CalledProcessError, policy.PolicyError) as error:
        print(f"generate: {error}", file=sys.stderr)
        return 1
    entries = [entry for entry in entries if rules[entry.name].kind != policy.ABSENT]
    os.makedirs(out, exist_ok=True)
    write(os.path.join(out, "entries.S"), emit.assembly(entries, rules))
    write(os.path.join(out, "real.h"), emit.header(entries, rules, unasked))
    write(os.path.join(out, "vcuda.map"), emit.version_script(entries))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
