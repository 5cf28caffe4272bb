"""The audit log: a line for each login, denial and change, with stock clients, on a node and on a cluster. Nothing in it is a secret."""

import json
import os
import re
import struct
import time

import pytest
from authority import HOSTS
from clients import run
from cluster import Cluster
from content import write
from harness import WEIR_BIN, Weir, remove, until, weir
from issuer import trusting
from loopfs import loop_file_system, why_not
from raw import LOGIN, Raw

ALL = "storage.read:/ storage.modify:/"
CANARY = "CANARY-7d1f9e2b"
TPC_KEY = "TPCKEY-51c0ffee"


@pytest.fixture(scope="module")
def config(authority, issuer, base):
    path = base / "audit.toml"
    tls = authority.issue("audit", HOSTS)
    path.write_text(trusting(issuer, authority, tls, mechanisms='["ztn", "unix"]', more='audit.to = "files"'))
    return path


class Site:
    def __init__(self, url, nodes, issuer, tmp_path, trusted):
        self.url, self.nodes, self.tmp_path, self.trusted, self.issuer = url, nodes, tmp_path, trusted, issuer
        self.source = write(tmp_path / "source", "audit", 100_000)

    def does(self, who, *command, token=None):
        token = token or self.issuer.token(who, ALL)
        plain = ["env", "XrdSecPROTOCOL=ztn", f"BEARER_TOKEN={token}", f"X509_CERT_DIR={self.trusted}"]
        return run([*plain, *map(str, command)])

    def fs(self, who, *arguments):
        return self.does(who, "xrdfs", self.url, *arguments)

    def put(self, who, path, *more):
        return self.does(who, "xrdcp", "-f", *more, self.source, f"{self.url}/{path}")

    def lines(self, *filters, of=0):
        """The lines of a node, the manager's by default, after they had time to be written."""
        time.sleep(0.3)
        done = weir("audit", "--json", "--data", str(self.nodes[of]), *filters)
        assert done.returncode == 0, done
        return [json.loads(line) for line in done.stdout.splitlines()]

    def all_files(self):
        return b"".join(file.read_bytes() for data in self.nodes for file in sorted((data / "audit").iterdir()))


@pytest.fixture(scope="module", params=["node", "cluster"])
def served(request, base, config):
    if request.param == "cluster":
        with Cluster(base / "audit", 2, ("--config", str(config))) as cluster:
            nodes = [cluster.manager.home / "data", *(disk.home / "data" for disk in cluster.disks)]
            yield f"roots://127.0.0.1:{cluster.manager.port}", nodes
        remove(base / "audit")
        return
    server = Weir(base / "audit-node", None, ("--config", str(config))).start()
    yield f"roots://127.0.0.1:{server.port}", [server.data]
    server.kill()
    remove(server.home)


@pytest.fixture
def site(served, issuer, authority, tmp_path):
    return Site(*served, issuer, tmp_path, authority.trusted)


