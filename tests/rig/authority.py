"""A certificate authority of a test's own, by openssl."""

from __future__ import annotations

from pathlib import Path

from rig.net import run

#: What a certificate that signs none is made with.
LEAF = ("-addext", "basicConstraints=critical,CA:FALSE")


class Authority:
    """A certificate authority of the test's own."""

    def __init__(self, folder: Path) -> None:
        """Make its key and certificate."""
        self.folder = folder
        self.certificate = folder / "ca.pem"
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")

    def openssl(self, *arguments: str, name: str = "ca") -> None:
        """Run openssl for a key and a certificate of that name."""
        files = ("-keyout", str(self.folder / f"{name}.key"), "-out", str(self.folder / f"{name}.pem"))
        run("openssl", *arguments, "-days", "2", "-subj", f"/CN={name}", *files)

    def issue(self, name: str, *more: str) -> tuple[Path, Path]:
        """A certificate and its key; of a server at an address, or of a client."""
        signs = ("-CA", str(self.certificate), "-CAkey", str(self.folder / "ca.key"))
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        self.openssl("req", "-x509", *curve, *signs, *more, name=name)
        return self.folder / f"{name}.pem", self.folder / f"{name}.key"

    def fingerprint(self, certificate: Path) -> str:
        """As openssl prints it."""
        told = run("openssl", "x509", "-in", str(certificate), "-noout", "-fingerprint", "-sha256").stdout
        return told.strip().split("=")[1]
