"""An NVML that lists a neighbour's process in every answer, and a client that calls everything.

Both are C, made of nvml.h. Where a function names, lists or counts processes, the driver writes
NEIGHBOUR into whatever its caller hands it, and the client looks for NEIGHBOUR there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from support.files import ROOT

sys.path.insert(0, os.path.join(ROOT, "libvcuda"))

from generate import headers

NEIGHBOUR = 0x4E424F52

DRIVER = """
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>
#include <stdio.h>
nvmlReturn_t nvmlInit_v2 (void) { return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2 (unsigned index, nvmlDevice_t *device)
{ *device = (nvmlDevice_t) (size_t) (1 + index); return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetUUID (nvmlDevice_t device, char *uuid, unsigned length)
{ snprintf (uuid, length, "%s", UUID); return device ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT; }
static void tell (const void *out)
{ for (int i = 0; out && i < 4; i++) ((unsigned *) out)[i] = NEIGHBOUR; }
"""

# Fields before a buffer's pointers: a version or a list's size, the size or a mode, the size.
CLIENT = """
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>
#include <stdio.h>
#include <string.h>
static union { unsigned word[4096]; void *pointer[2048]; } buffer[5];
static void prepare (unsigned first, unsigned second)
{
  for (int b = 0; b < 4; b++)
    for (int i = 0; i < 2048; i++)
      buffer[b].pointer[i] = &buffer[4];
  memset (&buffer[4], 0, sizeof buffer[4]);
  for (int b = 0; b < 4; b++)
    memcpy (buffer[b].word, (unsigned[]){ first, second, 8, 0 }, 16);
}
static void look (const char *name, int rc)
{
  int shown = 0;
  for (int b = 0; b < 5; b++)
    for (int i = 0; i < 4096; i++)
      shown |= buffer[b].word[i] == NEIGHBOUR;
  printf ("%s %d %d\\n", name, shown, rc);
}
int main (void)
{
  nvmlDevice_t device;
  if (nvmlInit_v2 () || nvmlDeviceGetHandleByIndex_v2 (0, &device))
    return 1;
"""


def functions(include: str) -> dict[str, list[str]]:
    """The types of the parameters of each function of nvml.h that shows processes."""
    path = os.path.join(include, "nvml.h")
    text = headers.expand([path], ("NVML_NO_UNVERSIONED_FUNC_DEFS",), "gcc")
    wanted = headers.showing_processes(text)
    return {
        name: [re.sub(r"\w+$", "", each.strip()).strip() for each in parameters.split(",")]
        for name, parameters in headers.PROTOTYPE.findall(text)
        if name in wanted
    }


def driver_source(found: dict[str, list[str]], uuid: str) -> str:
    lines = [f'#define UUID "{uuid}"', f"#define NEIGHBOUR {NEIGHBOUR}u", DRIVER]
    for name, types in found.items():
        declared = ", ".join(f"{kind} a{i}" for i, kind in enumerate(types))
        calls = " ".join(f"tell (a{i});" for i, kind in enumerate(types) if kind.endswith("*"))
        lines.append(f"nvmlReturn_t {name} ({declared}) {{ {calls} return NVML_SUCCESS; }}")
    return "\n".join(lines) + "\n"


def client_source(found: dict[str, list[str]], include: str) -> str:
    text = Path(include, "nvml.h").read_text(encoding="utf-8")
    lines = [f"#define NEIGHBOUR {NEIGHBOUR}u", CLIENT]
    for name, types in found.items():
        firsts = ["0", "8"]
        for kind in types:
            structure = re.sub(r"^const ", "", kind).removesuffix("*").strip().removesuffix("_t")
            firsts += re.findall(rf"#define ({structure}_v\d+)\b", text)
        arguments = [
            "device" if kind == "nvmlDevice_t"
            else f"(void *) &buffer[{i}]" if kind.endswith("*") or kind.startswith("nvmlVgpuInst")
            else "0"
            for i, kind in enumerate(types)
        ]  # fmt: skip
        arguments = [
            f"({kind}) (size_t) {argument}" if kind.startswith("nvmlVgpuInst") else argument
            for kind, argument in zip(types, arguments)
        ]
        for first in firsts:
            for second in ("0", "8"):
                lines.append(f"  prepare ({first}, {second});")
                lines.append(f'  look ("{name}", (int) {name} ({", ".join(arguments)}));')
    return "\n".join([*lines, "  return 0;", "}"]) + "\n"


def build(source: str, output: Path, include: str, *flags: str) -> None:
    command = ["gcc", "-w", "-xc", "-", "-isystem", include, "-o", str(output)]
    subprocess.run([*command, *flags], input=source, text=True, check=True)
