"""Finds each use of files by path in a C file: the C library's functions that take one.

file_uses.py lists what is harmless; this module lists what it looks for. A function is known by its
name in column 1, where clang-format puts it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from file_uses import Use

_TAKES_A_PATH = """
    access acct bind canonicalize_file_name chdir chmod chown chroot connect creat dlmopen dlopen
    execl execle execlp execv execve execveat execvp execvpe faccessat fchmodat fchownat flock fopen
    freopen fstatat fts_open ftw futimesat getxattr glob inotify_add_watch lchown lgetxattr link
    linkat listxattr llistxattr lockf lremovexattr lsetxattr lstat mkdir mkdirat mkdtemp mkfifo
    mkfifoat mknod mknodat mkostemp mkstemp mount move_mount name_to_handle_at nftw open open_tree
    openat openat2 opendir popen posix_spawn posix_spawnp readlink readlinkat realpath remove
    removexattr rename renameat renameat2 rmdir scandir setmntent setxattr shm_open stat statfs
    statvfs statx symlink symlinkat syscall system truncate umount umount2 unlink unlinkat utime
    utimensat utimes
"""
# Neither a structure of that name nor a field.
_CALL = re.compile(rf"(?<![\w.>])(?<!struct )({'|'.join(_TAKES_A_PATH.split())})(?:64)?\b")
_FUNCTION = re.compile(r"(\w+) \(")
_NO_CODE = re.compile(r"""/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'""", re.DOTALL)


def uses(source: str) -> Iterator[Use]:
    """function: "<file>" outside of each."""
    function = "<file>"
    code = _NO_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), source)
    for number, line in enumerate(code.split("\n"), 1):
        begins = _FUNCTION.match(line)
        if begins:
            function = begins[1]
        elif line.startswith("}"):
            function = "<file>"
        elif not line.startswith("#include"):
            for call in _CALL.finditer(line):
                yield Use(number, function, call[1])
