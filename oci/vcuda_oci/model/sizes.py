"""Parse and print sizes of memory such as "5GiB"."""

from __future__ import annotations

from .errors import VcudaError

# A CUDA context needs more than this, so a smaller share is probably a number without its unit.
LEAST_SHARE_BYTES = 16 << 20
_UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGT", 1):
    _UNITS[_letter + "iB"] = _UNITS[_letter + "i"] = 1024**_power


def gib(size: int) -> str:
    """Bytes as text in GiB, rounded down so that free memory is never overstated."""
    hundredths = size * 100 // (1 << 30)
    if hundredths == 0 and size:
        return f"{size / (1 << 20):.1f} MiB"
    return f"{hundredths // 100}.{hundredths % 100:02d}".removesuffix("0") + " GiB"


def parse_bytes(text: str) -> int | None:
    """Parse "5GiB", "1.5Gi" or "4096" (bytes) to bytes, rounded down; None: not a size."""
    number, unit = split(text)
    whole, point, part = number.partition(".")
    if not whole or bool(part) != bool(point) or "." in part or len(number) > 20:
        return None
    if unit not in _UNITS or (point and _UNITS[unit] == 1):
        return None
    tenths: int = 10 ** len(part)
    return int(whole + part) * _UNITS[unit] // tenths


def split(text: str) -> tuple[str, str]:
    """The number that `text` begins with, and its unit."""
    length = len(text) - len(text.lstrip("0123456789."))
    return text[:length], text[length:]


def share_bytes(text: str, where: str) -> int:
    """Parse the memory of a share. Raises VcudaError: not a size, or below LEAST_SHARE_BYTES."""
    size = parse_bytes(text)
    if not size:
        raise VcudaError(f"memory cannot be '{text}'", where, "write it like 5GiB, 1.5GiB, 512MiB")
    if size < LEAST_SHARE_BYTES:
        raise VcudaError(f"memory '{text}' is {size} bytes", where, _larger(text))
    return size


def _larger(text: str) -> str:
    number, unit = split(text)
    guess = f"{number}MiB"
    if not unit and (parse_bytes(guess) or 0) >= LEAST_SHARE_BYTES:
        return f"did you mean {guess}?"
    return f"ask for at least {LEAST_SHARE_BYTES >> 20}MiB"
