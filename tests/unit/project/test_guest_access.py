"""The check that refuses unsafe access to files of a container."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.files import ROOT

CHECKS = ROOT + "/packaging/checks"
sys.path.insert(0, CHECKS)

import guest_access  # type: ignore[import-not-found, unused-ignore]  # noqa: E402

PATH = "oci/vcuda_oci/any.py"


def found(source: str, path: str = PATH, entry: str = "") -> list[str]:
    """The check's lines for a file. entry: its module's entry in guest_access.toml."""
    module = guest_access.module_of(path)
    allowed = guest_access.Allowed([(module, entry)] if entry else [])
    return [what.split(";")[0] for _, what in guest_access.faults(source, path, allowed)]


def in_function(body: str) -> str:
    return "def any(fd, pid, path, folder, flags):\n    " + body.replace("\n", "\n    ")


# By kind: an import, a statement in a function below it, and a name that is found there.
IN_FUNCTIONS = {
    "module under another name": ("import os as o", "o.chown(path, 0, 0)", "os.chown"),
    "function of a module": ("from os import chmod", "chmod(path, 0)", "os.chmod"),
    "function under another name": ("from os import stat as s", "s(path)", "os.stat"),
    "path module": ("from os import path as p", "p.getsize(path)", "os.path.getsize"),
    "getattr": ("import os", 'getattr(os, "truncate")(path, 0)', "os"),
    "every name of a module": ("from os import *", "chmod(path, 0)", "os.*"),
    "attribute of our module": (
        "from .ledger import events",
        "getattr(events, flags).stat(path)",
        "getattr(vcuda_oci.ledger.events)",
    ),
    "names that a function sees": ("", "any.__globals__['os'].stat('/x')", "__globals__"),
    "every name of our module": (
        "from .system.files import *",
        "read(path)",
        "vcuda_oci.system.files.*",
    ),
    "module below os": ("import posix", "posix.unlink(path)", "posix.unlink"),
    "module that is not known": ("import zipfile", "zipfile.ZipFile(path)", "zipfile"),
    "function passed on": ("import os", "return list(map(os.stat, path))", "os.stat"),
    "path by keyword": ("import os", "os.truncate(path=path, length=0)", "os.truncate"),
    "arguments in a tuple": ("import os", "os.chmod(*path)", "os.chmod"),
    "open that makes the file": (
        "import os",
        "return os.open(path, os.O_WRONLY | os.O_CREAT)",
        "os.open",
    ),
    "page by a folder's descriptor": ("import os", 'os.stat("usage", dir_fd=fd)', "os.stat"),
    "root by a process's descriptor": (
        "import os",
        'os.open("root/etc", os.O_PATH, dir_fd=fd)',
        "os.open",
    ),
    "page by join": (
        "import os",
        'os.path.getsize(os.path.join(path, "usage"))',
        "os.path.getsize",
    ),
    "open for reading": ("", "return open(path).read()", "open"),
    "open for writing": ("", 'open(path, "w").write("x")', "open"),
    "open of io": ("import io", "return io.open(path)", "io.open"),
    "pathlib": ("from pathlib import Path", "Path(path).chmod(0)", "pathlib.Path"),
    "shutil": ("import shutil", "shutil.chown(path, 0)", "shutil.chown"),
    "our helper": ("from .system import files", "files.read(path)", "vcuda_oci.system.files.read"),
    "our helper's function": (
        "from vcuda_oci.system.files import remove as r",
        "r(path)",
        "vcuda_oci.system.files.remove",
    ),
    "lock by fcntl": ("import fcntl", "fcntl.fcntl(fd, fcntl.F_GETFD)", "fcntl.fcntl"),
    "socket by path": (
        "import socket",
        "socket.socket(socket.AF_UNIX).connect(path)",
        "socket.AF_UNIX",
    ),
    "C library": ("import ctypes", "ctypes.CDLL(None).unlink(path)", "ctypes.CDLL"),
    "process by +": ("", 'return "/proc/" + str(pid) + "/fd/" + fd', "/proc/<pid>"),
    "process by join": (
        "import os",
        'return os.path.join("/proc", str(pid), "root")',
        "/proc/<pid>",
    ),
}
# By kind: a whole source, and a name that is found in it.
ELSEWHERE = {
    "module in a variable": ("import os\no = os\no.chmod('/x', 0)", "os"),
    "module by its name": ('import sys\nsys.modules["os"].chmod("/x", 0)', "sys.modules"),
    "import function": ('__import__("os").chmod("/x", 0)', "__import__"),
    "import library": (
        "import importlib\nimportlib.import_module('os')",
        "importlib.import_module",
    ),
    "module that another imports": (
        "import subprocess\nsubprocess.os.stat('/x')",
        "subprocess.os.stat",
    ),
    "two modules of one name": (
        "def f(a):\n    import os as m\n    m.stat(a)\ndef g():\n    import time as m",
        "os.stat",
    ),
    "import in a class": (
        "class A:\n    import os\n    def f(self):\n        self.os.stat(1)",
        "os",
    ),
    "import for another module": ("from os import unlink", "os.unlink"),
    "renamed for another module": (
        "from .system import files as any_name",
        "vcuda_oci.system.files",
    ),
    "names of our module": (
        "from .ledger import events\nevents.__dict__['os'].stat('/x')",
        "vcuda_oci.ledger.events.__dict__",
    ),
    "names that a frame sees": (
        "import sys\nsys._getframe().f_builtins['open']('/x')",
        "f_builtins",
    ),
    "private name of a module": ("import random\nrandom._os.unlink('/x')", "random._os.unlink"),
    "private function of a module": ("import ctypes\nctypes._dlopen('/x')", "ctypes._dlopen"),
    "module that reads lines": (
        "import traceback\ntraceback.linecache.getlines('/x')",
        "traceback.linecache.getlines",
    ),
    "default of a parameter": (
        "import os\ndef f(a, remove=os.unlink):\n    remove(a)",
        "os.unlink",
    ),
    "decorator": ("import os\n@os.walk\ndef f():\n    pass", "os.walk"),
    "module level": ('import os\nFD = os.open("/x", os.O_RDONLY)', "os.open"),
    "class level": ("import os\nclass A:\n    fd = os.open('/x', os.O_RDONLY)", "os.open"),
    "lambda": ("import os\nf = lambda a: os.open(a, os.O_RDONLY)", "os.open"),
    "comprehension": ("import os\nf = [os.stat(a) for a in '/']", "os.stat"),
    "path called fd": ("import os\ndef f(a):\n    fd = a\n    os.truncate(fd, 0)", "os.truncate"),
    "flag in another call": (
        "import os\ndef f(a, b):\n    os.fstat(os.O_PATH)\n    os.open(b, os.O_RDONLY)",
        "os.open",
    ),
    "page named in a variable": (
        'import os\nNAME = "/usage"\ndef f(a):\n    os.open(a + NAME, os.O_NONBLOCK)',
        "os.open",
    ),
}
USES = ELSEWHERE | {
    kind: (imported + "\n" + in_function(body), name)
    for kind, (imported, body, name) in IN_FUNCTIONS.items()
}


@pytest.mark.parametrize(("source", "name"), USES.values(), ids=USES)
def test_each_use_of_files_by_path_is_refused_outside_the_package_for_it(
    source: str, name: str
) -> None:
    assert name in [line.partition(" in ")[0] for line in found(source)]
    assert found(source, "oci/vcuda_oci/guest/page_file.py") == []


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('os.stat(f"/proc/{pid}/fd/3", flags)', "a path below /proc/<pid>"),
        ('os.listdir(f"/proc/{pid}/fd")', "a path below /proc/<pid>"),
        ('os.stat(f"/proc/{pid}/root")', "a path below /proc/<pid>"),
        ('os.chdir(f"/proc/{pid}/cwd")', "a path below /proc/<pid>"),
        ('open(f"{folder}/map_files/{path}", "rb")', "a path below /proc/<pid>"),
        ('return "/proc/%d/fd/%d" % (pid, fd)', "a path below /proc/<pid>"),
        ('return "/proc/{}/root/etc".format(pid)', "a path below /proc/<pid>"),
        ('return f"{folder}/{pid}/root/etc/passwd"', "a path below /proc/<pid>"),
        ("fcntl.flock(fd, fcntl.LOCK_EX)", "fcntl.flock can wait for ever"),
        ("from fcntl import flock\nflock(fd, fcntl.LOCK_EX)", "flock can wait for ever"),
        ("fcntl.fcntl(fd, fcntl.F_SETLKW, b'')", "F_SETLKW can wait for ever"),
        ('open(f"/proc/{pid}/cgroup", "rb")', "a table of the kernel's"),
        ('open(f"{folder}/{pid}/maps")', "a table of the kernel's"),
        ('os.open("mountinfo", os.O_NONBLOCK, dir_fd=fd)', "a table of the kernel's"),
        ('path = "/proc/self/mountinfo"', "a table of the kernel's"),
        (
            'open(f"/proc/{pid}/cmdline", errors="replace")',
            "text of /proc, where a name can end a line",
        ),
        ('open(f"/proc/{pid}/cgroup").read()', "text of /proc, where a name can end a line"),
        ('files.read("/proc/modules").decode().splitlines()', "splitlines of /proc"),
    ],
)
def test_unsafe_form_is_refused_in_a_function_that_may_use_files_too(body: str, fault: str) -> None:
    source = "import fcntl, os\nfrom .system import files\n" + in_function(body)
    of_os = "os.chdir os.listdir os.open os.stat"
    names = f"fcntl.fcntl fcntl.flock open vcuda_oci.system.files.read /proc/<pid> {of_os}"
    assert fault in found(source, entry=f"any: {names}")
    assert found(source, "oci/vcuda_oci/guest/page_file.py") == []


@pytest.mark.parametrize(
    "body",
    [
        "page_file.open_page(path, os.O_RDONLY)",
        "os.ftruncate(fd, 0)",
        "os.fchmod(fd, 0o666)",
        "return os.O_TMPFILE | os.O_RDWR",
        "os.path.join(os.path.dirname(path), 'x')",
        "self.open(path)",
        '"""As os.stat of /proc/<pid>/fd/3 does."""',
    ],
)
def test_safe_forms_need_no_entry(body: str) -> None:
    source = "import os\nfrom .guest import page_file\n" + in_function(body)
    assert found(source) == []


READS = "import os\nclass A:\n    def read(self, path):\n        return os.stat(path)\n"


def test_entry_allows_its_names_only_in_its_functions() -> None:
    assert found(READS, entry="A.read: os.stat") == []
    refused = ["os.stat in A.read of vcuda_oci.any"]
    assert found(READS, entry="A.read: os.lstat") == refused
    assert found(READS, entry="A.write: os.stat") == refused
    assert found(READS, "oci/vcuda_oci/other.py") == ["os.stat in A.read of vcuda_oci.other"]


def test_a_refusal_is_one_line_with_a_hint() -> None:
    [fault] = guest_access.faults(READS, PATH, guest_access.Allowed([]))
    assert fault.line == 4
    assert fault.what == (
        "os.stat in A.read of vcuda_oci.any; use vcuda_oci.guest if a container or another user "
        "can reach it, else list it in packaging/checks/guest_access.toml"
    )


def test_an_entry_that_nothing_uses_any_more_is_refused() -> None:
    entries = [("vcuda_oci.any", "A.read A.write: os.stat os.open"), ("gone", "f: open")]
    allowed = guest_access.Allowed(entries)
    assert guest_access.faults(READS, PATH, allowed) == []
    assert sorted(allowed.unused()) == [
        "gone: f is not used there; remove it",
        "gone: open is not used there; remove it",
        "vcuda_oci.any: A.write is not used there; remove it",
        "vcuda_oci.any: os.open is not used there; remove it",
    ]


C_SOURCE = """\
/* open (path) and "open (path)" are no calls.  */
#include <stdio.h>
static int
look (const char *path, struct stat *about)
{
  printf ("open (%s)", path);
  about->open = 3;
  return (open) (path, O_RDONLY);
}
"""
C_POINTER = "static int\nlook (void)\n{\n  int (*any) (const char *, int) = open;\n}\n"


C_QUOTES = """
static bool
look (const char *p)
{
  return *p != '"' && open64 (p, O_RDONLY) > 0 && p[1] != '"';
}
"""


def test_a_c_function_that_opens_a_path_needs_an_entry() -> None:
    path = "oci/launcher/any.h"
    assert found(C_SOURCE, path) == ["open in look of launcher/any.h"]
    assert found(C_POINTER, path) == ["open in look of launcher/any.h"]
    assert found(C_QUOTES, path) == ["open in look of launcher/any.h"]
    assert found(C_SOURCE, path, "look: open") == []
    assert found(C_SOURCE, path, "other: open") == ["open in look of launcher/any.h"]


def test_the_product_has_no_unsafe_form() -> None:
    folders = [f"{ROOT}/{name}" for name in ("oci", "runtime_hook", "plugin")]
    command = [sys.executable, CHECKS + "/guest_access.py", *folders]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
