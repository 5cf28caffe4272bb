"""Stock xrootd servers that want to know who a client is, or speak TLS. They run as another user, who gets the keys."""

import os
import pwd
import shutil
from collections.abc import Iterable
from pathlib import Path

from authority import Authority
from harness import Xrootd
from secrets_of import Key, write_keytab


class SecureXrootd(Xrootd):
    """A stock server with secrets in the folder `keys`."""

    def __init__(self, home: Path):
        super().__init__(home)
        self.keys = home / "keys"
        self.keys.mkdir(parents=True)

    def host_certificate(self, authority: Authority) -> tuple[Path, Path]:
        certificate, key = (
            Path(shutil.copy(path, self.keys / name))
            for path, name in zip(authority.issue(self.home.name), ("cert.pem", "key.pem"), strict=True)
        )
        key.chmod(0o400)
        return certificate, key

    def authenticate(self, mechanism: str, options: str) -> None:
        self.more += f"xrootd.seclib libXrdSec.so\nsec.protocol {mechanism} {options}\nsec.protbind * only {mechanism}\n"

    def start(self) -> "SecureXrootd":
        if os.getuid() == 0:
            user = pwd.getpwnam("xrootd")
            for path in (self.keys, *self.keys.rglob("*")):
                os.chown(path, user.pw_uid, user.pw_gid)
        super().start()
        return self


class TlsXrootd(SecureXrootd):
    """It speaks TLS. `required` names what has to be encrypted, as `xrootd.tls` has it."""

    def __init__(self, home: Path, authority: Authority, required: str, more: str = ""):
        super().__init__(home)
        certificate, key = self.host_certificate(authority)
        self.more = f"xrd.tls {certificate} {key}\nxrd.tlsca noverify\nxrootd.tls {required}\n{more}"


class GsiXrootd(SecureXrootd):
    """It takes certificates."""

    def __init__(self, home: Path, authority: Authority, more_options: str = "", more: str = ""):
        super().__init__(home)
        certificate, key = self.host_certificate(authority)
        trusted = shutil.copytree(authority.trusted, self.keys / "authorities")
        self.authenticate("gsi", f"-certdir:{trusted} -cert:{certificate} -key:{key} -crl:0 -gmapopt:10 -vomsat:0 {more_options}")
        self.more += more


class SssXrootd(SecureXrootd):
    """It takes shared secrets."""

    def __init__(self, home: Path, secrets: Iterable[Key]):
        super().__init__(home)
        self.authenticate("sss", f"-s {write_keytab(self.keys / 'server.keytab', secrets)}")
