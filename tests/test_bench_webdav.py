"""weir bench over WebDAV: against nginx and stock XRootD, with TLS and tokens, over redirects."""

import http.server
import json
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest
from harness import WEIR_BIN, Nginx, Xrootd
from ports import free_port
from test_bench import bench, cells

CAMPAIGN = """
name = "webdav"
repeats = 1
[[system]]
name = "http"
place = "{place}"
[[streams]]
name = "large"
phases = ["write", "read", "reread", "random-read", "stride-read", "backward-read"]
file = "6MB"
block = "256KiB"
streams = 2
chunks = 1
files = 2
[[small]]
name = "small"
least = "0s"
clients = 3
files = 30
file = ["3000B", "0B"]
one_directory = [false, true]
"""


JOBS = """
[[repeat]]
name = "jobs"
jobs = 2
files = 30
sizes = ["100B", "100KiB"]
operations = 200
"""


class XrootdHttp(Xrootd):
    """A stock XRootD with its plugin for HTTP."""

    def __init__(self, home: Path):
        super().__init__(home)
        self.http_port = free_port()
        self.more = f"xrd.protocol XrdHttp:{self.http_port} libXrdHttp.so\nhttp.listingdeny no\n"

    @property
    def http_url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}/"


@pytest.fixture(scope="module", params=[Nginx, XrootdHttp])
def server(request, base):
    with request.param(base / f"webdav-{request.param.__name__}") as running:
        yield running
        assert running.alive()


@pytest.fixture(scope="module")
def nginx(base):
    with Nginx(base / "webdav-plain") as running:
        yield running


def folder(server, name: str) -> Path:
    made = server.data / name
    made.mkdir()
    made.chmod(0o777)
    return made


def test_file_after_file_on_one_connection(server, tmp_path):
    """Writers that run for a fixed time, and jobs that replace files. Each announces the length of a file, because not all servers accept
    chunked uploads.

    XRootD answers 423 to a client that replaces a file which another connection has just read, so jobs run on nginx."""
    folder(server, "going-on")
    campaign = tmp_path / "going-on.toml"
    campaign.write_text(
        f"""
name = "going on"
repeats = 1
[[system]]
name = "http"
place = "{server.http_url}going-on"
fail = ["true"]
[[failure]]
name = "nothing breaks"
writers = 2
readers = 2
file = "1MiB"
block = "256KiB"
seconds = 3
fail_at = 1
"""
        + (JOBS if isinstance(server, Nginx) else "")
    )
    found = cells(json.loads(bench("run", campaign, "--results", tmp_path / "results", "--json").stdout))
    assert len(found) == (3 + 2 if isinstance(server, Nginx) else 3)
    trials = [json.loads(line) for line in (tmp_path / "results/trials.jsonl").read_text().splitlines()]
    for phase in [phase for trial in trials for phase in trial["phases"]]:
        assert phase["measured"]["tally"]["operations"] > 20 and not phase["measured"]["tally"]["failures"], phase["phase"]


def test_all_that_http_can_do_is_measured(server, tmp_path):
    made = folder(server, "all")
    campaign = tmp_path / "webdav.toml"
    campaign.write_text(CAMPAIGN.format(place=f"{server.http_url}all"))
    found = cells(json.loads(bench("run", campaign, "--results", tmp_path / "results", "--json").stdout))
    assert len(found) == 6 + 5
    for key, cell in found.items():
        assert min(cell["values"]) > 0, (key, cell)
        assert not {"wrong-data", "failures", "ended-early"} & set(cell["flags"]), (key, cell)
    for line in (tmp_path / "results/trials.jsonl").read_text().splitlines():
        for phase in json.loads(line)["phases"]:
            if phase["phase"] in ("read", "reread", "random-read", "backward-read") and json.loads(line)["work"] == "large":
                assert phase["measured"]["tally"]["verified"] == 2 * 2 * 6_000_000
    assert os.listdir(made) == []


def test_recorders_are_followed_when_the_server_shows_their_files(nginx, tmp_path):
    made = folder(nginx, "daq")
    (tmp_path / "daq.toml").write_text(f"""
name = "daq"
repeats = 1
[[system]]
name = "http"
place = "{nginx.http_url}daq"
[[daq]]
name = "building"
recorders = 2
files = 2
file = "8MiB"
block = "1MiB"
rate = "40MB"
buffer = "64MiB"
followers = 1
copiers = 1
copy_to = "{nginx.http_url}daq"
""")
    found = cells(json.loads(bench("run", tmp_path / "daq.toml", "--results", tmp_path / "results", "--json").stdout))
    assert {phase for _, phase, _ in found} == {"record", "follow", "copy-out"}
    assert not any({"wrong-data", "failures", "ended-early"} & set(cell["flags"]) for cell in found.values()), found
    assert os.listdir(made) == []


@pytest.mark.parametrize(
    "work, said",
    [
        ('phases = ["write", "rewrite"]', "HTTP does not support changing a file in place"),
        ('phases = ["write"]\ndurability = "write"', "HTTP does not support making each write durable"),
    ],
)
def test_what_http_cannot_do_gets_no_figure(nginx, tmp_path, work, said):
    made = folder(nginx, f"cannot-{len(os.listdir(nginx.data))}")
    (tmp_path / "c.toml").write_text(
        f'name = "c"\nrepeats = 1\n[[system]]\nname = "http"\nplace = "{nginx.http_url}{made.name}"\n'
        f'[[streams]]\nname = "large"\nfile = "1MiB"\nblock = "64KiB"\n{work}\n'
    )
    done = bench("run", tmp_path / "c.toml", "--results", tmp_path / "results", code=1)
    assert "no figure" in done.stdout
    assert said in (tmp_path / "results/trials.jsonl").read_text()
    assert os.listdir(made) == []