def test_logins_changes_and_denials_are_lines(site):
    site.fs("keeper", "mkdir", "-p", "-mrwxrwxrwx", "/audit/d").ok()
    for command in (
        ["mkdir", "/audit/d/sub"],
        ["mv", "/audit/d/sub", "/audit/d/moved"],
        ["chmod", "/audit/d/moved", "rwx------"],
        ["rmdir", "/audit/d/moved"],
    ):
        site.fs("ana", *command).ok()
    site.put("ana", "/audit/d/f").ok()
    site.fs("ana", "xattr", "/audit/d/f", "set", "colour=crimson").ok()
    site.fs("ana", "truncate", "/audit/d/f", "10").ok()
    assert site.fs("otto", "chmod", "/audit/d/f", "rwxrwxrwx").code != 0
    assert site.fs("otto", "rm", "/audit").code != 0
    site.fs("ana", "rm", "/audit/d/f").ok()

    [login, *_] = site.lines("--event", "login", "--principal", "ana")
    assert login["result"] == "ok" and login["mechanism"] == "ztn" and "ana" in login["credential"], login
    assert login["address"].startswith("127.0.0.1:") or login["address"].startswith("[::ffff:127.0.0.1]:"), login

    changes = site.lines("--event", "change", "--principal", "ana", "--path", "/audit/d")
    found = [(line["operation"], line["path"], line.get("to"), line["result"]) for line in changes]
    for expected in (
        ("mkdir", "/audit/d/sub", None, "ok"),
        ("rename", "/audit/d/sub", "/audit/d/moved", "ok"),
        ("chmod", "/audit/d/moved", None, "ok"),
        ("rmdir", "/audit/d/moved", None, "ok"),
        ("set-attributes", "/audit/d/f", None, "ok"),
        ("remove", "/audit/d/f", None, "ok"),
    ):
        assert expected in found, (expected, found)
    assert all(line["session"] and line["mechanism"] == "ztn" and line["protocol"] == "root" for line in changes), changes
    [chmod] = [line for line in changes if line["operation"] == "chmod"]
    assert chmod["detail"] == "mode 0700"
    [attribute] = [line for line in changes if line["operation"] == "set-attributes"]
    assert attribute["detail"] == "colour" and "crimson" not in json.dumps(attribute)
    if len(site.nodes) == 1:
        assert ("replace", "/audit/d/f", None, "ok") in found and ("close", "/audit/d/f", None, "ok") in found, found
        assert ("truncate", "/audit/d/f", None, "ok") in found, found
    else:
        assert ("replace", "/audit/d/f", None, "redirected") in found, found
        number = str(next(line["number"] for line in changes))
        there = [line for of in (1, 2) for line in site.lines("--event", "change", "--principal", number, of=of)]
        there = [(line["operation"], line["path"], line["result"]) for line in there]
        for operation in ("replace", "close", "truncate"):
            assert (operation, "/audit/d/f", "ok") in there, there

    [denied] = site.lines("--principal", "otto", "--path", "/audit/d/f", "--result", "denied")
    assert denied["operation"] == "chmod" and denied["code"] == "Denied", denied
    assert "only its owner (ana) may, you are otto" in denied["reason"], denied
    assert site.lines("--principal", "otto", "--path", "/audit/d/f", "--result", "ok") == []


def test_reads_are_lines_only_if_they_are_denied(site):
    site.fs("keeper", "mkdir", "-p", "-mrwx------", "/closed").ok()
    site.put("keeper", "/closed/f").ok()
    site.does("keeper", "xrdcp", "-f", f"{site.url}//closed/f", site.tmp_path / "back").ok()
    for command in (["stat", "/closed/f"], ["ls", "/closed"], ["cat", "/closed/f"], ["query", "checksum", "/closed/f"]):
        assert site.fs("mia", *command).code != 0
    reads = site.lines("--event", "read")
    assert {line["principal"] for line in reads if line["path"].startswith("/closed")} == {"mia"}, reads
    assert {line["result"] for line in reads} == {"denied"}, reads
    operations = {line["operation"] for line in reads if line["principal"] == "mia"}
    assert {"stat", "list", "open", "checksum"} <= operations, operations


def test_refused_logins_are_lines(site):
    stranger = site.issuer.token("ana", ALL, aud="https://other.example.org")
    assert site.does("ana", "xrdfs", site.url, "ls", "/", token=stranger).code != 0
    refused = site.lines("--event", "login", "--result", "denied")
    assert any(line["mechanism"] == "ztn" and "audience" in line["reason"] for line in refused), refused


