"""Parse ``/etc/ld.so.cache``. The bytes are untrusted: the file may be an image's.

Source: glibc sysdeps/generic/dl-cache.h, the format "glibc-ld.so.cache1.1". A file in the older
format contains this format too, after its own table.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

MAGIC = b"glibc-ld.so.cache1.1"
X86_64, AARCH64, I386 = 0x0300, 0x0A00, 0x0000
# The architecture flag of an entry, by the machine's name.
NATIVE = {"x86_64": X86_64, "aarch64": AARCH64}
_HEAD_SIZE, _ENTRY_SIZE = 48, 24
_ARCHITECTURE = 0xFF00


def entries(
    content: bytes, prefixes: tuple[str, ...], architectures: tuple[int, ...]
) -> Iterator[tuple[str, str]]:
    """Yield (name, path) of each entry with one of the prefixes, in the cache's order.

    Yields nothing if the content is not a cache. Skips an entry that points outside the file or to
    a relative path. Entries may share their text, so the result can be larger than the file.
    """
    start = content.find(MAGIC)
    if start < 0 or len(content) < start + _HEAD_SIZE:
        return
    wanted = tuple(prefix.encode() for prefix in prefixes)
    count = _number(content, start + len(MAGIC))
    count = min(count, (len(content) - start - _HEAD_SIZE) // _ENTRY_SIZE)
    for at in range(start + _HEAD_SIZE, start + _HEAD_SIZE + count * _ENTRY_SIZE, _ENTRY_SIZE):
        key = start + _number(content, at + 4)
        if not content.startswith(wanted, key):
            continue
        if _number(content, at) & _ARCHITECTURE not in architectures:
            continue
        name, path = _text(content, key), _text(content, start + _number(content, at + 8))
        if path.startswith("/") and "/" not in name:
            yield name, path


def _number(content: bytes, at: int) -> int:
    return int.from_bytes(content[at : at + 4], "little")


def _text(content: bytes, at: int) -> str:
    """The text up to the next NUL; "": no NUL within a path's length, or not UTF-8."""
    end = content.find(b"\0", at, at + 4096)
    try:
        return content[at:end].decode() if end >= 0 else ""
    except UnicodeDecodeError:
        return ""
