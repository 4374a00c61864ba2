"""``vcuda doctor --upgrade``: what this version changes on a host where another one is installed.

It is run from the unpacked package of the new version, so that settings, records, pages and
engines' files are read as that version will read them. It changes nothing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence

from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model import names
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.start import apply_share
from vcuda_oci.system import files, settings_file
from vcuda_oci.system.settings_file import Config

from ..engines import configure, undo_record
from ..live import shim_mark, usage
from ..names import container_names
from . import cdi_specs, containers, finding, state
from .finding import ERROR, INFO, OK, UNKNOWN, WARNING, Finding

VERSIONS, SETTINGS, RECORDS = "upgrade", "upgrade-settings", "upgrade-records"
SHIMS, ENGINES, UNITS = "upgrade-shims", "upgrade-engines", "upgrade-units"
CDI = "upgrade-cdi"
CHECKS = (VERSIONS, SETTINGS, RECORDS, SHIMS, ENGINES, UNITS, CDI)
# The prefix of this program's version.
_PREFIX = os.path.dirname(os.path.dirname(apply_share.HOOK))
_NOTES = f"the release's notes: {_PREFIX}/share/doc/vcuda-runtime/changelog.gz"
_ADMINISTRATORS = "/etc/systemd/system"
_SHIM_FILE = re.compile(r"libvcuda-[0-9a-f]{16}\.so")
_SECONDS = 10
# The defaults of another version, by that version's own code.
_DEFAULTS_OF = """
import json, sys
sys.path.insert(0, sys.argv[1])
from vcuda_oci.system import settings_file
print(json.dumps(settings_file._DEFAULTS))
"""


def examine(settings: Config) -> list[Finding]:
    """settings: as far as this version accepts them."""
    installed = _installed()
    today = os.path.basename(os.path.realpath(apply_share.SHIM))
    found = [versions(installed, shim_mark.expected())]
    found += settings_file_refused(settings.path) or settings_lines(
        _text(settings.path), settings.path, _defaults(installed)
    )
    found += _of_containers(settings, today)
    found += engines(settings.path, installed) if installed else [_nothing(ENGINES)]
    found += units(installed, _PREFIX) if installed else [_nothing(UNITS)]
    return [*found, *specifications(cdi_specs.FOLDERS, today)]


def accepted(path: str) -> Config:
    """The settings without the lines that this version refuses; of a file that it refuses as a
    whole, such as for its owner, nothing: what it names might be run.
    """
    if settings_file_refused(path):
        return settings_file.parse("", path)
    text = _text(path)
    refused = {number for number, _ in _refused(text, path)}
    lines = enumerate(text.split("\n"), 1)
    return settings_file.parse("\n".join(line for at, line in lines if at not in refused), path)


def versions(installed: str, new: str) -> Finding:
    """installed: its prefix, or ""; new: the mark of this version's shim."""
    if not installed:
        return _nothing(VERSIONS)
    try:
        old = shim_mark.read(f"{installed}/lib/vcuda/libvcuda.so.1") or "an unknown version"
    except OSError as error:
        return Finding(VERSIONS, UNKNOWN, f"no shim there: {error.strerror}", installed, _NOTES)
    if old == new:
        return Finding(VERSIONS, OK, f"{old} is installed: the same", installed)
    return Finding(VERSIONS, INFO, f"from {old} to {new}", installed, _NOTES)


def settings_file_refused(path: str) -> list[Finding]:
    """Why this version refuses the file as a whole, such as for its owner."""
    try:
        settings_file.load(path)
    except VcudaError as error:
        if error.where == path:
            return [finding.of_error(SETTINGS, error)]
    return []


def settings_lines(text: str, path: str, former: Mapping[str, object] | None) -> list[Finding]:
    """Lines that this version refuses, and defaults that change. former: the installed version's
    defaults; None: unknown.
    """
    found = [finding.of_error(SETTINGS, error) for _, error in _refused(text, path)]
    named = {line.partition("=")[0].strip() for line in text.split("\n")}
    for key, value in settings_file._DEFAULTS.items():
        before = (former or {}).get(key, value)
        if before != value and key not in named:
            what = f"the default of {key} changes from {json.dumps(before)} to {json.dumps(value)}"
            hint = f"to keep it, write {key} = {json.dumps(before)}"
            found.append(Finding(SETTINGS, WARNING, what, path, hint))
    if former is None and not found:
        what = "every line is accepted; which defaults change is unknown"
        return [Finding(SETTINGS, UNKNOWN, what, path, _NOTES)]
    return found or [Finding(SETTINGS, OK, "every line is accepted, and no default changes", path)]


