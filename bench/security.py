#!/usr/bin/env python3
"""
What TLS, logins, permissions, quotas and the audit log cost, in alternating runs on one machine. Prints a table for each part, and
writes bench/SECURITY.md if all were measured:

    bench/security.py --only tls      xrdcp of 1 GiB over roots://, with TLS for all, at weir and at a stock xrootd
    bench/security.py --only login    logins by token over TLS, at weir with a known issuer: CPU of the server
    bench/security.py --only gsi      logins of the stock client by gsi with a proxy, at weir and at a stock xrootd
    bench/security.py --only sss      logins of the stock client by a shared secret, at weir and at a stock xrootd
    bench/security.py --only rights   stat and open+read+close by a user, in directories with ACLs of 8 entries and with quotas, against
                                      weir without authentication
    bench/security.py --only quota    creates by 8 clients in a tree with a quota, against the same without one
    bench/security.py --only audit    the same creates with the audit log on, against the same without it
"""

import argparse
import json
import os
import socket
import ssl
import struct
import sys
import tempfile
from collections.abc import Callable
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import machine  # noqa: E402
from authority import Authority  # noqa: E402
from harness import WEIR_BIN, Server, Weir  # noqa: E402
from issuer import Issuer, trusting  # noqa: E402
from measure import ROOT, Cpu, alternate, load_program, random_source, run  # noqa: E402
from proxies import User  # noqa: E402
from secrets_of import add_key, keys  # noqa: E402
from stock import GsiXrootd, SssXrootd, TlsXrootd  # noqa: E402
from tables import Table  # noqa: E402

GIB = 1 << 30
LOGINS = 1000
# Each login of the stock client is a process of its own.
STOCK_LOGINS = 50
THREADS, FILES, DIRS, BYTES = 8, 20_000, 100, 4096
PASSES = {"create": 1, "stat": 8, "read": 3}
ENTRIES = ",".join(f"user:user{number}:rw-" for number in range(4)) + "," + ",".join(f"group:group{number}:r-x" for number in range(4))


def node(home: Path, name: str, settings: str = "") -> Weir:
    file = home / f"{name}.toml"
    file.write_text(settings)
    return Weir(home / name, None, ("--config", str(file)))


def tls(home: Path, authority: Authority, runs: int) -> Table:
    os.environ["X509_CERT_DIR"] = str(authority.trusted)
    certificate, key = authority.issue("host")
    settings = f'tls.certificate = "{certificate}"\ntls.key = "{key}"\ntls.required = ["login", "data"]\n'
    bars = {f"{row} server CPU [s/GB]": "at most 0.6" for row in ("put", "get")}
    table = Table("xrdcp of 1 GiB over roots://, TLS for all", ["weir", "xrootd"], bars)
    with node(home, "tls", settings) as weir, TlsXrootd(home / "stock-tls", authority, "all") as xrootd, random_source(GIB) as source:
        for number in range(runs):
            for system, server in alternate({"weir": weir, "xrootd": xrootd}, number):
                url = f"roots://localhost:{server.port}//big"
                for row, arguments in (("put", [str(source), url]), ("get", ["-f", url, "/dev/null"])):
                    with Cpu(server) as cpu:
                        run(["xrdcp", "--nopbar", *arguments])
                    table.add(f"{row} wall [s]", system, cpu.wall)
                    table.add(f"{row} server CPU [s/GB]", system, cpu.seconds * 1e9 / GIB)
                run(["xrdfs", f"roots://localhost:{server.port}", "rm", "/big"])
    return table


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


def login(home: Path, authority: Authority, runs: int) -> Table:
    issuer = Issuer(home, authority.issue("issuer"))
    kinds = {"ECDSA P-256": "ec:prime256v1", "RSA 2048": "rsa:2048"}
    bars = {"server CPU for a login [ms]": "at most 1 ms"}
    table = Table("logins by token (RS256) over TLS 1.3, by the kind of the server's key", list(kinds), bars)
    nodes = {
        kind: node(home, f"login-{number}", trusting(issuer, authority, authority.issue(f"login-{number}", kind=key)))
        for number, (kind, key) in enumerate(kinds.items())
    }
    with nodes["RSA 2048"], nodes["ECDSA P-256"]:
        token = issuer.token("ana")
        for server in nodes.values():
            logins(server.port, token, 10)
        for number in range(runs):
            for kind, server in alternate(nodes, number):
                with Cpu(server) as cpu:
                    logins(server.port, token, LOGINS)
                table.add("server CPU for a login [ms]", kind, cpu.seconds / LOGINS * 1e3)
                table.add("logins a second by one client", kind, LOGINS / cpu.wall)
    issuer.stop()
    return table


