"""Build a cubin as ptxas lays it out: an ELF file with sections, some of them in device memory."""

from __future__ import annotations

import struct
from typing import NamedTuple

PROGBITS, NOBITS, STRTAB = 1, 8, 3
WRITE, ALLOC, EXEC, INFO_LINK, MASKPROC = 1, 2, 4, 0x40, 0xF0000000
CUDA_MACHINE = 190
HEADER, ENTRY = 64, 64


class Section(NamedTuple):
    name: str
    type: int
    flags: int
    size: int


def sections(
    variables: int, code: int = 384, kernel: str = "work", constants: int = 32
) -> list[Section]:
    """What a kernel with that many bytes of zeroed variables and of code has. It takes their sum,
    12 bytes of set variables and CONSTANTS; the rest takes nothing."""
    return [
        Section(".nv.info", 0x70000000, 0, 36),
        Section(".debug_frame", PROGBITS, 0, 104),
        Section(".nv.constant3", PROGBITS, ALLOC, constants),
        Section(f".text.{kernel}", PROGBITS, ALLOC | EXEC, code),
        Section(".nv.global.init", PROGBITS, ALLOC | WRITE, 12),
        Section(f".nv.shared.{kernel}", NOBITS, ALLOC | WRITE | INFO_LINK, 1536),
        Section(".nv.shared.reserved.0", NOBITS, ALLOC | WRITE, 64),
        Section(".nv.global", NOBITS, ALLOC | WRITE, variables),
        Section(f".nv.constant0.{kernel}", PROGBITS, ALLOC | INFO_LINK, 536),
        Section(".nv.merc.nv.global.init", PROGBITS, ALLOC | WRITE | MASKPROC, 12),
    ]


def taken(variables: int, code: int = 384, constants: int = 32) -> int:
    return variables + code + constants + 12 + 536


def cubin(parts: list[Section]) -> bytes:
    names = b"\0.shstrtab\0"
    body = bytearray()
    table = bytearray(ENTRY)
    for part in parts:
        at = HEADER + len(body)
        form = (len(names), part.type, part.flags, 0, at, part.size, 0, 0, 8, 0)
        table += struct.pack("<IIQQQQIIQQ", *form)
        names += part.name.encode() + b"\0"
        if part.type != NOBITS:
            body += bytes(part.size)
    at = HEADER + len(body)
    table += struct.pack("<IIQQQQIIQQ", 1, STRTAB, 0, 0, at, len(names), 0, 0, 1, 0)
    body += names
    count = len(parts) + 2
    ident = b"\x7fELF\x02\x01\x01\x33\x07".ljust(16, b"\0")
    shape = (2, CUDA_MACHINE, 0x81, 0, 0, HEADER + len(body), 0x5A055A)
    sizes = (HEADER, 56, 0, ENTRY, count, count - 1)
    return ident + struct.pack("<HHIQQQI6H", *shape, *sizes) + body + table
