"""The documented ways to install packages, run on Debian's files."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from release.packages import built
from release.packages.hosts import node
from release.packages.hosts.machine import Machine
from support.host.private_host import Result

PARTS = [f"vcuda-{part}" for part in built.PARTS]


@dataclass(frozen=True)
class Way:
    """form: how its packages' names end. versions: prints a line for each that is there."""

    program: str
    form: str
    add: str
    remove: str
    versions: str

    def prepare(self, made: Machine) -> None:
        """What is there where this way is at home."""
        if self.program == "rpm":
            made.check("rpmdb", "--initdb")

    def adding(self, made: Machine, folder: str, *parts: str) -> str:
        """The command, with the files brought. The same for another version, newer or older."""
        return f"{self.add} {shlex.join(node.bring(made, built.files(self.form, folder, *parts)))}"

    def install(self, made: Machine, folder: str, *parts: str) -> Result:
        return made.run("sh", "-c", self.adding(made, folder, *parts))

    def uninstall(self, made: Machine) -> Result:
        return made.run("sh", "-c", self.remove)

    def installed(self, made: Machine) -> list[str]:
        """Name and version of each, with no word of one that is half there."""
        return made.check("sh", "-c", self.versions).splitlines()


DPKG = Way(
    "dpkg",
    "deb",
    add="dpkg -i --force-confold",
    remove=f"dpkg --remove {' '.join(PARTS)}",
    versions="dpkg-query -W -f '${Package} ${Version} ${Status}\n' 'vcuda-*' |"
    " sed -n 's/ install ok installed$//p'",
)
# On Debian's files rpm knows of no python3, and says that it should not be there at all.
_RPM = "rpm --force-debian"
RPM = Way(
    "rpm",
    "rpm",
    add=f"{_RPM} --nodeps -U --replacepkgs --oldpackage",
    remove=f"{_RPM} -qa 'vcuda-*' | xargs --no-run-if-empty {_RPM} --nodeps -e",
    versions=f"{_RPM} -qa --qf '%{{name}} %{{version}}-%{{release}}\n' | sort",
)