def stock_logins(title: str, servers: dict[str, Server], runs: int, bar: str = "") -> Table:
    table = Table(title, ["weir", "xrootd"], {"server CPU for a login [ms]": bar})
    for number in range(runs):
        for system, server in alternate(servers, number):
            with Cpu(server) as cpu:
                for _ in range(STOCK_LOGINS):
                    run(["xrdfs", f"root://localhost:{server.port}", "stat", "/"])
            table.add("server CPU for a login [ms]", system, cpu.seconds / STOCK_LOGINS * 1e3)
            table.add("logins a second by one client", system, STOCK_LOGINS / cpu.wall)
    return table


def gsi(home: Path, authority: Authority, runs: int) -> Table:
    os.environ |= {"X509_CERT_DIR": str(authority.trusted), "XrdSecPROTOCOL": "gsi"}
    certificate, key = authority.issue("gsi")
    user = User(authority, "ana")
    settings = (
        f'tls.certificate = "{certificate}"\ntls.key = "{key}"\nauthentication.mechanisms = ["gsi"]\n'
        f'authentication.gsi_authorities = "{authority.trusted}"\n[[identity]]\ncertificate = "{user.subject}"\nprincipal = "ana"\n'
    )
    os.environ["X509_USER_PROXY"] = str(user.proxy())
    with node(home, "gsi", settings) as weir, GsiXrootd(home / "stock-gsi", authority) as xrootd:
        return stock_logins("logins by gsi with a proxy, xrdfs stat", {"weir": weir, "xrootd": xrootd}, runs, "at most 0.5")


def sss(home: Path, _authority: Authority, runs: int) -> Table:
    keytab = home / "keytab"
    add_key(keytab, "daq", "daq", "online")
    keytab.chmod(0o600)
    os.environ |= {"XrdSecPROTOCOL": "sss", "XrdSecSSSKT": str(keytab)}
    settings = f'authentication.mechanisms = ["sss"]\nauthentication.keytab = "{keytab}"\n[[identity]]\nsecret = "daq"\nprincipal = "daq"\n'
    with node(home, "sss", settings) as weir, SssXrootd(home / "stock-sss", keys(keytab).values()) as xrootd:
        return stock_logins("logins by a shared secret, xrdfs stat", {"weir": weir, "xrootd": xrootd}, runs)


def phases(table: Table, system: str, server: Server, folder: str, passes: dict[str, int]) -> None:
    """Many small files by the clients' threads."""
    for phase, count in passes.items():
        os.sync()
        with Cpu(server) as cpu:
            result = json.loads(run([str(load_program()), folder, phase, *map(str, (THREADS, FILES, DIRS, BYTES, count))]))
        table.add(f"{phase} rate [1/s]", system, result["rate"])
        table.add(f"{phase} server CPU [us]", system, cpu.seconds / result["ops"] * 1e6)


def weir(server: Weir, *arguments: str) -> None:
    run([str(WEIR_BIN), *arguments, "--data", str(server.data)])