def test_no_line_has_a_secret(site):
    """A canary in each place where a client can put a token; and the real tokens and capabilities."""
    site.fs("keeper", "mkdir", "-p", "-mrwxrwxrwx", "/secret").ok()
    opaque = f"?authz=Bearer%20{CANARY}&xrd.wantprot=ztn"
    url = f"{site.url}//secret/f{opaque}"
    token = site.issuer.token("ana", ALL)
    site.does("ana", "xrdcp", "-f", site.source, url, token=token).ok()
    site.does("ana", "xrdcp", "-f", url, site.tmp_path / "back", token=token).ok()
    # What the manager puts into a redirect, as the client's own log shows it.
    told = site.does("ana", "env", "XRD_LOGLEVEL=Dump", "xrdfs", site.url, "cat", "/secret/f", token=token).ok()
    capabilities = set(re.findall(r"weir\.cap=([\w-]{20,})", told.out + told.err))
    assert len(site.nodes) == 1 or capabilities, told.err[-3000:]
    key = f"?tpc.key={TPC_KEY}&tpc.dst=127.0.0.1&tpc.stage=copy"
    site.does("ana", "xrdfs", site.url, "cat", f"/secret/f{key}", token=token)
    for command in (
        ["stat", f"/secret/f{opaque}"],
        ["ls", f"/secret{opaque}"],
        ["mkdir", f"/secret/sub{opaque}"],
        ["rmdir", f"/secret/sub{opaque}"],
        ["chmod", f"/secret/f{opaque}", "rw-rw-rw-"],
        ["truncate", f"/secret/f{opaque}", "5"],
        ["mv", f"/secret/f{opaque}", f"/secret/g{opaque}"],
        ["locate", f"/secret/g{opaque}"],
        ["query", "checksum", f"/secret/g{opaque}"],
        ["xattr", f"/secret/g{opaque}", "set", f"name={CANARY}"],
        ["rm", f"/secret/g{opaque}"],
    ):
        site.does("ana", "xrdfs", site.url, *command, token=token).ok()
    for command in (["rmdir", f"/secret/gone{opaque}"], ["prepare", f"/secret/gone{opaque}"], ["rm", f"/secret/g{opaque}"]):
        site.does("ana", "xrdfs", site.url, *command, token=token)
    # Also where it is denied.
    for command in (["mkdir", f"/no{opaque}"], ["rm", f"/secret{opaque}"], ["mv", f"/secret{opaque}", f"/x{opaque}"]):
        assert site.does("ana", "xrdfs", site.url, *command, token=token).code != 0, command
    site.put("keeper", "/secret/closed").ok()
    site.fs("keeper", "chmod", "/secret/closed", "rw-------").ok()
    assert site.does("ana", "xrdfs", site.url, "cat", f"/secret/closed{key}", token=token).code != 0
    assert any(line["path"] == "/secret/closed" for line in site.lines("--event", "read", "--principal", "ana"))
    site.does("ana", "xrdfs", site.url, "ls", "/", token=f"{CANARY}.{CANARY}.{CANARY}")
    time.sleep(0.5)
    written = site.all_files()
    assert b"/secret/g" in written and b"/no" in written, "the requests are there"
    for secret in (CANARY, TPC_KEY, *capabilities, token, token.split(".")[2], "weir.cap", "tpc.", "authz", "Bearer"):
        assert secret.encode() not in written, secret


def test_hostile_names_make_no_lines_and_move_no_cursor(site):
    site.fs("keeper", "mkdir", "-p", "-mrwxrwxrwx", "/hostile").ok()
    name = '/hostile/a"}%s{"event":"login","operation":"login","result":"ok","principal":"forged"}'
    # No directory has a line end in its name.
    assert site.does("ana", WEIR_BIN, "mkdir", f"{site.url}/{name % chr(10)}").code != 0
    site.does("ana", WEIR_BIN, "mkdir", f"{site.url}/{name % chr(13)}\x1b[2J").ok()
    lines = site.lines("--path", "/hostile", "--principal", "ana")
    assert lines[-1]["operation"] == "mkdir" and "\\x1b" in lines[-1]["path"] and "\\r{" in lines[-1]["path"], lines
    assert site.lines("--principal", "forged") == []
    shown = weir("audit", "--data", str(site.nodes[0]), "--path", "/hostile")
    assert "\x1b" not in shown.stdout and "mkdir" in shown.stdout, shown


def test_administrators_changes_are_lines(site):
    assert weir("identity", "add", "zoe", "--data", str(site.nodes[0])).returncode == 0
    [added] = [line for line in site.lines("--event", "admin") if "zoe" in line.get("detail", "")]
    assert added["operation"] == "principal-add" and added["result"] == "ok" and added["mechanism"] == "control socket", added
    # It changes nothing, and tells what permissions hide.
    assert weir("explain", "/", "--as", "zoe", "--do", "list", "--data", str(site.nodes[0])).returncode == 0
    explained = site.lines("--event", "admin", "--operation", "explain")
    assert explained[-1]["detail"] == "explain whether zoe may list /" and explained[-1]["path"] == "/", explained


@pytest.mark.parametrize("served", ["cluster"], indirect=True)
def test_nodes_that_join_and_invitations_that_are_redeemed_are_lines(site, tmp_path):
    joined = site.lines("--operation", "join")
    assert len(joined) >= 2, joined
    assert {(line["result"], line["credential"], line["mechanism"]) for line in joined} == {("ok", "disk", "token")}, joined
    invitation = tmp_path / "invitation"
    invitation.write_text(weir("admin", "invite", "vera", "--role", "viewer", "--data", str(site.nodes[0])).stdout)
    invitation.chmod(0o600)
    for home, works in (("one", True), ("two", False)):
        (tmp_path / home).mkdir()
        machine = ["env", f"HOME={tmp_path / home}", "XDG_CONFIG_HOME=", str(WEIR_BIN)]
        done = run([*machine, "context", "add", "lab", "--invite-file", str(invitation)])
        assert (done.code == 0) == works, done
    told = site.lines("--operation", "redeem")
    assert [line["result"] for line in told] == ["ok", "denied"] and told[0]["principal"] == "vera", told
    assert told[0]["credential"] == "viewer" and told[1]["principal"].startswith("invitation ") and told[1]["reason"], told
    secret = invitation.read_text().strip()
    assert secret.encode() not in site.all_files()
    # A viewer who wants to see more than that.
    viewer = ["env", f"HOME={tmp_path / 'one'}", "XDG_CONFIG_HOME=", str(WEIR_BIN)]
    assert run([*viewer, "status"]).code == 0
    assert run([*viewer, "restored"]).code == 13
    [denied] = site.lines("--operation", "restored")
    assert denied["result"] == "denied" and denied["principal"] == "vera", denied


