"""Nodes that take certificates."""

from authority import Authority


def weir_settings(authority: Authority, name: str, more: str = "", hosts: str = "DNS:localhost,IP:127.0.0.1") -> str:
    """The configuration of a node that takes certificates alone: `keeper` is its administrator, and `ana` a user."""
    certificate, key = authority.issue(name, hosts)
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
