"""The start path's replacement of `os` behaves as the real module."""

from __future__ import annotations

import json
import subprocess

import pytest

from support.files import ROOT
from support.wrapper import pythons
from support.wrapper.pythons import VERSIONS

SAME = """
import sys
sys.path.insert(0, sys.argv[1])
from vcuda_oci.system import light_os
light_os.install()
import os, os.path
early = {name: getattr(os, name) for name in ("open", "stat", "path", "O_PATH", "strerror")}
light = os
assert "_collections_abc" not in sys.modules
makedirs = os.makedirs
import os
assert light is not os and "_collections_abc" in sys.modules
assert makedirs is os.makedirs and light.walk is os.walk and light.environ is os.environ
import json
print(json.dumps([
    [name for name in dir(os) if not name.startswith("__")
     and getattr(light, name) != getattr(os, name)],
    [name for name, value in early.items() if value != getattr(os, name)],
]))
"""
OTHERS = """
import sys
sys.path.insert(0, sys.argv[1])
from vcuda_oci.system import light_os
light_os.install()
import os
import json, shutil, subprocess, tempfile, traceback
with tempfile.TemporaryDirectory() as folder:
    os.makedirs(folder + "/a/b")
    print(json.dumps(sorted(os.listdir(folder))))
"""
MISSING = """
import sys
sys.path.insert(0, sys.argv[1])
from vcuda_oci.system import light_os
light_os.install()
import os
try:
    os.no_such_name
except AttributeError as error:
    import json
    print(json.dumps(str(error)))
"""


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "program, answer",
    [
        (SAME, [[], []]),
        (OTHERS, ["a"]),
        (MISSING, "module 'os' has no attribute 'no_such_name'"),
    ],
    ids=["every name of the real one", "other modules work", "a missing name"],
)
def test_the_light_os_answers_as_the_real_one(version: str, program: str, answer: object) -> None:
    words = [pythons.python(version), "-I", "-S", "-B", "-c", program, f"{ROOT}/oci"]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert json.loads(ran.stdout) == answer
