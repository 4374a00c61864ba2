"""What a check of `vcuda doctor` found: one line that says where, what, and a hint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from vcuda_oci.model.errors import VcudaError

from ..text import table

OK, INFO, UNKNOWN, WARNING, ERROR = "ok", "info", "unknown", "warning", "error"
SEVERITIES = (OK, INFO, UNKNOWN, WARNING, ERROR)  # in order of severity
_EXIT_CODES = {OK: 0, INFO: 0, UNKNOWN: 1, WARNING: 1, ERROR: 2}


@dataclass
class Finding:
    """name: the check's. unknown: the check could not look. where, hint: "" if there is none."""

    name: str
    severity: str
    what: str
    where: str = ""
    hint: str = ""

    def __str__(self) -> str:
        line = f"{self.where}: {self.what}" if self.where else self.what
        # A name from a hostile file must not break the line.
        return table.printable(f"{line}; {self.hint}" if self.hint else line)


def as_json(finding: Finding) -> dict[str, str]:
    """A finding for JSON, where the hint's key is `mend` in all versions."""
    fields = asdict(finding)
    fields["mend"] = fields.pop("hint")
    return fields


def of_error(name: str, error: VcudaError) -> Finding:
    return Finding(name, ERROR, error.what, error.where, error.hint)


def need_root(names: Sequence[str]) -> list[Finding]:
    """The findings of checks that only root can make."""
    return [Finding(name, UNKNOWN, "not checked", hint="run it as root") for name in names]


def exit_code(findings: Sequence[Finding]) -> int:
    """0: no fault. 1: warnings, or a check that could not run. 2: errors."""
    return max((_EXIT_CODES[finding.severity] for finding in findings), default=0)
