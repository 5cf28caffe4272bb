"""Addresses: `weir://` and `root://` mean the same. `roots://` is the same with TLS."""

from __future__ import annotations

import re

PROTOCOLS = ("weir", "root", "xroot", "roots", "xroots")
TLS = ("roots", "xroots")
WORDS = re.compile(r"\?(?=[\w.-]+=)", re.ASCII)


def split(url: str) -> tuple[str | None, str]:
    """The server (`HOST[:PORT]`, perhaps with `USER@`) and the path of an address. A path alone has no server."""
    scheme, found, rest = url.partition("://")
    if not found or scheme not in PROTOCOLS:
        return None, _path(url)
    ends = [at for at in (rest.find("/"), rest.find("?")) if at >= 0]
    end = min(ends, default=len(rest))
    server = rest[:end]
    if not server:
        raise ValueError(f"`{url}` has no server; write weir://HOST[:PORT]//PATH")
    return server, _path(rest[end:])


def wants_tls(url: str) -> bool:
    """Whether the address asks for TLS."""
    return url.partition("://")[0] in TLS


def cut(path: str) -> tuple[str, str]:
    """The name in a path, and the words behind it (`?KEY=VALUE&...`). Any other `?` belongs to the name, or to a pattern."""
    words = WORDS.search(path)
    return (path[: words.start()], path[words.start() :]) if words else (path, "")


def _path(text: str) -> str:
    name, words = cut(text)
    return "/" + name.strip("/") + words


def join(server: str, path: str, protocol: str = "root") -> str:
    """The address of a path. The client sends those with `root`, or `roots` for TLS."""
    return f"{protocol}://{server}/{_path(path)}"
