"""A certificate authority of a site, and the certificates that it has made."""

import subprocess
from pathlib import Path

DAYS = ["-days", "30"]
# The machines of a cluster on loopback. XrdCl 5.5 compares an address with the names in a certificate only.
HOSTS = ",".join(["DNS:localhost", *(f"{kind}:127.0.0.{number}" for number in range(1, 5) for kind in ("DNS", "IP"))])


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

    def revoke(self, *certificates: Path) -> str:
        """Adds them to the list of revoked certificates. Returns its text; `trusted` does not have it yet."""
        if not (self.home / "ca.cnf").exists():
            (self.home / "index.txt").write_text("")
            (self.home / "number").write_text("01\n")
            (self.home / "ca.cnf").write_text(
                "[ca]\ndefault_ca=own\n[own]\ndatabase=index.txt\ncrlnumber=number\ndefault_md=sha256\ndefault_crl_days=30\n"
            )
        by = ["-config", "ca.cnf", "-cert", "ca.pem", "-keyfile", "ca.key"]
        for certificate in certificates:
            self.openssl("ca", *by, "-revoke", str(certificate))
        self.openssl("ca", *by, "-gencrl", "-out", "revoked.pem")
        return (self.home / "revoked.pem").read_text()

    def issue(self, name: str, hosts: str = "DNS:localhost,IP:127.0.0.1", kind: str = "rsa:2048") -> tuple[Path, Path]:
        """A new certificate and its key, of the kind `rsa:BITS` or `ec:CURVE`."""
        algorithm = ["ec", "-pkeyopt", f"ec_paramgen_curve:{kind[3:]}"] if kind.startswith("ec:") else [kind]
        key, certificate = self.home / f"{name}.key", self.home / f"{name}.pem"
        subject = f"/DC=org/DC=example/CN={name}"
        self.openssl("req", "-newkey", *algorithm, "-nodes", "-keyout", str(key), "-out", f"{name}.csr", "-subj", subject)
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
