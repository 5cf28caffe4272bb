"""XRootD's own test scripts for its mechanisms, with weir in place of the server. `scripts/setup.sh` fetches them with the source of the
package `xrootd` from PyPI; no copy of them is in this repository. `docs/explanation/tests.md` says what each one asks."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from clients import run
from harness import ROOT, WEIR_BIN
from ports import free_port

SOURCES = Path(os.environ.get("WEIR_XROOTD_SOURCES", Path(sys.prefix) / "sources"))
VERSION = next(line[8:] for line in (ROOT / "tests/requirements.txt").read_text().splitlines() if line.startswith("xrootd=="))
TOOLS = ("cconfig", "cmsd", "xrdcp", "xrdfs", "xrdadler32", "xrdsssadmin")
# The scripts start `xrootd -b -l LOG -s PIDFILE -c CONFIGURATION -n NAME`, and end the process of the file with its number.
SERVER = """#!/bin/bash
exec > "$NAME/ready" 2> "$NAME/xrootd.log" < /dev/null
"$WEIR_BIN" serve --data "$NAME/weir" --listen "127.0.0.1:$WEIR_PORT" --config "$WEIR_CONFIG" &
echo $! > "$NAME/xrootd.pid"
for _ in {1..600}; do
    grep -q "weir: ready" "$NAME/ready" && exit 0
    kill -0 "$(cat "$NAME/xrootd.pid")" || break
    sleep 0.05
done
exit 1
"""
# In place of `xrdgsiproxy init -certdir DIR -cert FILE -key FILE -out FILE`. That of Debian (5.5) signs with SHA-1, which weir refuses.
PROXY = """#!/bin/bash
set -e
while (($#)); do
    case $1 in -cert) cert=$2 ;; -key) key=$2 ;; -out) out=$2 ;; esac
    shift
done
work=$(mktemp -d)
subject=$(openssl x509 -in "$cert" -noout -subject -nameopt compat)
printf 'keyUsage=critical,digitalSignature,keyEncipherment\\nproxyCertInfo=critical,language:id-ppl-inheritAll\\n' > "$work/ext"
openssl req -newkey rsa:2048 -nodes -sha256 -keyout "$work/key" -out "$work/csr" -subj "${subject#subject=}/CN=1000"
openssl x509 -req -sha256 -in "$work/csr" -CA "$cert" -CAkey "$key" -set_serial 1000 -days 1 -extfile "$work/ext" -out "$work/pem"
cat "$work/pem" "$work/key" "$cert" > "$out"
chmod 600 "$out"
rm -r "$work"
"""
# Whoever shows the right credential is the administrator, as the scripts' own servers let each user do everything.
RULES = {
    "sss": 'authentication.mechanisms = ["sss"]\nauthentication.keytab = "{tests}/sss.keytab"\n[[identity]]\nsecret = "*"\n',
    "unix": 'authentication.mechanisms = ["unix"]\n[[identity]]\nlocal_user = "*"\n',
    "host": 'authentication.mechanisms = ["host"]\n[[identity]]\nhost = "*"\n',
    "gsi": """