def test_who_is_denied_everything_fills_no_log(site):
    site.fs("keeper", "mkdir", "-p", "-mrwx------", "/flood").ok()
    before = len(site.lines("--path", "/flood"))
    names = [f"/flood/{number}" for number in range(250)]
    for begin in range(0, 250, 50):
        site.fs("otto", "query", "checksum", names[begin])
        site.fs("otto", "stat", names[begin])
        script = "\n".join(f"stat {name}" for name in names[begin : begin + 50])
        site.does("otto", "sh", "-c", f"printf '%s\\n' '{script}' | xrdfs {site.url}")
    lines = site.lines("--path", "/flood", "--principal", "otto")
    assert 10 < len(lines) - before <= 115, len(lines)
    site.fs("keeper", "mkdir", "/flood/change").ok()
    assert any(line["path"] == "/flood/change" for line in site.lines("--operation", "mkdir"))


def test_a_client_without_tls_is_a_line(base, authority, tmp_path):
    certificate, key = authority.issue("audit-tls", "DNS:localhost,IP:127.0.0.1")
    config = tmp_path / "weir.toml"
    config.write_text(f'audit.to = "files"\ntls.certificate = "{certificate}"\ntls.key = "{key}"\ntls.required = ["login"]\n')
    server = Weir(base / "audit-tls", None, ("--config", str(config))).start()
    try:
        with Raw(server.port, login=False) as client:
            client.handshake()
            refused = client.request(LOGIN, struct.pack(">i8sBBBB", 4242, b"raw", 0, 0, 5, 0))
            assert refused.error is not None, refused
        time.sleep(0.3)
        done = weir("audit", "--json", "--event", "login", "--data", str(server.data))
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert any(line["result"] == "denied" and line["operation"] in ("login", "tls") for line in lines), done
    finally:
        server.kill()
        remove(server.home)


def test_a_session_after_the_end_of_its_credential_is_one_line(site):
    token = site.issuer.token("rita", ALL, seconds=3)
    script = f"(echo stat /; sleep 5; echo stat /; echo stat /) | xrdfs {site.url}"
    site.does("rita", "sh", "-c", script, token=token)
    [denied] = site.lines("--operation", "request", "--principal", "rita")
    assert denied["result"] == "denied" and "Your credential ended" in denied["reason"], denied