def engines(settings_path: str, installed: str) -> list[Finding]:
    """Files that `vcuda configure` would write differently than it did."""
    found = []
    try:
        records = undo_record.all_of(settings_path)
    except VcudaError as error:
        return [Finding(ENGINES, UNKNOWN, error.what, error.where, error.hint)]
    for name, record in records:
        command = f"'vcuda configure {name}'"
        try:
            outcome = configure.again(name, record, settings_path, installed)
        except VcudaError as error:
            what = f"{command} would fail: {error.what}"
            found.append(Finding(ENGINES, WARNING, what, error.where, error.hint))
            continue
        if outcome.diff:
            lines = sum(line[:1] in "+-" for line in outcome.diff.split("\n")[2:] if line)
            what = f"{command} would now write it differently, {lines} lines"
            hint = f"the upgrade leaves it; then see {command[:-1]} --dry-run'"
            found.append(Finding(ENGINES, INFO, what, outcome.path, hint))
    return found or [Finding(ENGINES, OK, "what 'vcuda configure' wrote stays as it is")]


def units(installed: str, new: str, administrators: str = _ADMINISTRATORS) -> list[Finding]:
    """Units that change, and those that another one hides. installed, new: prefixes."""
    found = []
    folder = "lib/systemd/system"
    for name in _listed(f"{new}/{folder}"):
        old = f"{installed}/{folder}/{name}"
        is_new = _content(old) != _content(f"{new}/{folder}/{name}")
        if is_new and os.path.lexists(f"{administrators}/{name}"):
            what = "hides the package's unit, which changes"
            hint = f"compare it with {new}/{folder}/{name}"
            found.append(Finding(UNITS, WARNING, what, f"{administrators}/{name}", hint))
        elif is_new:
            hint = "the package restarts the service if it runs"
            what = "changes" if os.path.exists(old) else "is new"
            found.append(Finding(UNITS, INFO, what, old, hint))
    return found or [Finding(UNITS, OK, "no unit changes")]


def specifications(folders: Sequence[str], today: str) -> list[Finding]:
    """CDI specifications that name another file than `today`, the new shim's."""
    found = []
    for each in cdi_specs.read_host(folders):
        named = set(_SHIM_FILE.findall(_text(each.path)))
        if not named - {today}:
            continue
        if re.fullmatch(r"(/var)?/run/cdi/vcuda(-.*)?\.json", each.path):
            what, hint = "names the former shim", "the package writes it again, with its slices"
            found.append(Finding(CDI, INFO, what, each.path, hint))
        else:
            what = "names the former shim, which the package removes"
            hint = f"after the upgrade run 'vcuda cdi generate --output {each.path}'"
            found.append(Finding(CDI, WARNING, what, each.path, hint))
    return found or [Finding(CDI, OK, "no specification names another shim")]


def _of_containers(settings: Config, today: str) -> list[Finding]:
    """Records and pages as this version reads them, and the shims of running containers."""
    if os.geteuid() != 0:
        return finding.need_root((RECORDS, SHIMS))
    ledger = Ledger(settings.state_dir)
    allocations, broken = ledger.read()
    names = container_names.lines(allocations)
    found = state.records(settings.state_dir) if broken else []
    for allocation in allocations:
        for page in (usage.limits, usage.whole_page):
            if reason := page(ledger, allocation).get("error"):
                what = f"this version cannot read its pages: {reason}"
                hint = "end the container before the upgrade"
                found.append(Finding(RECORDS, ERROR, what, names[allocation.id], hint))
                break
    found = found or [Finding(RECORDS, OK, f"{len(allocations)} are read by this version")]
    for each in found:
        each.name = RECORDS
    shims = containers.older_shim(
        [containers.read_host(each, names[each.id]) for each in allocations], today
    )
    shims.name = SHIMS
    return [*found, shims]


def _refused(text: str, path: str) -> list[tuple[int, VcudaError]]:
    """Number and error of each refused line, such as the second one of a key."""
    found, keys = [], set[str]()
    for number, line in enumerate(text.split("\n"), 1):
        key, where = line.partition("=")[0].strip(), f"{path}:{number}"
        try:
            settings_file.parse(line, path)
            if key in keys:
                raise VcudaError(f"'{key}' is set twice", where, "remove one of the lines")
        except VcudaError as error:
            found.append((number, VcudaError(error.what, where, error.hint)))
        if key in settings_file._DEFAULTS:
            keys.add(key)
    return found


def _installed() -> str:
    """The prefix of the installed version, such as /usr; "": none is in PATH."""
    program = shutil.which(names.PROGRAM)
    return os.path.dirname(os.path.dirname(os.path.realpath(program))) if program else ""


def _defaults(installed: str) -> dict[str, object] | None:
    command = [sys.executable, "-ISBc", _DEFAULTS_OF, f"{installed}/lib/vcuda/python"]
    try:
        done = subprocess.run(
            command, capture_output=True, check=True, timeout=_SECONDS, stdin=subprocess.DEVNULL
        )
        return dict(json.loads(done.stdout))
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def _nothing(name: str) -> Finding:
    hint = "no vcuda-container-runtime is in PATH"
    return Finding(name, UNKNOWN, "no installed version was found", hint=hint)


def _listed(folder: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if "." in name[1:])
    except OSError:
        return []


def _content(path: str) -> bytes | None:
    try:
        return files.read(path, follow=True)
    except OSError:
        return None


def _text(path: str) -> str:
    return (_content(path) or b"").decode(errors="replace")
