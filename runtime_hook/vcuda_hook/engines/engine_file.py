"""An engine's configuration file: read and replaced as a whole; mode and owner stay."""

from __future__ import annotations

import os

from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system import files


def read(path: str) -> str | None:
    """The text; None: no such file. Raises VcudaError: it cannot be read."""
    try:
        return files.read(path).decode()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        what = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        raise VcudaError(what, path, "make it a readable UTF-8 file") from error


def replace(path: str, text: str | None, staging: str) -> None:
    """Replace the file atomically; None: remove it.

    staging: a folder on the same file system that the engine does not read, for the partly written
    file that a kill leaves. Raises VcudaError with nothing changed.
    """
    try:
        if text is None:
            files.remove(path)
            return
        made = missing_folders(path)
        beside = f"{staging}/.{os.path.basename(path)}.vcuda"
        try:
            for folder in reversed(made):
                os.mkdir(folder, 0o755)
            files.replace(beside, text.encode(), 0o600, sync=True)
            _as_before(path, beside)
            os.rename(beside, path)
        except BaseException:
            files.remove(beside)
            remove_folders(made)
            raise
        _sync_folder(os.path.dirname(path))
    except OSError as error:
        what = f"cannot be written: {error.strerror}"
        raise VcudaError(what, path, "run it as root, on a file system with space") from error


def missing_folders(path: str) -> list[str]:
    """The missing folders above `path`, the lowest first."""
    missing = []
    folder = os.path.dirname(path)
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    return missing


def remove_folders(folders: list[str]) -> None:
    """Remove empty folders, lowest first, up to the first that is not empty."""
    for folder in folders:
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            continue
        except OSError:
            return  # not empty


def _as_before(path: str, beside: str) -> None:
    """Copy owner, mode and SELinux label of the replaced file; a new file gets 0644."""
    try:
        old = os.stat(path)
    except FileNotFoundError:
        os.chmod(beside, 0o644)
        return
    os.chown(beside, old.st_uid, old.st_gid)
    os.chmod(beside, old.st_mode & 0o7777)
    try:
        os.setxattr(beside, "security.selinux", os.getxattr(path, "security.selinux"))
    except OSError:
        pass  # no such label here


def _sync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError:
        pass  # the new file is in place; a power loss now may restore the old one
    finally:
        os.close(fd)
