"""XRootD's own test scripts for its mechanisms, with weir in place of the server. `scripts/setup.sh` fetches them with the source of the
package `xrootd` from PyPI; no copy of them is in this repository. `docs/explanation/tests.md` says what each one asks."""

import json
import os
import shutil
import ssl
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import pytest
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
# In place of the two programs of XRootD's tests that make what an issuer of tokens publishes, and a token by the WLCG profile: to compile
# those, one needs the library of SciTokens.
JWKS = """#!{python}
import base64, json, pathlib, subprocess, sys
_, public, out, kid = sys.argv
point = subprocess.run(["openssl", "pkey", "-pubin", "-in", public, "-outform", "DER"], check=True, capture_output=True).stdout[-64:]
x, y = (base64.urlsafe_b64encode(half).rstrip(b"=").decode() for half in (point[:32], point[32:]))
key = dict(kty="EC", crv="P-256", alg="ES256", use="sig", kid=kid, x=x, y=y)
pathlib.Path(out).write_text(json.dumps(dict(keys=[key])))
"""
TOKEN = """#!{python}
import base64, json, subprocess, sys, time, uuid
_, _, key, kid, issuer, scope = sys.argv
encoded = lambda data: base64.urlsafe_b64encode(data).rstrip(b"=").decode()
now = int(time.time())
claims = dict(iss=issuer, scope=scope, sub="test", iat=now, nbf=now, exp=now + 180, jti=str(uuid.uuid4()))
claims |= {"wlcg.ver": "1.0", "aud": "https://wlcg.cern.ch/jwt/v1/any"}
header = dict(alg="ES256", typ="JWT", kid=kid)
text = ".".join(encoded(json.dumps(part).encode()) for part in (header, claims))
der = subprocess.run(["openssl", "dgst", "-sha256", "-sign", key], input=text.encode(), check=True, capture_output=True).stdout
# SEQUENCE { INTEGER r, INTEGER s }
r_end = 4 + der[3]
r, s = der[4:r_end], der[r_end + 2 :]
raw = b"".join(int.from_bytes(number, "big").to_bytes(32, "big") for number in (r, s))
print(f"{text}.{encoded(raw)}")
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
authentication.signing = "standard"
authentication.gsi_authorities = "{tests}/../tls"
[[identity]]
certificate = "/CN=client"
""",
    "krb5": """
authentication.mechanisms = ["krb5"]
authentication.kerberos_keytab = "{tests}/../krb5/krb5.keytab"
[[identity]]
kerberos = "xrootd@XROOTD.ORG"
""",
    "scitokens": """
tls.certificate = "{tests}/../issuer/tls.crt"
tls.key = "{tests}/../issuer/tls.key"
authentication.mechanisms = ["ztn"]
authentication.ca = "{tests}/../issuer/tlsca.pem"
[[issuer]]
url = "https://localhost:{issuer}/issuer/one"
base_paths = ["/protected"]
audiences = ["https://localhost:{issuer}"]
any_audience = true
[[identity]]
issuer = "https://localhost:{issuer}/issuer/one"
""",
}


