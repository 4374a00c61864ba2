"""Sizes of memory as people write them."""

from __future__ import annotations

_UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGT", 1):
    _UNITS[_letter + "iB"] = _UNITS[_letter + "i"] = 1024**_power


def gib(size: int) -> str:
    """Bytes in GiB, rounded down so that what is said to be free is free."""
    hundredths = size * 100 // (1 << 30)
    if hundredths == 0 and size:
        return f"{size / (1 << 20):.1f} MiB"
    text = f"{hundredths // 100}.{hundredths % 100:02d}"
    return (text[:-1] if text.endswith("0") else text) + " GiB"


def parse_bytes(text: str) -> int | None:
    """ "5GiB", "512Mi", "4096" (bytes) as bytes; None: not a size."""
    digits = len(text) - len(text.lstrip("0123456789"))
    if not text[:digits] or digits > 20 or text[digits:] not in _UNITS:
        return None
    return int(text[:digits]) * _UNITS[text[digits:]]
