"""A node and a cluster that let users in by tokens of a local issuer, for tests of whole clients."""

from pathlib import Path

from authority import HOSTS, Authority
from clients import run
from cluster import Cluster
from harness import WEIR_BIN, Weir, remove
from issuer import AUDIENCE, Issuer
from secrets_of import add_key


class TokenHost:
    """Users show a token, and the administrator a shared secret, which no issuer limits."""

    def __init__(self, url: str, issuer: Issuer, authority: Authority, keytab: Path):
        self.url, self.issuer, self.authority, self.keytab = url, issuer, authority, keytab

    def environment(self, token: str | None) -> dict[str, str]:
        shown = {"BEARER_TOKEN": token} if token else {"BEARER_TOKEN_FILE": "/nonexistent", "XDG_RUNTIME_DIR": "/nonexistent"}
        # Nothing else may let them in.
        return {**shown, "X509_CERT_DIR": str(self.authority.trusted), "XrdSecPROTOCOL": "ztn", "HOME": "/nonexistent"}

    def does(self, token: str | None, *command):
        return run(["env", *(f"{name}={value}" for name, value in self.environment(token).items()), *map(str, command)])

    def keeper(self, *command):
        shown = [f"X509_CERT_DIR={self.authority.trusted}", "XrdSecPROTOCOL=sss", f"XrdSecSSSKT={self.keytab}"]
        return run(["env", *shown, *map(str, command)])

    def chown(self, owner: str, path: str) -> None:
        self.keeper(WEIR_BIN, "chown", owner, f"{self.url}/{path}").ok()


def start(kind: str, base, of_issuer: str, rules: str):
    """A generator for a fixture. `rules` are the `[[identity]]` for tokens; ISSUER in them stands for the condition of the issuer."""
    home = base / f"token-{kind}"
    home.mkdir()
    authority = Authority(home)
    issuer = Issuer(home, authority.issue("issuer"))
    certificate, key = authority.issue("nodes", HOSTS)
    keytab = home / "keeper.keytab"
    add_key(keytab, "keeper", "keeper", "staff")
    condition = f'issuer = "{issuer.url}"'
    config = home / "weir.toml"
    config.write_text(
        f"""
tls.certificate = "{certificate}"
tls.key = "{key}"
tls.required = ["login"]
authentication.mechanisms = ["ztn", "sss"]
authentication.keytab = "{keytab}"
authentication.ca = "{authority.home / "ca.pem"}"
[[issuer]]
url = "{issuer.url}"
audiences = ["{AUDIENCE}"]
{of_issuer}
[[identity]]
secret = "keeper"
principal = "admin"
{rules.replace("ISSUER", condition)}
"""
    )
    flags = ("--config", str(config))
    try:
        if kind == "cluster":
            with Cluster(home / "cluster", 2, flags) as cluster:
                yield TokenHost(cluster.url.rstrip("/").replace("root:", "roots:"), issuer, authority, keytab)
        else:
            with Weir(home / "node", None, flags) as server:
                yield TokenHost(f"roots://127.0.0.1:{server.port}", issuer, authority, keytab)
    finally:
        issuer.stop()
        remove(home)
