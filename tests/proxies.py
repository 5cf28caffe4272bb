"""Users with certificates of an authority, and their proxies (RFC 3820), made with openssl."""

import subprocess
from pathlib import Path

from authority import Authority

LANGUAGES = {"full": "id-ppl-inheritAll", "independent": "id-ppl-independent", "limited": "1.3.6.1.4.1.3536.1.1.1.9"}


class User:
    """Somebody with a certificate: `/DC=org/DC=example/CN=<name>`."""

    def __init__(self, authority: Authority, name: str):
        self.authority, self.name = authority, name
        self.subject = f"/DC=org/DC=example/CN={name}"
        self.certificate, self.key = authority.issue(name, hosts="email:somebody@example.org")
        self.made = 0

    def proxy(self, kind: str = "full", of: Path | None = None, days: int = 1, more: str = "") -> Path:
        """The file of a new proxy, of the user's own certificate or of another proxy. `days=-1`: it has expired."""
        home, self.made = self.authority.home, self.made + 1
        stem = f"{self.name}-proxy-{self.made}"
        (home / f"{stem}.ext").write_text(
            f"keyUsage=critical,digitalSignature,keyEncipherment\nproxyCertInfo=critical,language:{LANGUAGES[kind]}{more}\n"
        )
        issuer = of or self.certificate
        subject = self.authority.openssl("x509", "-in", str(issuer), "-noout", "-subject", "-nameopt", "compat").stdout
        subject = subject.strip().removeprefix("subject=")
        self.authority.openssl(
            "req",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            f"{stem}.key",
            "-out",
            f"{stem}.csr",
            "-subj",
            f"{subject}/CN={1000 + self.made}",
        )
        self.authority.openssl(
            *[
                "x509",
                "-req",
                "-in",
                f"{stem}.csr",
                "-CA",
                str(issuer),
                "-CAkey",
                str(of or self.key),
                "-set_serial",
                str(1000 + self.made),
            ],
            *["-out", f"{stem}.pem", "-days", str(days), "-extfile", f"{stem}.ext"],
        )
        chain = issuer.read_bytes()
        file = home / f"{stem}"
        file.write_bytes((home / f"{stem}.pem").read_bytes() + (home / f"{stem}.key").read_bytes() + chain)
        file.chmod(0o600)
        return file

    def voms_proxy(self, server: tuple[Path, Path], *fqans: str) -> Path:
        """A proxy with attributes of the organization wlcg, which a server with this certificate and key has signed."""
        self.made += 1
        file = self.authority.home / f"{self.name}-voms-{self.made}"
        certificate, key = server
        asked = [word for fqan in fqans for word in ("-fqan", fqan)]
        subprocess.run(
            ["voms-proxy-fake", "-cert", self.certificate, "-key", self.key, "-certdir", self.authority.trusted]
            + ["-hostcert", certificate, "-hostkey", key, "-voms", "wlcg", *asked, "-uri", "voms.example.org:15000"]
            + ["-rfc", "-bits", "2048", "-out", file],
            check=True,
            capture_output=True,
        )
        return file
