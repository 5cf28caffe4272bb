#!/usr/bin/env python3
"""
What TLS, logins and permissions cost, in alternating runs on one machine. Prints a table for each part:

    bench/security.py --only tls      xrdcp of 1 GiB over roots://, with TLS for all, at weir and at a stock xrootd
    bench/security.py --only login    logins by token over TLS, at weir with a known issuer: CPU of the server
    bench/security.py --only rights   stat and open+read+close by a user, in directories with ACLs of 8 entries, against weir
                                      without authentication
"""

import argparse
import json
import os
import pwd
import socket
import ssl
import statistics
import struct
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from authority import Authority  # noqa: E402
from harness import WEIR_BIN, Weir, Xrootd  # noqa: E402
from issuer import AUDIENCE, Issuer  # noqa: E402
from measure import Cpu, alternate, load_program, random_source, run  # noqa: E402

GIB = 1 << 30
PARTS = ["tls", "login", "rights"]
LOGINS = 1000
THREADS, FILES, DIRS, BYTES = 8, 20_000, 100, 4096
PASSES = {"create": 1, "stat": 8, "read": 3}
ENTRIES = ",".join(f"user:user{number}:rw-" for number in range(4)) + "," + ",".join(f"group:group{number}:r-x" for number in range(4))


class SecureXrootd(Xrootd):
    """A stock xrootd that demands TLS for everything."""

    def start(self) -> "SecureXrootd":
        user = pwd.getpwnam("xrootd")
        for path in (self.home, *self.home.glob("host.*")):
            os.chown(path, user.pw_uid, user.pw_gid)
        super().start()
        return self


def median(values: list[float]) -> float:
    return statistics.median(values)


def show(part: str, rows: dict[str, dict[str, list[float]]]) -> None:
    """A line for each figure: the systems, and the first one's part of the second."""
    print(f"\n{part}")
    for row, figures in rows.items():
        values = {system: median(found) for system, found in figures.items()}
        shown = "; ".join(f"{system} {value:.4g}" for system, value in values.items())
        ratio = list(values.values())
        print(f"  {row}: {shown}" + (f"; ratio {ratio[0] / ratio[1]:.2f}" if len(ratio) == 2 else ""))


def tls(home: Path, authority: Authority, runs: int) -> None:
    os.environ["X509_CERT_DIR"] = str(authority.trusted)
    certificate, key = authority.issue("host")
    (home / "tls.toml").write_text(f'tls.certificate = "{certificate}"\ntls.key = "{key}"\ntls.required = ["login", "data"]\n')
    stock = home / "stock"
    stock.mkdir()
    for path in (certificate, key):
        (stock / f"host{path.suffix}").write_bytes(path.read_bytes())
        (stock / f"host{path.suffix}").chmod(0o600)
    xrootd = SecureXrootd(stock)
    xrootd.more = f"xrd.tls {stock}/host.pem {stock}/host.key\nxrd.tlsca noverify\nxrootd.tls all\n"
    rows: dict[str, dict[str, list[float]]] = {}
    with Weir(home / "tls", None, ("--config", str(home / "tls.toml"))) as weir, xrootd, random_source(GIB) as source:
        for number in range(runs):
            for system, server in alternate({"weir": weir, "xrootd": xrootd}, number):
                url = f"roots://localhost:{server.port}//big"
                for row, arguments in (("put", [str(source), url]), ("get", ["-f", url, "/dev/null"])):
                    with Cpu(server) as cpu:
                        run(["xrdcp", "--nopbar", *arguments])
                    rows.setdefault(f"{row} wall [s]", {}).setdefault(system, []).append(cpu.wall)
                    rows.setdefault(f"{row} server CPU [s/GB]", {}).setdefault(system, []).append(cpu.seconds * 1e9 / GIB)
                run(["xrdfs", f"roots://localhost:{server.port}", "rm", "/big"])
    show("xrdcp of 1 GiB over roots://, TLS for all", {row: {s: rows[row][s] for s in ("weir", "xrootd")} for row in rows})


def logins(port: int, token: str, count: int) -> None:
    """Logins as a stock client makes them, one after the other, each on a connection of its own."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    credential = b"ztn\0\0T\0\0" + struct.pack(">H", len(token) + 1) + token.encode() + b"\0"
    for _ in range(count):
        with socket.create_connection(("127.0.0.1", port), timeout=20) as plain:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.sendall(struct.pack(">iiiii", 0, 0, 0, 4, 2012) + struct.pack(">2sHiBB10xi", b"\0\1", 3006, 0x511, 0x02, 3, 0))
            plain.recv(32, socket.MSG_WAITALL)
            with context.wrap_socket(plain) as client:
                client.sendall(struct.pack(">2sHi8sBBBBi", b"\0\1", 3007, 7, b"bench", 0, 0, 5, 0, 0))
                assert client.recv(4096)[2:4] == b"\0\0"
                client.sendall(struct.pack(">2sH12s4si", b"\0\1", 3000, bytes(12), b"ztn\0", len(credential)) + credential)
                answer = client.recv(4096)
                assert answer[2:4] == b"\0\0", answer


def login(home: Path, authority: Authority, runs: int) -> None:
    issuer = Issuer(home, authority.issue("issuer"))
    certificate, key = authority.issue("login")
    (home / "login.toml").write_text(
        f"""
