"""The images' bases are pinned by digest."""

from __future__ import annotations

import os
import re

from support.files import ROOT


def test_every_base_image_is_named_by_digest() -> None:
    with open(os.path.join(ROOT, "packaging/Containerfile")) as file:
        text = file.read()
    defaults = dict(re.findall(r"^ARG (\w+)=(\S+)$", text, re.MULTILINE))
    stages, bases = set(), []
    for base, stage in re.findall(r"^FROM (?:--\S+ )*(\S+)(?: AS (\S+))?$", text, re.MULTILINE):
        if base not in stages:
            bases.append(re.sub(r"\$\{?(\w+)\}?", lambda found: defaults[found[1]], base))
        stages.add(stage)
    assert len(re.findall(r"^\s*FROM\b", text, re.MULTILINE | re.IGNORECASE)) == len(stages)
    assert bases
    for base in bases:
        assert re.fullmatch(r"[a-z]+:[a-z-]+@sha256:[0-9a-f]{64}", base), base
