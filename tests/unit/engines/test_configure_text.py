"""Settings are added to a text and removed again without other changes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unit.engines.test_toml import DOCUMENTS
from vcuda_hook.engines import text_edit
from vcuda_hook.engines.text_edit import Done, added, digest, removed
from vcuda_hook.engines.texts import json_text, toml_text
from vcuda_hook.engines.texts.toml_values import TomlError
from vcuda_oci.model.errors import VcudaError

NAMES = st.sampled_from(["runtimes", "vcuda", "default-runtime", "features", "a b", "", "é\n"])
PLAIN = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
TREES = st.dictionaries(
    NAMES,
    st.recursive(
        PLAIN,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
        max_leaves=6,
    ),
    max_size=4,
)
INDENTS = st.sampled_from([None, 2, 4, "\t", 0])
DOCKER = [
    (("runtimes", "vcuda"), {"path": "/usr/bin/vcuda-container-runtime"}),
    (("default-runtime",), "vcuda"),
]
TABLE = {"type": "runc", "list": ["a/*"], "options": {"BinaryName": "/usr/bin/x", "Systemd": True}}
TOML = [(("a", "b"), TABLE), (("c", "a-1"), "vcuda"), (("1",), 2)]


def done_to(form: str, before: str, settings: Any) -> tuple[str, Done]:
    after, fresh = added(form, before, settings, "file")
    return after, Done(form, before, [digest(after)], fresh)


def as_if_edited(done: Done) -> Done:
    """The record without the digests that let the text go back as a whole."""
    return Done(done.form, done.before, [], done.settings)


@settings(max_examples=500)
@given(TREES, INDENTS, st.sampled_from(["\n", "\r\n"]), st.sampled_from(["", "\n", "  \n"]))
def test_only_the_added_json_settings_change(
    tree: dict[str, Any], indent: Any, newline: str, end: str
) -> None:
    before = json.dumps(tree, indent=indent).replace("\n", newline) + end
    try:
        after, done = done_to("json", before, DOCKER)
    except VcudaError:
        # The existing value is not a table, or another tool's.
        known = tree.get("runtimes", {})
        assert not isinstance(known, dict) or "vcuda" in known or tree["default-runtime"] != "vcuda"
        return
    runtimes = {**tree.get("runtimes", {}), "vcuda": DOCKER[0][1]}
    assert json.loads(after) == {**tree, "runtimes": runtimes, "default-runtime": "vcuda"}
    assert added("json", after, DOCKER, "file") == (after, [])
    assert removed(after, done, "file") == (before, [])
    text, left = removed(after, as_if_edited(done), "file")
    assert (json.loads(text or ""), left) == (tree, [])


@settings(max_examples=500)
@given(DOCUMENTS)
def test_only_the_added_toml_settings_change(before: str) -> None:
    try:
        tree = toml_text.parse(before)
        after, done = done_to("toml", before, TOML)
    except (TomlError, VcudaError):
        return
    merged = {**tree, "1": 2}
    merged["a"] = {**tree.get("a", {}), "b": TABLE}
    merged["c"] = {**tree.get("c", {}), "a-1": "vcuda"}
    assert toml_text.parse(after) == merged
    assert added("toml", after, TOML, "file") == (after, [])
    assert removed(after, done, "file") == (before, [])
    text, left = removed(after, as_if_edited(done), "file")
    assert ((text or "").rstrip(), left) == (before.rstrip(), [])


def test_most_toml_can_be_added_to() -> None:
    """The property above is not about refusals alone."""
    done_to("toml", "", TOML)
    done_to("toml", "# only\n[a]\n[[x]]\n[x.y]\n c.d = 1\r\n"[:-2] + "\n[c]\n", TOML)


JSON_BEFORE = """{
    "features": {"buildkit": true},
    "default-runtime": "runc",
    "log-driver": "json-file"
}
"""
JSON_AFTER = """{
    "features": {"buildkit": true},
    "default-runtime": "vcuda",
    "log-driver": "json-file",
    "runtimes": {
        "vcuda": {
            "path": "/usr/bin/vcuda-container-runtime"
        }
    }
}
"""
JSON_EDITED = """{
    "features": {"buildkit": true, "containerd-snapshotter": true},
    "default-runtime": "vcuda",
    "log-driver": "json-file",
    "runtimes": {
        "vcuda": {
            "path": "/usr/bin/vcuda-container-runtime"
        },
        "kata": {"path": "/usr/bin/kata"}
    },
    "debug": true
}
"""
JSON_EDITED_UNDONE = """{
    "features": {"buildkit": true, "containerd-snapshotter": true},
    "default-runtime": "runc",
    "log-driver": "json-file",
    "runtimes": {
        "kata": {"path": "/usr/bin/kata"}
    },
    "debug": true
}
"""


def test_json_is_added_to_in_its_own_style() -> None:
    after, done = done_to("json", JSON_BEFORE, DOCKER)
    assert after == JSON_AFTER
    assert done.settings == DOCKER


def test_hand_written_settings_stay_when_ours_are_removed() -> None:
    _, done = done_to("json", JSON_BEFORE, DOCKER)
    assert removed(JSON_EDITED, done, "file") == (JSON_EDITED_UNDONE, [])


TOML_BEFORE = """\
version = 2
# the operator's own words
[plugins]
  [plugins."x/y".containerd]
    default = "runc"  # stays
    [plugins."x/y".containerd.runtimes.runc]  # the usual one
      type = 'v2'

