"""Starts servers on free loopback ports: the real weir, or a stock xrootd that validates the tests themselves."""

import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from ports import free_port

ROOT = Path(__file__).resolve().parent.parent
WEIR_BIN = Path(os.environ.get("WEIR_BIN", ROOT / "target/release/weir"))
READY_SECONDS = 30


class Defaults:
    """What nodes without a configuration of their own have in all tests of a file."""

    # A new node writes its journal's files before it uses them, and reads them at each start. Hundreds of nodes need no large ones.
    SMALL = 'journal.segment_size = "8MiB"\nspace.ballast = "8MiB"\n'
    # What users get instead (`SHIPPED_SIZES` in the file).
    shipped_sizes = False
    # They keep no recently written data in memory (`WITHOUT_RECENT` in the file): the tests damage the disk, or measure memory.
    without_recent = False

    @classmethod
    def flags(cls, home: Path, given: tuple[str | Path, ...]) -> tuple[str | Path, ...]:
        """The flags of a node that has been given these. One with a configuration of its own must say there what it needs."""
        lines = ("" if cls.shipped_sizes else cls.SMALL) + ('limits.recent = "0B"\n' if cls.without_recent else "")
        if not lines or "--config" in given:
            return given
        config = home / "defaults.toml"
        config.write_text(lines)
        return ("--config", config, *given)


class StartFailed(Exception):
    """The server ended, or did not become ready."""

    def __init__(self, code: int | None, log: str):
        super().__init__(f"server did not start (exit code {code}):\n{log}")
        self.code = code
        self.log = log


class Server:
    """The common part of both kinds of server. `home` holds data, configuration and log; the port stays the same over restarts."""

    kind: str

    def __init__(self, home: Path, data: Path | None = None):
        self.home = home
        self.home.mkdir(parents=True, exist_ok=True)
        self.data = data or home / "data"
        self.log = home / "log"
        self.port = 0
        self.process: subprocess.Popen | None = None

    def __enter__(self):
        if self.process is None:
            self.start()
        return self

    def __exit__(self, *_):
        if self.alive():
            self.stop()

    @property
    def url(self) -> str:
        return f"root://127.0.0.1:{self.port}/"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def log_text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def start(self) -> "Server":
        raise NotImplementedError

    def stop(self, patience_seconds: float = 30) -> tuple[int, float]:
        """Sends SIGTERM; returns the exit code and the duration."""
        return self._end(signal.SIGTERM, patience_seconds)

    def kill(self) -> None:
        """Sends SIGKILL: the process does not execute another instruction."""
        self._end(signal.SIGKILL, 30)

    def restart(self) -> "Server":
        if self.alive():
            self.stop()
        return self.start()

    def fsck(self) -> None:
        """Checks the data of a server that does not run, if there is a program for that."""

    def _end(self, how: signal.Signals, patience_seconds: float) -> tuple[int, float]:
        assert self.process is not None
        begin = time.monotonic()
        self.process.send_signal(how)
        try:
            code = self.process.wait(patience_seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"server still there {patience_seconds} s after {how.name}") from None
        return code, time.monotonic() - begin

    def rss_bytes(self) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS: the server has ended")

    def cpu_seconds(self) -> float:
        """User and system time of all its threads, including ended ones."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Weir(Server):
    kind = "weir"

    def __init__(self, home: Path, data: Path | None = None, flags: tuple[str, ...] = ()):
        super().__init__(home, data)
        self.flags = flags

    def command(self) -> list[str]:
        flags = map(str, Defaults.flags(self.home, self.flags))
        return [str(WEIR_BIN), "serve", "--data", str(self.data), "--listen", f"127.0.0.1:{self.port}", *flags]

    def fsck(self) -> None:
        checked = weir("fsck", "--data", str(self.data))
        assert checked.returncode == 0, f"{checked.stdout}{checked.stderr}"

    def start(self) -> "Weir":
        ready = self.home / "ready"
        # Another program could take a port that the kernel chooses, while the server is down.
        self.port = self.port or free_port()
        with open(self.log, "ab") as log, open(ready, "wb") as out:
            self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=out, stderr=log)
        end = time.monotonic() + READY_SECONDS
        while time.monotonic() < end:
            line = ready.read_text()
            if line.endswith("\n"):
                assert line.startswith("weir: ready root://127.0.0.1:"), line
                self.port = int(line.rstrip("/\n").rpartition(":")[2])
                return self
            if self.process.poll() is not None:
                raise StartFailed(self.process.returncode, self.log_text())
            time.sleep(0.01)
        self.kill()
        raise StartFailed(None, self.log_text())


class Xrootd(Server):
    """A stock xrootd over a plain directory, without authentication, with both checksums that weir keeps."""

    kind = "xrootd"
    more = ""  # further lines of its configuration

    def __init__(self, home: Path, data: Path | None = None, flags: tuple[str, ...] = ()):
        super().__init__(home, data)
        self.flags = flags

    def start(self) -> "Xrootd":
        self.data.mkdir(exist_ok=True)
        self.port = self.port or free_port()
        config = self.home / "xrootd.cfg"
        config.write_text(
            f"all.export /\noss.localroot {self.data}\nall.adminpath {self.home}/admin\nall.pidpath {self.home}/admin\n"
            f"xrootd.chksum max 4 adler32 crc32c\nofs.chkpnt enable path {self.home}/checkpoints\n{self.more}"
        )
        command = ["xrootd", "-c", str(config), "-l", str(self.log), "-p", str(self.port)]
        if os.getuid() == 0:  # it refuses to run as root
            user = pwd.getpwnam("xrootd")
            for place in (self.home, self.data):
                os.chown(place, user.pw_uid, user.pw_gid)
                place.chmod(0o755)
            command += ["-R", "xrootd"]
        starts = 3
        end = time.monotonic() + READY_SECONDS
        self.process = None
        while time.monotonic() < end:
            if self.process is None:
                self.process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.home
                )
                starts -= 1
            if self.process.poll() is not None:
                # On a busy machine it sometimes crashes before it has started: its threads change and read the environment at once.
                if self.process.returncode not in (-signal.SIGSEGV, -signal.SIGABRT) or not starts:
                    raise StartFailed(self.process.returncode, self.log_text())
                self.process = None
                continue
            if "initialization completed" in self.log_text() and listening(self.port):
                return self
            time.sleep(0.05)
        self.kill()
        raise StartFailed(None, self.log_text())


class Nginx(Server):
    """A stock nginx with its WebDAV modules, over a plain directory."""

    kind = "nginx"

    def __init__(self, home: Path, certificate: tuple[Path, Path] | None = None, token: str | None = None):
        super().__init__(home)
        self.certificate = certificate
        self.token = token

    @property
    def http_url(self) -> str:
        return f"{'https' if self.certificate else 'http'}://127.0.0.1:{self.port}/"

    def start(self) -> "Nginx":
        self.data.mkdir(exist_ok=True)
        self.port = self.port or free_port()
        tls = "ssl" if self.certificate else ""
        keys = "ssl_certificate {}; ssl_certificate_key {};".format(*self.certificate) if self.certificate else ""
        token = f'if ($http_authorization != "Bearer {self.token}") {{ return 403; }}' if self.token else ""
        temporary = " ".join(f"{kind}_temp_path {self.home}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        config = self.home / "nginx.conf"
        config.write_text(f"""load_module /usr/lib/nginx/modules/ngx_http_dav_ext_module.so;
{"user root;" if os.getuid() == 0 else ""} daemon off; worker_processes 2; pid {self.home}/pid; error_log {self.log};
events {{ worker_connections 512; }}
http {{
    log_format full '$request_method $uri $status "$http_authorization"';
    access_log {self.home}/access.log full; {temporary}
    server {{
        listen 127.0.0.1:{self.port} {tls}; {keys}
        root {self.data}; client_max_body_size 0; {token}
        dav_methods PUT DELETE MKCOL; dav_ext_methods PROPFIND; dav_access user:rw group:r all:r;
    }}
}}
""")
        self.process = subprocess.Popen(
            ["/usr/sbin/nginx", "-p", self.home, "-c", config],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        end = time.monotonic() + READY_SECONDS
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise StartFailed(self.process.returncode, self.log_text())
            if listening(self.port):
                return self
            time.sleep(0.05)
        self.kill()
        raise StartFailed(None, self.log_text())


def listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def of_processes(pattern: str) -> list[str]:
    """Reads the matching files below /proc; skips processes that end meanwhile."""
    found = []
    for path in Path("/proc").glob(pattern):
        try:
            found.append(path.read_text(errors="replace"))
        except OSError:
            continue
    return found


def is_well(state: str) -> bool:
    """Whether a node calls itself healthy. A machine that is short of disk space is not the node's fault."""
    return state == "healthy" or (state.startswith("warning: the disk of ") and state.endswith(" %"))