class Scripts:
    def __init__(self, home: Path, name: str):
        self.name, self.home, self.source, self.build = name, home, home / "XRootD", home / "build"
        # The port of the server is chosen when it starts: another run of tests could take it while certificates are made.
        self.tests, self.port, self.issuer_port = self.build / "tests/XRootD", 0, 0
        self.at_end, self.variables = [], {}
        archive = SOURCES / f"xrootd-{VERSION}.tar.gz"
        if not archive.exists():
            pytest.skip(f"no {archive}: scripts/setup.sh could not fetch it")
        top = f"xrootd-{VERSION}/tests"
        subprocess.run(["tar", "xzf", str(archive), top, f"xrootd-{VERSION}/src"], cwd=home, check=True)
        (home / top / "XRootD").rename(self.source)
        self.given = home / top
        self.tests.mkdir(parents=True)
        (self.build / "bin").mkdir()
        for tool in TOOLS:
            (self.build / "bin" / tool).symlink_to(shutil.which(tool))
        # `xrdgsitest` tests the client's own library, and leaves a proxy behind whose key has 512 bits (5.5), which weir refuses.
        for program, text in (("xrootd", SERVER), ("xrdgsiproxy", PROXY), ("xrdgsitest", "#!/bin/sh\n")):
            self.add_program(program, text)
        self.config = home / "weir.toml"

    def add_program(self, name: str, text: str) -> None:
        path = self.build / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def environment(self) -> dict[str, str]:
        ours = {"BINARY_DIR": self.build, "SOURCE_DIR": self.source, "HOSTNAME": "localhost"}
        ours |= {"WEIR_BIN": WEIR_BIN, "WEIR_PORT": self.port, "WEIR_CONFIG": self.config, **self.variables}
        # What users of this machine have set must not count.
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("XRD_", "Xrd", "X509", "BEARER", "KRB5"))}
        return kept | {name: str(value) for name, value in ours.items()}

    def run(self, step: str) -> subprocess.CompletedProcess:
        command = ["bash", str(self.source / "test.sh"), self.name, step]
        quiet = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
        return subprocess.run(command, cwd=self.tests, env=self.environment(), timeout=180, **quiet)

    def setup(self) -> None:
        self.config.write_text(RULES[self.name].format(tests=self.tests, issuer=self.issuer_port) + 'principal = "admin"\n')
        # Each run has a port of its own.
        self.port, config = free_port(), self.source / f"{self.name}.cfg"
        lines = config.read_text().splitlines()
        config.write_text("".join(f"set port = {self.port}\n" if line.startswith("set port") else f"{line}\n" for line in lines))
        done = self.run("setup")
        assert done.returncode == 0, told(done)

    def prepare(self, folder: str, script: str, *arguments: str, change=lambda text: text) -> Path:
        """Runs what XRootD's own build runs before the script, in a copy of this folder. `change` is made to its configuration files."""
        place = self.build / "tests" / folder
        shutil.copytree(self.given / folder, place)
        for path in place.glob("*.conf"):
            text = path.read_text().replace("@CMAKE_CURRENT_BINARY_DIR@", str(place)).replace("@HOSTNAME@", "localhost")
            path.write_text(change(text))
        command = ["bash", str(place / script), *arguments]
        quiet = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
        environment = {name: value for name, value in self.environment().items() if name != "SOURCE_DIR"}
        done = subprocess.run(command, cwd=place, env=environment, timeout=120, **quiet)
        assert done.returncode == 0, told(done)
        return place

    def make_certificates(self) -> None:
        self.prepare("tls", "tls.sh", "setup").chmod(0o755)

    def start_kdc(self) -> None:
        ports = {old: str(free_port()) for old in ("19488", "19749", "19464")}

        def change(text: str) -> str:
            for old, new in ports.items():
                text = text.replace(old, new)
            return text

        place = self.build / "tests/krb5"
        stop = ["bash", str(place / "kerberos.sh"), "teardown"]

        def end() -> None:
            if place.exists():
                subprocess.run(stop, cwd=place, env=self.environment(), capture_output=True, check=False)

        # Also if the script fails when it has started the server.
        self.at_end.append(end)
        self.prepare("krb5", "kerberos.sh", "setup", change=change)

    def start_issuer(self) -> None:
        """What the script's own server publishes by HTTP, another server does here, at another port."""
        served = self.home / "published"
        served.mkdir()

        class Quiet(SimpleHTTPRequestHandler):
            def log_message(self, *_):
                pass

        # It has its port from the beginning on. To make the certificates takes seconds, in which another run of tests could take the port.
        server = ThreadingHTTPServer(("127.0.0.1", free_port()), partial(Quiet, directory=served))
        self.at_end.append(server.server_close)
        self.issuer_port = server.server_address[1]
        for name, text in (("jwks", JWKS), ("token", TOKEN)):
            self.add_program(f"xrdscitokens-create-{name}", text.replace("{python}", sys.executable))
        script = self.source / "scitokens.sh"
        script.write_text(script.read_text().replace("localhost:7095", f"localhost:{self.issuer_port}"))
        place = self.build / "tests/issuer"
        self.prepare("scitokens", "setup.sh", str(place))
        url = f"https://localhost:{self.issuer_port}/issuer/one"
        published = {"issuer": url, "jwks_uri": f"{url}/issuer.jwks"}
        (place / "export/one/.well-known/openid-configuration").write_text(json.dumps(published))
        # The client of Debian's 5.5 does not take a file of authorities alone.
        trusted = place / "authorities"
        trusted.mkdir()
        shutil.copy(place / "tlsca.pem", trusted)
        subprocess.run(["openssl", "rehash", str(trusted)], check=True, capture_output=True)
        self.variables["X509_CERT_DIR"] = trusted
        (served / "issuer").symlink_to(place / "export")
        # The script's certificate has its name as a common name alone, which does not count here.
        (place / "names").write_text("subjectAltName=DNS:localhost\n")
        sign = ["-CA", "tlsca.pem", "-CAkey", "tlscakey.pem", "-set_serial", "77", "-days", "2", "-extfile", "names", "-out", "issuer.crt"]
        subprocess.run(["openssl", "x509", "-req", "-in", "tls.csr", *sign], cwd=place, check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(place / "issuer.crt", place / "tls.key")
        # Each connection shakes hands in its own thread, so that none keeps the others waiting.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.at_end.insert(0, server.shutdown)

    def compile_oracle(self) -> None:
        """Compiles the program with which the script asks a server to sign what it makes up, with the libraries of the package
        from PyPI and the headers of the source."""
        libraries = Path(find_spec("pyxrootd").origin).parent
        top = self.given.parent
        found = ["-L", str(libraries), "-lXrdCrypto", "-lXrdUtils", "-lcrypto", f"-Wl,-rpath,{libraries}"]
        program = ["-o", str(self.build / "bin/xrd-gsi-oracle"), str(self.given / "integration/XrdSecgsi/gsi_oracle.cc")]
        command = ["g++", "-std=c++17", "-I", str(top / "src"), *program, *found]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, told(done)


@pytest.fixture
def scripts(tmp_path):
    started = []

    def make(name: str) -> Scripts:
        started.append(Scripts(tmp_path, name))
        return started[-1]

    yield make
    for one in started:
        one.run("teardown")
        for end in one.at_end:
            end()


def told(done: subprocess.CompletedProcess) -> str:
    return f"exit {done.returncode}\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}"


@pytest.mark.parametrize("name", ["sss", "unix", "host"])
def test_the_script_passes(scripts, name):
    script = scripts(name)
    script.setup()
    done = script.run("run")
    if name == "sss" and 'error: command "test 0 == 4" failed' in done.stderr:
        # The script's last question is about a message of `xrdsssadmin`, which Debian's 5.5 does not have. All questions to the server
        # came before.
        return
    assert done.returncode == 0, told(done)


def test_the_script_of_gsi_passes(scripts):
    """With signed requests, refused proxies, and a server that signs nothing that a client makes up."""
    script = scripts("gsi")
    script.make_certificates()
    has_compiler = shutil.which("g++") is not None
    if has_compiler:
        script.compile_oracle()
    script.setup()
    done = script.run("run")
    assert "signatures: ok=" in done.stdout, told(done)
    if not has_compiler:
        assert 'error: command "xrd-gsi-oracle' in done.stderr, told(done)
        pytest.skip("the script passes until it asks the server to sign what a client makes up: that needs g++")
    for line in ("server refused to sign the DigestInfo", "old client interoperability OK"):
        assert line in done.stdout, told(done)
    assert done.returncode == 0, told(done)


@pytest.mark.skipif(
    shutil.which("krb5kdc", path=f"{os.environ['PATH']}:/usr/sbin") is None, reason="needs krb5-kdc, krb5-admin-server and krb5-user"
)
def test_the_script_of_kerberos_passes(scripts):
    script = scripts("krb5")
    script.start_kdc()
    script.setup()
    done = script.run("run")
    assert done.returncode == 0, told(done)


def test_the_script_of_tokens_passes_up_to_http(scripts):
    """Its first question by HTTP reaches the server of the keys, which has no such file."""
    script = scripts("scitokens")
    script.start_issuer()
    script.setup()
    data = script.tests / "scitokens/weir"
    subprocess.run([WEIR_BIN, "tree", "create", "/protected", "--mkdir", "--data", str(data)], check=True, capture_output=True)
    done = script.run("run")
    asked = [line.split()[0] for line in done.stdout.splitlines() if line.startswith(("xrdcp ", "diff "))]
    assert asked == ["xrdcp", "xrdcp", "xrdcp", "diff"], told(done)
    # The script puts the server's log before what it expected.
    assert ": expected 200 but received 404\n" in done.stderr, told(done)
    [reached] = (script.tests / "scitokens/curl_output.txt").read_text().splitlines()[:1]
    assert reached.startswith("curl ") and reached.endswith("/localhost/hello_world.txt"), reached