def test_an_open_write_that_outlives_a_restart_has_no_address(own_node, tmp_path):
    import subprocess
    import sys

    config = tmp_path / "weir.toml"
    config.write_text('audit.to = "files"\n')
    server = own_node("--config", str(config), "--grace-seconds", "2")
    script = f"""
from XRootD import client
from XRootD.client.flags import OpenFlags
import sys, time
file = client.File()
assert file.open("{server.url}/left", OpenFlags.NEW)[0].ok
assert file.write(b"some")[0].ok and file.sync()[0].ok
print("there", flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as writer:
        assert writer.stdout.readline() == b"there\n"
        server.kill()
        writer.kill()
    server.start()

    def ended():
        done = weir("audit", "--json", "--path", "/left", "--data", str(server.data))
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return [line for line in lines if line["operation"] in ("interrupt", "complete", "discard")]

    [line] = until(ended, 30)
    assert "address" not in line and "protocol" not in line, line
    assert line["detail"] == "its client did not close it", line


def test_two_nodes_do_not_write_to_one_directory(base, tmp_path):
    config = tmp_path / "weir.toml"
    config.write_text(f'audit.to = "files"\naudit.directory = "{tmp_path}/audit"\n')
    server = Weir(base / "audit-one", None, ("--config", str(config))).start()
    try:
        other = weir("serve", "--data", str(base / "audit-two"), "--listen", "127.0.0.1:0", "--config", str(config))
        assert other.returncode != 0 and "another node writes its audit log" in other.stderr, other
    finally:
        server.kill()
        remove(server.home)
        remove(base / "audit-two")


def test_filters_and_following(site, tmp_path):
    import subprocess

    site.fs("keeper", "mkdir", "-p", "-mrwxrwxrwx", "/follow").ok()
    command = [WEIR_BIN, "audit", "--json", "-f", "--data", str(site.nodes[0]), "--path", "/follow", "--operation", "mkdir"]
    out = tmp_path / "followed"
    with out.open("wb") as sink, subprocess.Popen(command, stdout=sink) as following:
        try:
            for number in range(3):
                site.fs("ana", "mkdir", f"/follow/{number}").ok()
            site.fs("ana", "rmdir", "/follow/0").ok()
            until(lambda: b"/follow/2" in out.read_bytes(), 20)
        finally:
            following.terminate()
    followed = [json.loads(line) for line in out.read_text().splitlines()]
    assert {line["operation"] for line in followed} == {"mkdir"}, followed
    between = ("--since", followed[-1]["time"][:19] + "Z")
    assert site.lines("--until", "2020-01-01") == []
    assert any(line["path"] == "/follow/2" for line in site.lines("--path", "/follow", *between))


def test_a_killed_node_loses_little_and_a_torn_line_spoils_nothing(own_node, tmp_path):
    config = tmp_path / "weir.toml"
    config.write_text('audit.to = "files"\n')
    server = own_node("--config", str(config))
    for number in range(5):
        run(["xrdfs", server.url, "mkdir", f"/killed{number}"]).ok()
    time.sleep(0.5)
    run(["xrdfs", server.url, "mkdir", "/last"]).ok()
    server.kill()
    [log] = (server.data / "audit").iterdir()
    with log.open("ab") as file:
        file.write(b'{"time":"half a li')
    server.start()
    run(["xrdfs", server.url, "mkdir", "/after"]).ok()
    time.sleep(0.5)
    done = weir("audit", "--json", "--operation", "mkdir", "--data", str(server.data))
    paths = [json.loads(line)["path"] for line in done.stdout.splitlines()]
    assert [path for path in paths if path != "/last"] == [*(f"/killed{number}" for number in range(5)), "/after"], done
    assert "1 lines are none of an audit log" in done.stderr, done.stderr


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_a_full_disk_loses_lines_and_fails_no_request(own_node, base, tmp_path):
    with loop_file_system(base / "audit-full", "ext4", 40 << 20) as folder:
        folder.chmod(0o777)
        config = tmp_path / "weir.toml"
        config.write_text(f'audit.to = "files"\naudit.directory = "{folder}/audit"\naudit.file_size = "1MiB"\n')
        server = own_node("--config", str(config), "--metrics", "127.0.0.1:0")
        run(["xrdfs", server.url, "mkdir", "/before"]).ok()
        time.sleep(0.3)
        filler = folder / "filler"
        with filler.open("wb") as file:
            try:
                while True:
                    os.write(file.fileno(), b"x" * 4096)
            except OSError:
                pass
        # Enough to need another block of the file.
        for number in range(40):
            run(["xrdfs", server.url, "mkdir", f"/full{number}-{'x' * 200}"]).ok()
        status = weir("status", "--data", str(server.data))
        assert "lines of the audit log were lost" in " ".join(status.stdout.split()), status
        assert server.log_text().count("the audit log loses lines") == 1
        filler.unlink()
        run(["xrdfs", server.url, "mkdir", "/after"]).ok()
        time.sleep(0.5)
        done = weir("audit", "--json", "--directory", str(folder / "audit"))
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        paths = [line.get("path") for line in lines]
        assert "/before" in paths and "/after" in paths
        lost = sum(line["lines"] for line in lines if line["event"] == "lost")
        written = sum(1 for line in lines if line["event"] != "lost")
        # A login and a mkdir for each client, and nothing else.
        assert lost > 0 and lost + written == 2 * 42, (lost, written)
        server.kill()


def test_who_may_change_nothing_drives_nothing_out(site):
    site.fs("keeper", "mkdir", "-p", "-mrwxr-xr-x", "/audit/kept").ok()
    tries = "".join(f"mkdir /audit/kept/{number}\\n" for number in range(300))
    site.does("flooder", "bash", "-c", f"printf '{tries}' | xrdfs {site.url}")
    site.fs("keeper", "mkdir", "/audit/kept/after").ok()
    denied = site.lines("--principal", "flooder", "--result", "denied")
    # 100 at once, and one more every 5 seconds.
    assert 100 <= len(denied) <= 120, len(denied)
    assert any(line.get("path") == "/audit/kept/after" for line in site.lines("--principal", "admin", "--result", "ok"))