def until(fact, seconds: float, why=lambda: "it has not come about"):
    """Waits for a condition and returns its value."""
    end = time.monotonic() + seconds
    while not (found := fact()):
        assert time.monotonic() < end, why()
        time.sleep(0.05)
    return found


def weir(*arguments: str, timeout: float = 120, cwd: Path | None = None) -> subprocess.CompletedProcess:
    """Runs the binary to its end, `weir("fsck", "--data", ...)`; returns its output as text."""
    command = [str(WEIR_BIN), *arguments]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=timeout, cwd=cwd)


class Killer:
    """Kills commands with SIGKILL at a random moment of their usual duration."""

    def __init__(self, seed: int, *usual: str | Path):
        self.pick = random.Random(seed)
        begin = time.monotonic()
        subprocess.run([WEIR_BIN, *usual], stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60)
        self.takes_seconds = time.monotonic() - begin
        self.killed = 0

    def run(self, *arguments: str | Path) -> None:
        command = [WEIR_BIN, *arguments]
        begin = time.monotonic()
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            child.wait(self.pick.uniform(0, 1.5 * self.takes_seconds))
            self.takes_seconds = time.monotonic() - begin
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            self.killed += 1


def root_files() -> list[Path]:
    """Real ROOT files: the two in the repository, and the rest of the collection if it is available."""
    found = {path.name: path for folder in _root_folders() for path in sorted(folder.glob("*.root"))}
    return list(found.values())


def root_file(name: str) -> Path:
    """A ROOT file by its name; skips the test if the file is not available."""
    for folder in _root_folders():
        if (folder / name).exists():
            return folder / name
    pytest.skip(f"no {name} here: see testdata/root/README.md")


def _root_folders() -> list[Path]:
    """The repository's files come last, so that they win over equal names."""
    return [Path(os.environ.get("WEIR_ROOT_FILES", ROOT.parent / "shared/data/root")), ROOT / "testdata/root"]


def remove(home: Path) -> None:
    shutil.rmtree(home, ignore_errors=True)