def test_what_is_not_there_is_said_before_anything_is_written(nginx, tmp_path):
    text = CAMPAIGN.format(place=f"{nginx.http_url}missing")
    for change, code, said in (
        ("", 11, "404 Not Found"),
        (f"http://127.0.0.1:{free_port()}/x", 15, "cannot connect"),
        (f"https://127.0.0.1:{nginx.port}/x", 15, "cannot connect"),
    ):
        (tmp_path / "c.toml").write_text(text.replace(f"{nginx.http_url}missing", change) if change else text)
        refused = bench("run", tmp_path / "c.toml", "--results", tmp_path / f"results-{code}-{len(said)}-{len(change)}", code=code)
        assert said in refused.stderr, refused.stderr


def test_what_somebody_else_put_there_stays(nginx, tmp_path):
    """WebDAV removes directories with everything in them, so the bench looks first."""
    made = folder(nginx, "foreign")
    (tmp_path / "c.toml").write_text(
        f'name = "c"\nrepeats = 1\n[[system]]\nname = "http"\nplace = "{nginx.http_url}foreign"\n'
        '[[streams]]\nname = "large"\nphases = ["write", "read"]\nfile = "128MiB"\nblock = "1MiB"\n'
    )
    run = subprocess.Popen(
        [WEIR_BIN, "bench", "run", tmp_path / "c.toml", "--results", tmp_path / "results"],
        stdout=subprocess.PIPE,
        text=True,
    )
    end, precious = time.monotonic() + 30, None
    while precious is None and time.monotonic() < end:
        for found in made.glob("*/s000000"):
            precious = found / "precious"
            precious.write_text("not the bench's")
    out = run.communicate(timeout=60)[0]
    assert precious is not None and precious.read_text() == "not the bench's" and run.returncode == 0
    # The figures stand; the run names the files that it could not remove.
    assert "it has `precious`" in out


@pytest.fixture(scope="module")
def secured(base):
    """nginx with TLS, which accepts one token, with a certificate from its own authority."""
    home = base / "webdav-tls"
    home.mkdir()
    key = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    key += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    key += ["-addext", "basicConstraints=critical,CA:FALSE"]
    subprocess.run([*key, "-keyout", home / "key.pem", "-out", home / "cert.pem"], check=True, capture_output=True)
    with Nginx(home, certificate=(home / "cert.pem", home / "key.pem"), token="not-for-everybody") as running:
        yield running


def test_tls_and_tokens(secured, tmp_path, monkeypatch):
    made = folder(secured, "tls")
    campaign = tmp_path / "c.toml"
    campaign.write_text(CAMPAIGN.format(place=f"{secured.http_url}tls"))
    refused = bench("run", campaign, "--results", tmp_path / "untrusted", code=15)
    assert "certificate" in refused.stderr, refused.stderr
    monkeypatch.setenv("SSL_CERT_FILE", str(secured.home / "cert.pem"))
    refused = bench("run", campaign, "--results", tmp_path / "unknown", code=13)
    assert "403 Forbidden" in refused.stderr
    monkeypatch.setenv("BEARER_TOKEN", "not-for-everybody")
    done = bench("run", campaign, "--results", tmp_path / "results")
    assert "no figure" not in done.stdout
    assert os.listdir(made) == []
    told = done.stdout + done.stderr + "".join(path.read_text() for path in (tmp_path / "results").rglob("*") if path.is_file())
    assert "not-for-everybody" not in told


def test_a_redirect_is_followed_and_the_token_is_not_sent_elsewhere(nginx, tmp_path, monkeypatch):
    made = folder(nginx, "redirected")
    seen = []

    class Door(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def away(self):
            self.rfile.read(int(self.headers.get("Content-Length", 0)) if self.command == "PROPFIND" else 0)
            seen.append((self.command, self.headers.get("Authorization")))
            self.send_response(307)
            self.send_header("Location", f"{nginx.http_url}{self.path[1:]}")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_PUT = do_HEAD = do_DELETE = do_MKCOL = do_PROPFIND = away

        def handle_expect_100(self):
            return True  # it refuses the bytes: another server takes them

        def log_message(self, *_):
            pass

    door = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Door)
    thread = threading.Thread(target=door.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("BEARER_TOKEN", "of-the-door")
    campaign = tmp_path / "c.toml"
    campaign.write_text(CAMPAIGN.format(place=f"http://127.0.0.1:{door.server_port}/redirected"))
    try:
        done = bench("run", campaign, "--results", tmp_path / "results")
    finally:
        door.shutdown()
        door.server_close()
    assert "no figure" not in done.stdout
    assert os.listdir(made) == []
    assert {method for method, _ in seen} == {"PUT", "GET", "HEAD", "DELETE", "MKCOL", "PROPFIND"}
    assert {token for _, token in seen} == {"Bearer of-the-door"}
    assert "of-the-door" not in nginx.log.with_name("access.log").read_text()
    # All later blocks go directly to the server of the first redirect.
    assert sum(method == "GET" for method, _ in seen) < 5 * 4 * 2 + 3 * 30 * 4
