"""Servers that take certificates."""

import os
import pwd
import shutil

from authority import Authority
from harness import Xrootd


class GsiXrootd(Xrootd):
    """A stock xrootd that takes certificates."""

    def __init__(self, home, authority, more_options: str = "", more: str = ""):
        super().__init__(home)
        self.keys = home / "keys"
        shutil.copytree(authority.trusted, self.keys / "authorities")
        for path, name in zip(authority.issue(home.name), ("cert.pem", "key.pem"), strict=True):
            shutil.copy(path, self.keys / name)
        (self.keys / "key.pem").chmod(0o400)
        options = f"-certdir:{self.keys}/authorities -cert:{self.keys}/cert.pem -key:{self.keys}/key.pem -crl:0 -gmapopt:10 -vomsat:0"
        options += f" {more_options}"
        self.more = f"xrootd.seclib libXrdSec.so\nsec.protocol gsi {options}\nsec.protbind * only gsi\n{more}"

    def start(self):
        if os.getuid() == 0:
            user = pwd.getpwnam("xrootd")
            for path in (self.keys, *self.keys.rglob("*")):
                os.chown(path, user.pw_uid, user.pw_gid)
        return super().start()


def weir_settings(authority: Authority, name: str, more: str = "") -> str:
    """The configuration of a node that takes certificates alone: `keeper` is its administrator, and `ana` a user."""
    certificate, key = authority.issue(name, "DNS:localhost,IP:127.0.0.1")
    return f"""
tls.certificate = "{certificate}"
tls.key = "{key}"
authentication.mechanisms = ["gsi"]
authentication.gsi_authorities = "{authority.trusted}"
{more}
[[identity]]
certificate = "/DC=org/DC=example/CN=keeper"
principal = "admin"
[[identity]]
certificate = "/DC=org/DC=example/CN=ana"
principal = "ana"
groups = ["physics"]
"""