[debug]
level = "info\""""
TOML_SETTINGS = [
    (("plugins", "x/y", "containerd", "runtimes", "vcuda"), {"type": "v2", "options": {"B": "/b"}}),
    (("plugins", "x/y", "containerd", "default"), "vcuda"),
    (("plugins", "x/y", "containerd", "new"), [1, "two"]),
]
TOML_AFTER = """\
version = 2
# the operator's own words
[plugins]
  [plugins."x/y".containerd]
    default = "vcuda"  # stays
    new = [1, "two"]
    [plugins."x/y".containerd.runtimes.runc]  # the usual one
      type = 'v2'

[debug]
level = "info"

# Added by 'vcuda configure'; with --undo it goes again.
[plugins."x/y".containerd.runtimes.vcuda]
  type = "v2"
[plugins."x/y".containerd.runtimes.vcuda.options]
  B = "/b"
"""


def test_toml_is_added_to_in_its_own_style() -> None:
    assert done_to("toml", TOML_BEFORE, TOML_SETTINGS)[0] == TOML_AFTER


def test_hand_edited_table_is_retained_and_reported() -> None:
    _, done = done_to("toml", TOML_BEFORE, TOML_SETTINGS)
    edited = TOML_AFTER.replace('B = "/b"', 'B = "/other"').replace("info", "debug")
    text, left = removed(edited, done, "file")
    changed = "was changed since, and stays; remove it by hand"
    assert list(map(str, left)) == [f'plugins."x/y".containerd.runtimes.vcuda: {changed}']
    assert text == edited.replace('default = "vcuda"', 'default = "runc"').replace(
        '    new = [1, "two"]\n', ""
    )


def test_file_rewritten_by_another_tool_loses_only_our_settings() -> None:
    _, done = done_to("toml", TOML_BEFORE, TOML_SETTINGS)
    rewritten = """\
[debug]
level = "info"
[plugins."x/y".containerd]
default = "vcuda"
new = [ 1, "two" ]
[plugins."x/y".containerd.runtimes]
[plugins."x/y".containerd.runtimes.vcuda]
type = "v2"
[plugins."x/y".containerd.runtimes.vcuda.options]
B = "/b"
[plugins."x/y".containerd.runtimes.kata]
type = "kata"
"""
    assert removed(rewritten, done, "file") == (
        """\
[debug]
level = "info"
[plugins."x/y".containerd]
default = "runc"
[plugins."x/y".containerd.runtimes]
[plugins."x/y".containerd.runtimes.kata]
type = "kata"
""",
        [],
    )


@pytest.mark.parametrize(
    ("form", "text", "line", "what"),
    [
        ("json", '{\n  "a": 1,\n}', 3, "is not JSON: "),
        ("json", "// comment\n{}", 1, "is not JSON: Expecting value"),
        ("json", "[]", None, "is not an object"),
        ("toml", "a = 1\nb 2\n", 2, "is not TOML: a key without '='"),
        ("toml", "a = 1\na = 2\n", 2, "is not TOML: 'a' is set twice"),
    ],
)
def test_a_text_that_does_not_parse_is_reported_with_its_line(
    form: str, text: str, line: int | None, what: str
) -> None:
    with pytest.raises(VcudaError) as raised:
        text_edit.parse(form, text, "/etc/file")
    assert raised.value.where == ("/etc/file" if line is None else f"/etc/file:{line}")
    assert raised.value.what.startswith(what)


@pytest.mark.parametrize(
    ("form", "text", "line"),
    [
        (
            "toml",
            'plugins = {"x/y" = {}}',
            'file: plugins."x/y".containerd.runtimes is written in a form that can\'t be added to; '
            'write it as a table [plugins."x/y".containerd.runtimes]',
        ),
        (
            "toml",
            'plugins."x/y" = 3',
            'file: plugins."x/y" is not a table; make it one, or remove it',
        ),
        (
            "toml",
            '[plugins."x/y".containerd.runtimes.vcuda]\ntype = "v1"',
            'file: plugins."x/y".containerd.runtimes.vcuda exists with another value; '
            "remove it, and run this again",
        ),
    ],
    ids=["inline", "no table", "another's"],
)
def test_what_cannot_be_added_to_is_refused(form: str, text: str, line: str) -> None:
    with pytest.raises(VcudaError) as raised:
        added(form, text, TOML_SETTINGS, "file")
    assert str(raised.value) == line


def test_json_members_are_found_behind_any_white_space() -> None:
    text = ' {"a"\n:{ } ,"b":[1,{"a":2}]}'
    assert (json_text.raw(text, ("a",)), json_text.raw(text, ("b", "a"))) == ("{ }", None)
    assert json_text.put(text, ("a", "x"), 1) == (' {"a"\n:{\n  "x": 1\n} ,"b":[1,{"a":2}]}')
