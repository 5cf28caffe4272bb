"""Addresses: `weir://` and `root://` mean the same."""

from __future__ import annotations

PROTOCOLS = ("weir", "root", "xroot", "roots", "xroots")


def split(url: str) -> tuple[str | None, str]:
    """The server (`HOST[:PORT]`, perhaps with `USER@`) and the path of an address. A path alone has no server."""
    scheme, found, rest = url.partition("://")
    if not found or scheme not in PROTOCOLS:
        return None, _path(url)
    if scheme in ("roots", "xroots"):
        raise ValueError(f"`{url}` needs TLS, which this version of weir does not speak; use root://")
    ends = [at for at in (rest.find("/"), rest.find("?")) if at >= 0]
    end = min(ends, default=len(rest))
    server = rest[:end]
    if not server:
        raise ValueError(f"`{url}` has no server; write weir://HOST[:PORT]//PATH")
    return server, _path(rest[end:])


def _path(text: str) -> str:
    path, mark, words = text.partition("?")
    path = "/" + path.strip("/")
    return path + mark + words


def join(server: str, path: str) -> str:
    """The address that the client sends."""
    return f"root://{server}/{_path(path)}"
