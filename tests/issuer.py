"""An issuer of bearer tokens as sites have them: discovery and keys over HTTPS, and tokens that it signs (RS256)."""

import base64
import json
import re
import ssl
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from authority import Authority

DISCOVERY = "/.well-known/openid-configuration"
AUDIENCE = "root://weir.example"
SCOPES = "storage.read:/ storage.modify:/"


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def trusting(
    issuer: "Issuer",
    authority: Authority,
    tls: tuple[Path, Path],
    mechanisms: str = '["ztn"]',
    more: str = "",
    of_issuer: str = "",
    of_rule: str = "",
) -> str:
    """The settings of a node with this certificate and key that trusts the issuer, whose subject `keeper` is the administrator there."""
    certificate, key = tls
    return f"""
tls.certificate = "{certificate}"
tls.key = "{key}"
authentication.mechanisms = {mechanisms}
authentication.ca = "{authority.home / "ca.pem"}"
{more}
[[issuer]]
url = "{issuer.url}"
base_paths = ["/"]
audiences = ["{AUDIENCE}"]
{of_issuer}
[[identity]]
issuer = "{issuer.url}"
subject = "keeper"
principal = "admin"
[[identity]]
issuer = "{issuer.url}"
principal = "{{subject}}"
{of_rule}
"""


class Issuer:
    """Serves on a port of this machine until `stop`. `tls` is the certificate and its key."""

    def __init__(self, home: Path, tls: tuple[Path, Path]):
        self.home = home
        self.asked: list[str] = []
        self.keys: dict[str, Path] = {}
        self.add_key("first")
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                issuer.asked.append(self.path)
                if self.path == DISCOVERY:
                    body = {"issuer": issuer.url, "jwks_uri": f"{issuer.url}/jwks"}
                elif self.path == "/jwks":
                    body = {"keys": [issuer.public(name) for name in issuer.keys]}
                else:
                    self.send_error(404)
                    return
                sent = json.dumps(body).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"https://localhost:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def add_key(self, name: str) -> None:
        path = self.home / f"issuer-{name}.key"
        subprocess.run(["openssl", "genrsa", "-out", str(path), "2048"], check=True, capture_output=True)
        self.keys[name] = path

    def public(self, name: str) -> dict[str, str]:
        asked = ["openssl", "rsa", "-in", str(self.keys[name]), "-noout", "-modulus"]
        modulus = re.search("Modulus=([0-9A-F]+)", subprocess.run(asked, check=True, capture_output=True, text=True).stdout)[1]
        return {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": name, "n": encoded(bytes.fromhex(modulus)), "e": "AQAB"}

    def token(self, subject: str, scope: str | None = SCOPES, key: str = "first", seconds: float = 600, **claims) -> str:
        """A token by the WLCG profile. A claim that is None is left out."""
        now = int(time.time())
        known = {
            "wlcg.ver": "1.0",
            "iss": self.url,
            "sub": subject,
            "aud": AUDIENCE,
            "iat": now,
            "nbf": now,
            "exp": int(now + seconds),
            "jti": f"{subject}-{now}",
            "scope": scope,
        }
        content = {name: value for name, value in {**known, **claims}.items() if value is not None}
        return self.signed({"alg": "RS256", "typ": "JWT", "kid": key}, content, self.keys[key])

    @staticmethod
    def signed(header: dict, content: dict, key: Path) -> str:
        text = ".".join(encoded(json.dumps(part).encode()) for part in (header, content))
        signing = ["openssl", "dgst", "-sha256", "-sign", str(key)]
        return f"{text}.{encoded(subprocess.run(signing, input=text.encode(), check=True, capture_output=True).stdout)}"
