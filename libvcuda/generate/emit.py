"""Writes the table as assembly, C header and version script."""

from __future__ import annotations

from .headers import Entry
from .policy import HOOKED, REFUSED, Rule

# The C source exports these as aliases: a jump to another function would cost a tenth of the call.
_WITHOUT_JUMP = ("cuMemGetInfo_v2",)
# Gates for what cuGetProcAddress hands out: a driver has some 700 functions in all their versions.
_MORE_GATES = 1024
BANNER = (
    "Made by libvcuda/generate from CUDA's headers and exports.list; change policy.list instead."
)


def first_nvml(entries: list[Entry]) -> int:
    return next(i for i, entry in enumerate(entries) if entry.library == "nvml")


def assembly(entries: list[Entry], rules: dict[str, Rule]) -> str:
    """One export, one lazy stub and one slot of `real` per entry."""
    lines = [
        f"/* {BANNER}  */",
        '#include "entry/entries.inc"',
        "",
        "\t.text",
    ]
    for index, entry in enumerate(entries):
        if entry.name in _WITHOUT_JUMP:
            continue
        if rules[entry.name].kind in HOOKED:
            lines.append(f"VCUDA_EXPORT_HOOKED {entry.name}, vcuda_{entry.name}")
        elif rules[entry.name].kind == REFUSED:
            lines.append(f"VCUDA_EXPORT_HOOKED {entry.name}, vcuda_{entry.library}_refused")
        else:
            lines.append(f"VCUDA_EXPORT_PASSED {entry.name}, {index}")
    lines += [f"VCUDA_LAZY {index}" for index in range(len(entries))]
    # Behind the exports, which stay where they are.
    lines.append('#include "entry/gate.inc"')
    lines.append(f"VCUDA_ALL_GATES {first_nvml(entries) + _MORE_GATES}")
    lines += ["", '\t.section .data.real, "aw"', "\t.balign 64", "VCUDA_OBJECT real"]
    lines += [f"\t.quad .Llazy_{index}" for index in range(len(entries))]
    lines += ["\t.size real, . - real", "", "\t.section .rodata", "VCUDA_OBJECT vcuda_entry_names"]
    lines += [f'\t.asciz "{entry.name}"' for entry in entries]
    lines += ["\t.size vcuda_entry_names, . - vcuda_entry_names", "\t.balign 4"]
    # Offsets, not pointers: nothing here needs a relocation when the library is loaded.
    lines.append("VCUDA_OBJECT vcuda_entry_name_offsets")
    offset = 0
    for entry in entries:
        lines.append(f"\t.long {offset}")
        offset += len(entry.name) + 1
    lines += ["\t.size vcuda_entry_name_offsets, . - vcuda_entry_name_offsets"]
    lines += ["", '\t.section .note.GNU-stack, "", @progbits', ""]
    return "\n".join(lines)


def header(entries: list[Entry], rules: dict[str, Rule], unasked: set[str]) -> str:
    """`real`, one typed pointer to the driver's function per entry, and the hooks' types.

    unasked: names of entries that have no gate.
    """
    lines = [
        f"/* {BANNER}  */",
        "#ifndef VCUDA_REAL_H",
        "#define VCUDA_REAL_H",
        "/* Every version of every function, as the driver itself sees them.  */",
        "#define __CUDA_API_VERSION_INTERNAL 1",
        "#define NVML_NO_UNVERSIONED_FUNC_DEFS 1",
        "#include <cuda.h>",
        "#include <nvml.h>",
        '#include "undeclared.h"',
        '#pragma GCC diagnostic ignored "-Wdeprecated-declarations"',
        f"#define VCUDA_FIRST_NVML {first_nvml(entries)}",
        f"#define VCUDA_GATES {first_nvml(entries) + _MORE_GATES}",
        "struct vcuda_real",
        "{",
    ]
    lines += [
        f"  __typeof__ ({entry.name}) *{entry.name};"
        if entry.typed
        else f"  void (*{entry.name}) (void);"
        for entry in entries
    ]
    # Hidden: its place is known within the library, so that a call needs one instruction less.
    lines += ["};", 'extern struct vcuda_real real __attribute__ ((visibility ("hidden")));']
    lines += ["enum", "{"]
    lines += [f"  VCUDA_INDEX_{entry.name} = {index}," for index, entry in enumerate(entries)]
    lines += ["};"]
    hooked = [entry.name for entry in entries if rules[entry.name].kind in HOOKED]
    lines += [f"__typeof__ ({name}) vcuda_{name};" for name in hooked]
    lines += ["/* P (index, function): the function that cuGetProcAddress must return.  */"]
    lines += ["#define VCUDA_POLICIES(P) \\"]
    lines += [
        f"  P ({index}, vcuda_{entry.name}) \\"
        for index, entry in enumerate(entries)
        if entry.library == "cuda" and rules[entry.name].kind in HOOKED
    ]
    lines += ["", "/* U (index): a function that has no gate.  */", "#define VCUDA_UNASKED(U) \\"]
    lines += [f"  U ({i}) \\" for i, entry in enumerate(entries) if entry.name in unasked]
    lines += ["", "#endif", ""]
    return "\n".join(lines)


def version_script(entries: list[Entry]) -> str:
    """No version names: a program linked against any driver finds them."""
    names = "".join(f"    {entry.name};\n" for entry in entries)
    return f"/* {BANNER}  */\n{{\n  global:\n{names}  local:\n    *;\n}};\n"
