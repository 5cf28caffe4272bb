"""The stock client library, for functions that no command or binding offers: `xrdcl.cc`, built once per run."""

import subprocess
from pathlib import Path

from clients import STUBBORN, environment

SOURCE = Path(__file__).with_name("xrdcl.cc")


def build(folder: Path) -> Path:
    program = folder / "xrdcl"
    command = ["g++", "-std=c++17", "-O1", "-I/usr/include/xrootd", str(SOURCE), "-o", str(program), "-lXrdCl"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return program


class Refused(Exception):
    def __init__(self, line: str):
        super().__init__(line)
        self.number = int(line.split()[1])


class File:
    """One XrdCl::File; each call is a command of `xrdcl.cc`."""

    def __init__(self, program: Path, url: str, patience: dict[str, str] = STUBBORN):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([program], stdin=pipe, stdout=pipe, text=True, env=environment(patience))
        self("open", url)

    def __call__(self, *words: object) -> None:
        assert self.process.stdin and self.process.stdout
        print(*words, file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line.startswith("ok"):
            raise Refused(line)

    def __enter__(self) -> "File":
        return self

    def __exit__(self, *_) -> None:
        self.process.kill()
        self.process.communicate()
