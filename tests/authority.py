"""A certificate authority of a site, and the certificates that it has made."""

import subprocess
from pathlib import Path

DAYS = ["-days", "30"]


class Authority:
    """`trusted` is a directory of authorities as grid sites have it."""

    def __init__(self, home: Path, name: str = "authority"):
        self.home = home
        self.trusted = home / "authorities"
        self.trusted.mkdir()
        self.openssl(
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            "ca.key",
            "-out",
            "ca.pem",
            *DAYS,
            "-subj",
            f"/DC=org/DC=example/CN={name}",
        )
        hashed = self.openssl("x509", "-in", "ca.pem", "-noout", "-subject_hash").stdout.strip()
        (self.trusted / f"{hashed}.0").write_bytes((home / "ca.pem").read_bytes())

    def openssl(self, *arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run(["openssl", *arguments], cwd=self.home, check=True, capture_output=True, text=True)

    def issue(self, name: str, hosts: str = "DNS:localhost,IP:127.0.0.1") -> tuple[Path, Path]:
        key, certificate = self.home / f"{name}.key", self.home / f"{name}.pem"
        self.openssl(
            "req", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", f"{name}.csr", "-subj", f"/DC=org/DC=example/CN={name}"
        )
        (self.home / f"{name}.ext").write_text(f"subjectAltName={hosts}\n")
        self.openssl(
            "x509",
            "-req",
            "-in",
            f"{name}.csr",
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-out",
            str(certificate),
            *DAYS,
            "-extfile",
            f"{name}.ext",
        )
        key.chmod(0o600)
        return certificate, key
