"""Write files for tests; the repository's folder."""

from __future__ import annotations

import os
import stat

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def write(path: str, content: str | bytes, mode: int = 0o644) -> str:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
    os.chmod(path, mode)
    return path


def script(path: str, content: str) -> str:
    return write(path, content, 0o755)


def mode_of(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)
