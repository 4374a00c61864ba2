"""Every setting, from the code: docs/settings.md on standard output, by `make pages`.

Type and default are what config.py has, the meaning is what packaging/config.toml says above the
key, and what a setting takes is what the program itself says where it is given something else.
"""

from __future__ import annotations

import json
import os
import re

from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system import settings_file
from vcuda_plugin.agent.http import listen_address

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SETTINGS = REPOSITORY + "/packaging/config.toml"
# One of them makes no sense, whatever the setting.
WRONG = ("?", "", "?/?", "9999")

HEAD = """\
# Settings

Made of the code by `make pages`; do not edit.

Settings are in `/etc/vcuda/config.toml`, one line each: `key = "text"` or `key = ["text",
"text"]`. A missing file means the defaults. An unknown key is an error that names the nearest
known key. A value that a setting does not take is an error, too, that names the line. vcuda
refuses a container rather than start it by other rules than those in the file. The file is read at
each container's start, so a change counts for the next one. The node agent and the scheduler
extender read it when they start. What a container may ask for itself is in the
[README](../README.md).

The file decides what root runs, so every program of vcuda refuses a file that another user could
have changed. The file and the folder that holds it must belong to root or to the user who reads
it, and no other user may write there. Group root and the reader's own group may write, because
with umask 002 a user's files are writable by the user's group, but not where there is an access
control list. A folder that others may write is accepted if it is sticky or on a read-only mount. A
link, as in a ConfigMap's volume, is followed if the same rules hold for every folder on the way,
and every link belongs to root or to the reader. In a user namespace, as with rootless Podman,
root's file is accepted although root's uid is not mapped there. Folders above the one that holds a
plain file are not checked: keep the settings below folders that belong to root, as `/etc/vcuda`
does, because the owner of a folder above could replace them.

A file that is there but cannot be read is refused too, whatever the reason, and so are a folder, a
FIFO, a socket or a device in its place. Only a missing file means the defaults, and not where the
file or its folder is a link to something that is missing.
"""


def main() -> None:
    print(page(), end="")


def page() -> str:
    """In the order of packaging/config.toml, which names every one."""
    meanings = told()
    defaults = {key: _toml(settings_file._DEFAULTS[key]) for key in meanings}
    lines = [HEAD, "| setting | type | default |", "| --- | --- | --- |"]
    lines += [f"| [`{key}`](#{key}) | {_type(key)} | `{defaults[key]}` |" for key in meanings]
    for key, meaning in meanings.items():
        lines += ["", f"## {key}", "", meaning, ""]
        lines += [f"- Default: `{defaults[key]}`", f"- On another value: {takes(key)}"]
    return "\n".join(lines) + "\n"


def told() -> dict[str, str]:
    """What packaging/config.toml says of each: a comment is of the keys up to the next comment."""
    found: dict[str, str] = {}
    words: list[str] = []
    begun = False
    with open(SETTINGS) as file:
        below_head = file.read().split("\n\n", 1)[1].splitlines()
    for line in below_head:
        key = re.match(r"# ([a-z-]+) = ", line)
        if key:
            found[key[1]] = _linked(" ".join(words))
            begun = True
            continue
        if begun:
            words, begun = [], False
        words.append(line.removeprefix("#").strip())
    return found


def takes(key: str) -> str:
    """What the program says that it takes, when it is given something else."""
    if key == "listen":
        return _mend_of_listen()
    is_list = isinstance(settings_file._DEFAULTS[key], list)
    for wrong in WRONG:
        value = _toml([wrong] if is_list else wrong)
        try:
            settings_file.parse(f"{key} = {value}", SETTINGS)
        except VcudaError as error:
            return _escaped(error.mend)
    return "any text"


def _mend_of_listen() -> str:
    try:
        listen_address.check("?", SETTINGS)
    except VcudaError as error:
        return _escaped(error.mend)
    raise SystemExit("listen takes anything")


def _escaped(text: str) -> str:
    return re.sub(r"([*<])", r"\\\1", text)


def _type(key: str) -> str:
    return "list of strings" if isinstance(settings_file._DEFAULTS[key], list) else "string"


def _toml(value: str | list[str]) -> str:
    return json.dumps(value, ensure_ascii=False)


def _linked(text: str) -> str:
    return re.sub(r"docs/([a-z-]+)\.md", r"[\1](\1.md)", _escaped(text)).strip()


if __name__ == "__main__":
    main()