def rights(home: Path, _authority: Authority, runs: int) -> Table:
    settings = (
        'authentication.mechanisms = ["unix"]\n'
        '[[identity]]\nlocal_user = "keeper"\nprincipal = "admin"\n[[identity]]\nlocal_user = "*"\nprincipal = "user-{user}"\n'
    )
    os.environ["XrdSecPROTOCOL"] = "unix"
    bars = {f"{phase} rate [1/s]": "at least 0.95" for phase in ("stat", "read")}
    title = "a user with ACLs of 8 entries and a quota of the tree, against no authentication"
    table = Table(title, ["with", "without"], bars)
    with node(home, "with", settings) as known, node(home, "without") as unknown:
        for number in range(4):
            weir(known, "identity", "add", f"user{number}")
            weir(known, "identity", "add", "--group", f"group{number}")
        # The administrator opens the root and the trees; the user then owns what it makes there, with ACLs of 8 entries.
        open_root(known)
        for number in range(runs):
            for system, server in alternate({"with": known, "without": unknown}, number):
                name = f"/run{number}"
                if system == "with":
                    weir(known, "tree", "create", name, "--mkdir")
                    weir(known, "quota", "set", name, "--bytes", "1TB", "--files", "10000000")
                    open_tree(known, name)
                else:
                    run(["xrdfs", server.url, "mkdir", name])
                folder = f"{name}/files"
                run(["xrdfs", server.url, "mkdir", folder])
                if system == "with":
                    run([str(WEIR_BIN), "acl", "set", "-m", f"{ENTRIES},{defaults()}", f"{server.url}{folder}"])
                phases(table, system, server, f"{server.url}{folder}", PASSES)
    return table


def quota(home: Path, _authority: Authority, runs: int) -> Table:
    def limit(server: Weir, name: str) -> None:
        weir(server, "tree", "create", name, "--mkdir")
        weir(server, "quota", "set", name, "--bytes", "1TB", "--files", "10000000")

    with node(home, "quota") as limited, node(home, "no-quota") as free:
        servers = {"quota": limited, "none": free}
        return creates("creates in a tree with a quota, against no quota", servers, limit, "quota", runs, "at least 0.95")


def audit(home: Path, _authority: Authority, runs: int) -> Table:
    with node(home, "audit", 'audit.to = "files"\n') as logging, node(home, "no-audit") as silent:
        return creates("creates with the audit log, against none", {"audit": logging, "none": silent}, lambda *_: None, "", runs)


def creates(title: str, servers: dict[str, Weir], prepare: Callable[[Weir, str], None], prepared: str, runs: int, bar: str = "") -> Table:
    table = Table(f"{title}; {THREADS} threads of a stock client", list(servers), {"create rate [1/s]": bar})
    for number in range(runs):
        for system, server in alternate(servers, number):
            name = f"/run{number}"
            if system == prepared:
                prepare(server, name)
            else:
                run(["xrdfs", server.url, "mkdir", name])
            phases(table, system, server, f"{server.url}{name}", {"create": 1})
    return table


def defaults() -> str:
    return ",".join(f"default:{entry}" for entry in ENTRIES.split(","))


def open_root(server: Weir) -> None:
    open_tree(server, "/")


def open_tree(server: Weir, path: str) -> None:
    """The administrator lets everybody write there."""
    import raw

    client = raw.Raw(server.port, login=False)
    client.handshake()
    client.request(raw.LOGIN, struct.pack(">i8sBBBB", 7, b"keeper", 0, 0, 5, 0))
    assert client.request(raw.AUTH, bytes(12) + b"unix", b"unix\0keeper\0").status == raw.OK
    assert client.request(raw.CHMOD, bytes(14) + struct.pack(">H", 0o777), path.encode()).status == raw.OK


PARTS = {"tls": tls, "login": login, "gsi": gsi, "sss": sss, "rights": rights, "quota": quota, "audit": audit}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=list(PARTS), help="measure this part alone; may be repeated")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    before, tables = dict(os.environ), []
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
        home = Path(folder)
        home.chmod(0o755)
        (home / "authority").mkdir()
        authority = Authority(home / "authority")
        for part in options.only or PARTS:
            os.environ.clear()
            os.environ.update(before)
            tables.append(PARTS[part](home, authority, options.runs).markdown())
            print(tables[-1], flush=True)
        about = "; ".join(f"{key}: {value}" for key, value in machine.describe(home, ROOT).items())
    if not options.only:
        how = f"`make bench-security`, {date.today()}, {options.runs} runs in turns: medians, and the least to the most."
        (ROOT / "bench/SECURITY.md").write_text("\n".join([f"# What security costs\n\n{how}\n{about}.\n", *tables]))


if __name__ == "__main__":
    main()
