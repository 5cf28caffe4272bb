"""Files of any XRootD server, and of weir, in Python.

`fsspec`, and what uses it (uproot, dask, pandas, pyarrow), open `weir://HOST//PATH` with this package::

    import uproot
    events = uproot.open("weir://data.example.org//run7/events.root:Events")

`weir.register()` lets it serve `root://` addresses as well. `weir.open` opens one file, and `weir.follow` reads a
recording while it grows.
"""

from __future__ import annotations

from typing import Any

import fsspec

from ._weir import __version__
from .follow import Follower, follow
from .fs import WeirFileSystem

__all__ = ["Follower", "WeirFileSystem", "__version__", "follow", "open", "register"]


def open(url: str, mode: str = "rb", **options: Any) -> Any:
    """Open one file of a server.

    `mode` is `rb` (read), `wb` (replace), `xb` (must be new), `ab` (continue), or the same without `b` for text. Opening
    for writing makes missing directories. `options` go to `WeirFileSystem.open`.
    """
    fs = WeirFileSystem(**WeirFileSystem._get_kwargs_from_urls(url))
    return fs.open(WeirFileSystem._strip_protocol(url), mode, **options)


def register(clobber: bool = True) -> None:
    """Let `fsspec` open `root://`, `xroot://` and `weir://` addresses with this package, in this process.

    With `clobber=False` it fails if another package serves one of them already.
    """
    for protocol in ("root", "xroot", "roots", "xroots", "weir"):
        fsspec.register_implementation(protocol, WeirFileSystem, clobber=clobber)