tls.certificate = "{tests}/../tls/host.pem"
tls.key = "{tests}/../tls/host.key"
authentication.mechanisms = ["gsi"]
authentication.gsi_authorities = "{tests}/../tls"
[[identity]]
certificate = "/CN=client"
""",
}


class Scripts:
    def __init__(self, home: Path, name: str):
        self.name, self.source, self.build = name, home / "XRootD", home / "build"
        self.tests, self.port = self.build / "tests/XRootD", free_port()
        archive = SOURCES / f"xrootd-{VERSION}.tar.gz"
        if not archive.exists():
            pytest.skip(f"no {archive}: scripts/setup.sh could not fetch it")
        top = f"xrootd-{VERSION}/tests"
        subprocess.run(["tar", "xzf", str(archive), f"{top}/XRootD", f"{top}/tls"], cwd=home, check=True)
        (home / top / "XRootD").rename(self.source)
        self.tls = home / top / "tls"
        self.tests.mkdir(parents=True)
        (self.build / "bin").mkdir()
        for tool in TOOLS:
            (self.build / "bin" / tool).symlink_to(shutil.which(tool))
        # `xrdgsitest` tests the client's own library, and leaves a proxy behind whose key has 512 bits (5.5), which weir refuses.
        for program, text in (("xrootd", SERVER), ("xrdgsiproxy", PROXY), ("xrdgsitest", "#!/bin/sh\n")):
            path = self.build / "bin" / program
            path.write_text(text)
            path.chmod(0o755)
        # Each run has a port of its own.
        config = self.source / f"{name}.cfg"
        lines = config.read_text().splitlines()
        config.write_text("".join(f"set port = {self.port}\n" if line.startswith("set port") else f"{line}\n" for line in lines))
        self.config = home / "weir.toml"
        self.config.write_text(RULES[name].format(tests=self.tests) + 'principal = "admin"\n')

    def run(self, step: str) -> subprocess.CompletedProcess:
        ours = {"BINARY_DIR": self.build, "SOURCE_DIR": self.source, "HOSTNAME": "localhost"}
        ours |= {"WEIR_BIN": WEIR_BIN, "WEIR_PORT": self.port, "WEIR_CONFIG": self.config}
        # What users of this machine have set must not count.
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("XRD_", "Xrd", "X509", "BEARER"))}
        environment |= {name: str(value) for name, value in ours.items()}
        command = ["bash", str(self.source / "test.sh"), self.name, step]
        quiet = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
        return subprocess.run(command, cwd=self.tests, env=environment, timeout=180, **quiet)

    def make_certificates(self) -> None:
        place = self.build / "tests/tls"
        place.mkdir()
        config = (self.tls / "tls.conf").read_text()
        (place / "tls.conf").write_text(config.replace("@CMAKE_CURRENT_BINARY_DIR@", str(place)).replace("@HOSTNAME@", "localhost"))
        subprocess.run(["bash", str(self.tls / "tls.sh"), "setup"], cwd=place, check=True, capture_output=True)
        place.chmod(0o755)


@pytest.fixture
def scripts(tmp_path):
    started = []

    def make(name: str) -> Scripts:
        started.append(Scripts(tmp_path, name))
        return started[-1]

    yield make
    for one in started:
        one.run("teardown")


def told(done: subprocess.CompletedProcess) -> str:
    return f"exit {done.returncode}\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}"


@pytest.mark.parametrize("name", ["sss", "unix", "host"])
def test_the_script_passes(scripts, name):
    script = scripts(name)
    done = script.run("setup")
    assert done.returncode == 0, told(done)
    done = script.run("run")
    if name == "sss" and 'error: command "test 0 == 4" failed' in done.stderr:
        # The script's last question is about a message of `xrdsssadmin`, which Debian's 5.5 does not have. All questions to the server
        # came before.
        return
    assert done.returncode == 0, told(done)


def test_the_script_of_gsi_passes_up_to_signed_requests(scripts):
    """It ends where it wants signed requests (`sec.level`), which weir does not ask clients for. What comes after that is asked here."""
    script = scripts("gsi")
    script.make_certificates()
    done = script.run("setup")
    assert done.returncode == 0, told(done)
    done = script.run("run")
    assert 'error: command "grep -c XrdSecProtect loaded' in done.stderr, told(done)
    assert "grep -c Authenticated with gsi" in done.stdout, told(done)
    url = f"root://localhost:{script.port}/"
    asked = ["env", f"X509_CERT_DIR={script.build}/tests/tls", "XrdSecPROTOCOL=gsi"]
    source = script.source / "gsi.cfg"
    for proxy, may in (("proxy.crt", True), ("iproxy.crt", False), ("rproxy.crt", False)):
        mine = [*asked, f"X509_USER_PROXY={script.tests}/{proxy}"]
        put = run([*mine, "xrdcp", "-f", str(source), f"{url}/{proxy}"])
        assert (put.code == 0) == may, (proxy, put)
    mine = [*asked, f"X509_USER_PROXY={script.tests}/proxy.crt"]
    assert run([*mine, "xrdfs", url, "cat", "/proxy.crt"]).ok().out.strip() == source.read_text().strip()
    assert run([*mine, "xrdfs", url, "ls", "/"]).ok().out.split() == ["/proxy.crt"]
    run([*mine, "xrdfs", url, "rm", "/proxy.crt"]).ok()
