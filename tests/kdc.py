"""A Kerberos realm on this machine: a KDC on loopback with its own configuration and database."""

import os
import struct
import subprocess
import time
from pathlib import Path

from ports import free_port

REALM = "EXAMPLE.ORG"
ENCTYPES = ("aes128-cts-hmac-sha1-96", "aes256-cts-hmac-sha1-96", "aes128-cts-hmac-sha256-128", "aes256-cts-hmac-sha384-192")


class Kdc:
    """The KDC of a realm. Users have their name as password."""

    def __init__(self, home: Path):
        self.home, self.port = home, free_port()
        home.mkdir()
        config, profile = home / "krb5.conf", home / "kdc.conf"
        config.write_text(
            f"""
[libdefaults]
default_realm = {REALM}
dns_lookup_kdc = false
dns_lookup_realm = false
dns_canonicalize_hostname = false
rdns = false
[realms]
{REALM} = {{
  kdc = 127.0.0.1:{self.port}
}}
[logging]
kdc = FILE:{home}/kdc.log
"""
        )
        types = " ".join(f"{name}:normal" for name in ENCTYPES)
        profile.write_text(
            f"""
[kdcdefaults]
kdc_listen = 127.0.0.1:{self.port}
kdc_tcp_listen = 127.0.0.1:{self.port}
[realms]
{REALM} = {{
  database_name = {home}/principal
  key_stash_file = {home}/stash
  acl_file = {home}/acl
  supported_enctypes = {types}
}}
"""
        )
        self.environment = os.environ | {
            "KRB5_CONFIG": str(config),
            "KRB5_KDC_PROFILE": str(profile),
            "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",
        }
        self.run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
        command = ["krb5kdc", "-n", "-r", REALM, "-P", str(home / "pid")]
        self.process = subprocess.Popen(command, env=self.environment, stdin=subprocess.DEVNULL)
        self.caches = 0

    def run(self, *command: str, text: str = "") -> str:
        done = subprocess.run(command, env=self.environment, input=text, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def admin(self, query: str) -> str:
        return self.run("kadmin.local", "-r", REALM, "-q", query)

    def add_user(self, name: str) -> None:
        self.admin(f"addprinc -pw {name} {name}")

    def add_service(self, name: str, keytab: Path, *enctypes: str) -> Path:
        self.admin(f"addprinc -randkey {name}")
        return self.new_key(name, keytab, *enctypes)

    def new_key(self, name: str, keytab: Path, *enctypes: str) -> Path:
        """Gives the service a new key, and adds it to the keytab."""
        types = f"-e {','.join(f'{one}:normal' for one in enctypes)} " if enctypes else ""
        self.admin(f"ktadd -k {keytab} {types}{name}")
        return keytab

    def tickets(self, user: str, service: str | None = None, life: str = "1h") -> "Tickets":
        """The tickets of a user; with one for `service` if it is named."""
        self.caches += 1
        cache = Tickets(self.home / f"cache-{self.caches}", self)
        end = time.monotonic() + 20
        while True:
            try:
                self.run("kinit", "-l", life, "-c", f"FILE:{cache.path}", user, text=f"{user}\n")
                break
            except AssertionError:  # it has just been started
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)
        if service:
            self.run("kvno", "-c", f"FILE:{cache.path}", service)
        return cache

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


class Tickets:
    """A cache with tickets."""

    def __init__(self, path: Path, kdc: Kdc):
        self.path, self.kdc = path, kdc

    @property
    def environment(self) -> dict[str, str]:
        return {"KRB5CCNAME": f"FILE:{self.path}", "KRB5_CONFIG": self.kdc.environment["KRB5_CONFIG"], "XrdSecPROTOCOL": "krb5"}

    def shift_clock(self, seconds: int) -> None:
        """The client believes that the KDC's clock differs by this from its own: the field 1 in the header of the cache (version 4)."""
        data = bytearray(self.path.read_bytes())
        assert data[:8] == b"\5\4\0\x0c\0\1\0\x08", bytes(data[:8])
        data[8:16] = struct.pack(">ii", seconds, 0)
        self.path.write_bytes(data)
