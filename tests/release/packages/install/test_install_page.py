"""Every command of docs/install.md does what the page says, in its order."""

from __future__ import annotations

import glob
import re

from release.docs.commands import blocks
from release.docs.commands import commands as of_block
from release.packages import built
from release.packages.hosts import node
from release.packages.hosts.machine import REPOSITORY, Machine

PAGE = "docs/install.md"
# What has made the packages that these tests install.
BY_MAKE = {"make packages"}


def commands() -> dict[str, list[str]]:
    """By the heading above, without `sudo` and comments."""
    with open(f"{REPOSITORY}/{PAGE}") as page:
        sections = re.split(r"(?m)^## ", page.read().removeprefix("# "))
    found = {}
    for section in sections:
        title, _, text = section.partition("\n")
        shell = [block for block in blocks(PAGE, text) if block.language == "sh"]
        found[title] = [line.text for block in shell for line in of_block(block)]
    return found


def follow(machine: Machine, lines: list[str]) -> None:
    for line in set(lines) & BY_MAKE:
        lines.remove(line)
    for line in lines:
        done = machine.run("bash", "-c", f"PATH=/usr/local/bin:$PATH; cd /mnt/shared; {line}")
        # The doctor of a machine with runc 1.1.5 warns.
        assert done.rc == (1 if line == "vcuda doctor" else 0), line + done.stdout + done.stderr


def test_the_page_leads_through_the_life_of_the_debs(booted: Machine) -> None:
    before = booted.names()
    node.bring(booted, glob.glob(built.folder() + "/*"))
    expected = commands()
    follow(booted, expected["Install"])
    follow(booted, expected["Debian 12, Ubuntu 22.04 and later"])
    node.join_cluster(booted)
    follow(booted, expected["After the installation"])
    assert node.allocates(booted) == node.STOPPED_AT_1_GIB
    for title in ("Upgrade", "Remove"):
        follow(booted, [line for line in expected[title] if not line.startswith("rpm ")])
    assert booted.names() == before


def test_the_page_leads_through_the_life_of_the_rpms(plain: Machine) -> None:
    # On Debian's files rpm knows of no python3, and says that it should not be there at all.
    unneeding = '[ "$1" = -qa ] || set -- --nodeps "$@"'
    quietly = f'{unneeding}\nexec /usr/bin/rpm --force-debian "$@"'
    plain.write("/usr/local/bin/rpm", f"#!/bin/sh\n{quietly}\n", 0o755)
    before = plain.names()
    node.bring(plain, glob.glob(built.folder() + "/*"))
    expected = commands()
    follow(plain, expected["RHEL 9 and derivatives"])
    # No systemd runs here: what its unit does.
    plain.check("softgpu", "create", "/run/softgpu", "--gpus", "2")
    follow(plain, [line for line in expected["After the installation"] if "systemctl" not in line])
    assert node.allocates(plain) == node.STOPPED_AT_1_GIB
    follow(plain, expected["When something fails"])
    for title in ("Upgrade", "Remove"):
        follow(plain, [line for line in expected[title] if line.startswith("rpm ")])
    # No systemd took the records along.
    assert plain.names() - before == {"/run/vcuda"}
