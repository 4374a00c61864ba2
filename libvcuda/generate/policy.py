"""Reads policy.list: what the shim does with each entry point."""

from __future__ import annotations

import fnmatch
import re
from typing import NamedTuple

from .headers import SUFFIX, Entry

HOOKED = ("charged", "freed", "metered", "virtualised")
PASSED = "passed"
# A function that answers "not supported"; an export that is the driver's alone.
REFUSED, ABSENT = "refused", "absent"
KINDS = (*HOOKED, PASSED, REFUSED, ABSENT)
# Beside one of these: a call that does not look whether the container is suspended.
UNASKED = "unasked"
# Words in the names of CUDA's functions that get memory or start work.
GETS_OR_STARTS = re.compile("(Alloc|Create|Import|Instantiate|Launch|Load)(?![a-z])")


class Rule(NamedTuple):
    """One line: a kind, a pattern of export names, and a reason unless it is hooked."""

    kind: str
    pattern: str
    reason: str


class PolicyError(Exception):
    """An entry point without a rule, or a rule without an entry point."""


def read(path: str) -> list[Rule]:
    rules: list[Rule] = []
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            words = line.split("#", 1)[0].split(None, 2)
            if not words:
                continue
            kind, pattern = words[0], words[1] if len(words) > 1 else ""
            reason = words[2].strip() if len(words) > 2 else ""
            known = kind in (*KINDS, UNASKED)
            if not known or not pattern or (kind not in HOOKED and not reason):
                raise PolicyError(
                    f"{path}:{number}: expected KIND PATTERN [REASON], kind one of "
                    f"{' '.join((*KINDS, UNASKED))}; {PASSED}, {REFUSED}, {ABSENT} and {UNASKED} "
                    "need a reason"
                )
            rules.append(Rule(kind, pattern, reason))
    return rules


def assign(entries: list[Entry], rules: list[Rule]) -> dict[str, Rule]:
    """The first rule that matches each entry's name, or the name without its suffixes.

    Raises PolicyError: an entry that no rule names, or a rule that names none. A wildcard of
    `passed` names none that shows processes, gets memory or starts work by its name, or has another
    version with a policy function.
    """
    rules = [rule for rule in rules if rule.kind != UNASKED]
    with_policy = {SUFFIX.sub("", rule.pattern) for rule in rules if rule.kind in HOOKED}
    used: set[Rule] = set()
    assigned: dict[str, Rule] = {}
    missing: list[str] = []
    for entry in entries:
        needs_own_rule = (
            entry.shows_processes
            or entry.base in with_policy
            or (entry.library == "cuda" and GETS_OR_STARTS.search(entry.base))
        )
        for rule in rules:
            if rule.kind in HOOKED:
                # A policy function has one signature, so it is named exactly.
                match = entry.name == rule.pattern
            else:
                match = fnmatch.fnmatchcase(entry.base, rule.pattern)
            is_wildcard = rule.kind == PASSED and "*" in rule.pattern
            if match and not (is_wildcard and needs_own_rule):
                assigned[entry.name] = rule
                used.add(rule)
                break
        else:
            missing.append(entry.name)
    idle = [rule.pattern for rule in rules if rule not in used]
    if missing or idle:
        raise PolicyError(
            f"on no list: {' '.join(missing) or 'none'}; "
            f"rules for nothing: {' '.join(idle) or 'none'}"
        )
    return assigned


def unasked(entries: list[Entry], rules: list[Rule]) -> set[str]:
    """The entries of libcuda that do not look whether the container is suspended.

    Raises PolicyError: a rule that names none.
    """
    patterns = {rule.pattern for rule in rules if rule.kind == UNASKED}
    names: set[str] = set()
    for pattern in patterns:
        found = {
            entry.name
            for entry in entries
            if entry.library == "cuda" and fnmatch.fnmatchcase(entry.base, pattern)
        }
        if not found:
            raise PolicyError(f"{UNASKED} {pattern} names no function of libcuda")
        names |= found
    return names
