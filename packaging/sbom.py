"""The bill of materials of a folder of packages, and a chart: CycloneDX 1.6 in JSON, on stdout.

Usage: sbom.py FOLDER, with VCUDA_VERSION and SOURCE_DATE_EPOCH. Of other projects a package holds
only musl, which its static programs are linked with: this host's, or the one that
packaging/musl-arm64 fetched. It needs what its Depends name; the chart needs one image.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import subprocess
import sys
import uuid

from cyclonedx.factory.license import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

OURS = [LicenseFactory().make_from_string("Apache-2.0")]
# Packages with programs that are linked with musl: oci/launcher/build.mk.
STATIC = ("vcuda-runtime",)
# The types of package URLs, by the ending of a file.
FORMS = {"deb": "deb", "rpm": "rpm", "tgz": "helm"}


def main() -> None:
    folder = sys.argv[1]
    version, epoch = os.environ["VCUDA_VERSION"], int(os.environ["SOURCE_DATE_EPOCH"])
    product = Component(
        name="vcuda", version=version, type=ComponentType.APPLICATION, licenses=OURS
    )
    made = datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc)
    bom = Bom(metadata=BomMetaData(component=product, timestamp=made))
    digests, packages = [], []
    for name in sorted(os.listdir(folder)):
        form = name.rpartition(".")[2]
        if form not in FORMS:
            continue
        with open(f"{folder}/{name}", "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()
        architecture = architecture_of(name, form)
        short = name.replace("_", "-").partition(f"-{version}")[0]
        package = Component(
            name=short,
            version=version,
            type=ComponentType.APPLICATION,
            bom_ref=name,
            licenses=OURS,
            purl=PackageURL(FORMS[form], "vcuda", short, version, architecture),
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
        )
        digests.append(digest)
        packages.append(package)
        bom.components.add(package)
        needs = [musl(architecture["arch"])] if package.name in STATIC else []
        needs += [outside(word) for word in depends(f"{folder}/{name}", form)]
        bom.components.update(needs)
        bom.register_dependency(package, needs)
    bom.register_dependency(product, packages)
    # The same packages are the same bill.
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_OID, " ".join(digests))
    print(JsonV1Dot6(bom).output_as_string(indent=2))


def architecture_of(name: str, form: str) -> dict[str, str]:
    """As qualifiers of a package URL, which has it by the form's own name."""
    if form == "tgz":
        return {}
    return {"arch": name.removesuffix("." + form).rpartition("_" if form == "deb" else ".")[2]}


def musl(architecture: str) -> Component:
    if architecture in ("arm64", "aarch64"):
        with open("build/arm64/musl/version") as file:
            version = file.read().strip()
    else:
        version = output("dpkg-query", "-W", "-f", "${Version}", "musl-dev")
    return Component(
        name="musl",
        version=version,
        bom_ref=f"musl {version}",
        licenses=[LicenseFactory().make_from_string("MIT")],
    )


def depends(path: str, form: str) -> list[str]:
    """Names of other projects' packages that this one cannot do without."""
    if form == "tgz":
        return ["kube-scheduler"]
    if form == "deb":
        words = output("dpkg-deb", "-f", path, "Depends").split(",")
    else:
        words = output("rpm", "-qp", "--requires", path).splitlines()
    names = [word.split()[0] for word in words if word.strip()]
    return [name for name in names if not name.startswith(("vcuda-", "rpmlib("))]


def outside(name: str) -> Component:
    return Component(name=name, bom_ref=f"needed:{name}", scope=ComponentScope.REQUIRED)


def output(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


main()
