"""The stock command-line clients with time limits. Also normalises their output for comparisons."""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

# A client without a server gives up soon, and retries a dead connection quickly. Recovery tests lengthen these times.
PATIENCE = {
    "XRD_CONNECTIONWINDOW": "5",
    "XRD_CONNECTIONRETRY": "2",
    "XRD_STREAMERRORWINDOW": "0",
    "XRD_REQUESTTIMEOUT": "60",
    "XRD_TIMEOUTRESOLUTION": "1",
}
# Retries for a minute when the connection or the server dies.
STUBBORN = {**PATIENCE, "XRD_CONNECTIONWINDOW": "2", "XRD_CONNECTIONRETRY": "30", "XRD_STREAMERRORWINDOW": "2"}


# The server's message for a file that its writer left unfinished.
INTERRUPTED = re.compile(r"interrupted|writer went away", re.IGNORECASE)


@dataclass
class Outcome:
    code: int
    out: str
    err: str

    @property
    def error(self) -> int | None:
        """The protocol's error number, as the clients print it: `[3011] No such file`."""
        match = re.search(r"\[(3\d\d\d)\]", self.out + self.err)
        return int(match.group(1)) if match else None

    def ok(self) -> "Outcome":
        assert self.code == 0, f"exit {self.code}\n{self.out}\n{self.err}"
        return self

    def refused(self, *numbers: int) -> "Outcome":
        """Asserts that it failed with one of these error numbers."""
        assert self.code != 0, f"succeeded, expected one of {numbers}\n{self.out}"
        assert self.error in numbers, f"error {self.error}, expected one of {numbers}\n{self.out}\n{self.err}"
        return self

    def fails(self, words: str) -> "Outcome":
        """Asserts that it failed with this text, which may be the client's own."""
        assert self.code != 0 and words in (self.out + self.err).lower(), f"exit {self.code}\n{self.out}\n{self.err}"
        return self


def environment(patience: dict[str, str] = PATIENCE) -> dict[str, str]:
    return {**os.environ, **patience}


def run(command: list[str | bytes], timeout: float = 120, patience: dict[str, str] = PATIENCE) -> Outcome:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, env=environment(patience))
    return Outcome(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def xrdcp(*arguments: str | bytes | Path, timeout: float = 120, patience: dict[str, str] = PATIENCE) -> Outcome:
    return run(["xrdcp", "--nopbar", *(a if isinstance(a, bytes) else str(a) for a in arguments)], timeout, patience)


def start_xrdcp(*arguments: str | Path, patience: dict[str, str] = STUBBORN, **more) -> subprocess.Popen:
    """Starts it in the background, for tests that disturb it."""
    return subprocess.Popen(
        ["xrdcp", "--nopbar", *map(str, arguments)],
        stdin=more.pop("stdin", subprocess.DEVNULL),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment(patience),
        **more,
    )


class Xrdfs:
    """`Xrdfs(url).stat("/a")` runs `xrdfs url stat /a`."""

    def __init__(self, url: str):
        self.url = url.rstrip("/")

    def __call__(self, *arguments: str | bytes, timeout: float = 60) -> Outcome:
        return run(["xrdfs", self.url, *arguments], timeout)

    def size(self, path: str) -> int:
        return int(self.field(self("stat", path).ok().out, "Size"))

    def flags(self, path: str) -> set[str]:
        text = self.field(self("stat", path).ok().out, "Flags")
        return set(re.search(r"\((.*)\)", text).group(1).split("|")) if "(" in text else set()

    def names(self, path: str) -> list[str]:
        """The names in a directory, without the path."""
        lines = self("ls", path).ok().out.splitlines()
        return sorted(line.rpartition("/")[2] for line in lines if line)

    @staticmethod
    def field(text: str, name: str) -> str:
        match = re.search(rf"^{name}:\s*(.*)$", text, re.MULTILINE)
        assert match, f"no {name} in:\n{text}"
        return match.group(1).strip()

    def exists(self, path: str) -> bool:
        outcome = self("stat", path)
        assert outcome.code == 0 or outcome.error == 3011, f"{outcome.out}\n{outcome.err}"
        return outcome.code == 0