tls.certificate = "{certificate}"
tls.key = "{key}"
authentication.mechanisms = ["ztn"]
authentication.ca = "{authority.home / "ca.pem"}"
[[issuer]]
url = "{issuer.url}"
base_paths = ["/"]
audiences = ["{AUDIENCE}"]
[[identity]]
issuer = "{issuer.url}"
principal = "{{subject}}"
"""
    )
    rows: dict[str, dict[str, list[float]]] = {}
    with Weir(home / "login", None, ("--config", str(home / "login.toml"))) as weir:
        token = issuer.token("ana")
        logins(weir.port, token, 10)
        for _ in range(runs):
            begin = time.monotonic()
            with Cpu(weir) as cpu:
                logins(weir.port, token, LOGINS)
                wall = time.monotonic() - begin
            rows.setdefault("server CPU for a login [ms]", {}).setdefault("weir", []).append(cpu.seconds / LOGINS * 1e3)
            rows.setdefault("logins a second by one client", {}).setdefault("weir", []).append(LOGINS / wall)
    issuer.stop()
    show("logins by token, RS256, RSA certificate of 2048 bits, over TLS 1.3", rows)


def rights(home: Path, runs: int) -> None:
    (home / "rights.toml").write_text(
        'authentication.mechanisms = ["unix"]\n'
        '[[identity]]\nlocal_user = "keeper"\nprincipal = "admin"\n[[identity]]\nlocal_user = "*"\nprincipal = "user-{user}"\n'
    )
    os.environ["XrdSecPROTOCOL"] = "unix"
    rows: dict[str, dict[str, list[float]]] = {}
    load = load_program()
    with (
        Weir(home / "with", None, ("--config", str(home / "rights.toml"))) as known,
        Weir(home / "without") as unknown,
    ):
        for number in range(4):
            for group in ([], ["--group"]):
                name = f"group{number}" if group else f"user{number}"
                run([str(WEIR_BIN), "identity", "add", *group, name, "--data", str(known.data)])
        # The administrator opens the root; the user then owns what it makes there, with ACLs of 8 entries.
        open_root(known)
        for number in range(runs):
            for system, server in alternate({"with": known, "without": unknown}, number):
                folder = f"{server.url}/run{number}"
                run(["xrdfs", server.url, "mkdir", f"/run{number}"])
                if system == "with":
                    run([str(WEIR_BIN), "acl", "set", "-m", f"{ENTRIES},{defaults()}", folder])
                for phase, passes in PASSES.items():
                    os.sync()
                    numbers = (THREADS, FILES, DIRS, BYTES, passes)
                    with Cpu(server) as cpu:
                        result = json.loads(run([str(load), folder, phase, *map(str, numbers)]))
                    rows.setdefault(f"{phase} rate [1/s]", {}).setdefault(system, []).append(result["rate"])
                    rows.setdefault(f"{phase} server CPU [us]", {}).setdefault(system, []).append(cpu.seconds / result["ops"] * 1e6)
    show("a user with ACLs of 8 entries, against no authentication", {row: {s: rows[row][s] for s in ("with", "without")} for row in rows})


def defaults() -> str:
    return ",".join(f"default:{entry}" for entry in ENTRIES.split(","))


def open_root(server: Weir) -> None:
    import raw

    client = raw.Raw(server.port, login=False)
    client.handshake()
    client.request(raw.LOGIN, struct.pack(">i8sBBBB", 7, b"keeper", 0, 0, 5, 0))
    assert client.request(raw.AUTH, bytes(12) + b"unix", b"unix\0keeper\0").status == raw.OK
    assert client.request(raw.CHMOD, bytes(14) + struct.pack(">H", 0o777), b"/").status == raw.OK


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=PARTS, help="measure this part alone; may be repeated")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
        home = Path(folder)
        home.chmod(0o755)
        (home / "authority").mkdir()
        authority = Authority(home / "authority")
        for part in options.only or PARTS:
            if part == "rights":
                rights(home, options.runs)
            else:
                {"tls": tls, "login": login}[part](home, authority, options.runs)


if __name__ == "__main__":
    main()
