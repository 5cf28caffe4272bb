"""A PostgreSQL server of a test's own, with the durability that it has by default. The program is Debian's package."""

import atexit
import functools
import itertools
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import quote, urlencode

from authority import Authority
from harness import StartFailed, remove
from ports import free_port

ADMIN = "postgres"  # the account that runs it if the tests run as root, and the superuser of the server
# Passwords of these servers are worth nothing, but a character that a URL must quote shows whether programs do it.
PASSWORD = "p@ss/word"
START_SECONDS = 60
STOP_SECONDS = 30
SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}


class PostgresMissing(Exception):
    """PostgreSQL, or its account, is not installed."""


@functools.cache
def program(name: str) -> str:
    """The path of a program of the newest installed version. Debian has most of them outside PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: float(path.parts[4]))
    if not found:
        raise PostgresMissing(f"cannot run PostgreSQL's `{name}`: no /usr/lib/postgresql/*/bin/{name}; `scripts/setup.sh test` installs it")
    return str(found[-1])


def as_account(*command: str | Path) -> list[str]:
    """The command under an account that may run PostgreSQL, which refuses root. The process stays the same."""
    prefix = []
    if os.getuid() == 0:
        account()
        prefix = ["setpriv", "--reuid", ADMIN, "--regid", ADMIN, "--init-groups"]
    return [*prefix, *map(str, command)]


def account() -> pwd.struct_passwd:
    """The owner of a server's files."""
    if os.getuid() != 0:
        return pwd.getpwuid(os.getuid())
    try:
        return pwd.getpwnam(ADMIN)
    except KeyError:
        message = f"cannot run PostgreSQL: it refuses root, and there is no account {ADMIN}; `scripts/setup.sh test` makes it"
        raise PostgresMissing(message) from None


def give(path: Path, mode: int) -> None:
    """Gives a file or folder to the account."""
    owner = account()
    os.chown(path, owner.pw_uid, owner.pw_gid)
    path.chmod(mode)


def clean_environment() -> dict[str, str]:
    """Settings of this process's user must not reach the server or its tools. Messages are in English."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))} | {"LC_ALL": "C.UTF-8"}


@functools.cache
def template() -> Path:
    """A data directory that servers start from. Copying it is quicker than making one."""
    home = Path(tempfile.mkdtemp(prefix="weir-pg-"))
    atexit.register(remove, home)
    give(home, 0o700)
    password = home / "password"
    password.write_text(PASSWORD)
    give(password, 0o600)
    command = as_account(program("initdb"), "--pgdata", home / "data", "--username", ADMIN, "--pwfile", password)
    # Without the sync of all its files: no crash of the machine matters before the server has started.
    command += ["--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C.UTF-8", "--no-sync"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=clean_environment(), cwd=home)
    if done.returncode:
        raise StartFailed(done.returncode, done.stdout + done.stderr)
    return home / "data"


def kill_tree(postmaster: int) -> None:
    """Sends SIGKILL to a postmaster and to all its children. None of them executes another instruction after the last signal."""
    try:
        os.kill(postmaster, signal.SIGSTOP)  # it starts no further child, and reports none as lost
        children = children_of(postmaster)
    except (ProcessLookupError, FileNotFoundError):
        return
    for pid in (*children, postmaster):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    for pid in children:
        _await_end(pid)


def children_of(postmaster: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()]


def _await_end(pid: int) -> None:
    """A child that holds the shared memory for another moment would keep a new server from starting."""
    end = time.monotonic() + STOP_SECONDS
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return
        if state == "Z":
            return
        time.sleep(0.01)
    raise AssertionError(f"process {pid} of PostgreSQL is still there {STOP_SECONDS} s after SIGKILL")


class Postgres:
    """The server runs while this is entered. `home` holds data and log, and must be accessible to other users (`base` is); it is removed
    at the end. The address and port stay the same over restarts.

    With `authority`, it has a certificate of that authority and takes connections over TCP with TLS only.
    `settings` are further lines of `postgresql.conf`, such as `{"deadlock_timeout": "100ms"}`.
    With `primary`, it is a replica of that running server, and accepts no changes."""

    def __init__(
        self,
        home: Path,
        *,
        address: str = "127.0.0.1",
        max_connections: int = 100,
        authority: Authority | None = None,
        settings: dict[str, str | int] | None = None,
        primary: "Postgres | None" = None,
    ):
        self.home, self.address, self.authority, self.primary = home, address, authority, primary
        self.data, self.log = home / "data", home / "log"
        self.settings = {"max_connections": max_connections, **(settings or {})}
        self.port = 0
        self.passwords = primary.passwords if primary else {ADMIN: PASSWORD}
        self.process: subprocess.Popen | None = None
        self.socket: Path | None = None
        self._numbers = itertools.count(1)

    def __enter__(self) -> "Postgres":
        if self.process is None:
            try:
                self.start()
            except BaseException:
                self.__exit__()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        if self.alive():
            self.kill()
        remove(self.home)
        if self.socket:
            remove(self.socket)

    @property
    def pid(self) -> int:
        """The postmaster's."""
        assert self.process is not None
        return self.process.pid

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def url(self, user: str = ADMIN, database: str = "postgres", **parameters: str | int) -> str:
        """The address of a database over TCP, with the password, and with further parameters of the URL."""
        if self.authority:
            parameters = {"sslmode": "verify-full", "sslrootcert": str(self.authority.home / "ca.pem"), **parameters}
        whole = f"postgres://{user}:{quote(self.passwords[user], safe='')}@{self.address}:{self.port}/{database}"
        return whole + (f"?{urlencode(parameters)}" if parameters else "")

    def socket_url(self, user: str = ADMIN, database: str = "postgres") -> str:
        """The address of a database over the Unix socket."""
        password = quote(self.passwords[user], safe="")
        return f"postgres://{user}:{password}@/{database}?{urlencode({'host': str(self.socket), 'port': self.port})}"

    def create_database(self, owner: str = ADMIN) -> str:
        """Makes an empty database and returns its name."""
        name = f"weir{next(self._numbers)}"
        self.psql(f'CREATE DATABASE "{name}" OWNER "{owner}"')
        return name

    def create_user(self, name: str, options: str = "") -> str:
        """Makes a user with a password, and without any right unless `options` has some; returns the name."""
        self.passwords[name] = secrets.token_urlsafe(12)
        self.psql(f"CREATE USER \"{name}\" {options} PASSWORD '{self.passwords[name]}'")
        return name

    def psql(self, sql: str, user: str = ADMIN, database: str = "postgres", timeout: float = 60) -> str:
        """Runs statements over the Unix socket. Returns the rows as lines, with `|` between columns."""
        command = [program("psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", self.socket_url(user, database), "-c", sql]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=clean_environment())
        assert done.returncode == 0, f"psql failed on {sql!r}: {done.stderr.strip()}"
        return done.stdout.strip()

    def terminate_backends(self, condition: str = "true") -> int:
        """Ends the connections of all clients, as an administrator does, or of those with a condition on `pg_stat_activity`; returns their
        number."""
        return self._signal("pg_terminate_backend", condition)

    def cancel_statements(self, condition: str = "true") -> int:
        """Ends what clients wait for, and leaves their connections. Takes and returns the same as `terminate_backends`."""
        return self._signal("pg_cancel_backend", condition)

    def _signal(self, function: str, condition: str) -> int:
        of_clients = f"backend_type = 'client backend' AND pid <> pg_backend_pid() AND ({condition})"
        return int(self.psql(f"SELECT count(*) FROM (SELECT {function}(pid) FROM pg_stat_activity WHERE {of_clients}) ended"))

    def base_backup(self, place: Path, *flags: str) -> Path:
        """A copy of all files of the running server as of the end of this call, made by `pg_basebackup`."""
        place.mkdir()
        give(place, 0o700)
        command = as_account(
            program("pg_basebackup"), "--pgdata", place, "--dbname", self.socket_url(), "--checkpoint=fast", "--no-sync", *flags
        )
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=clean_environment(), cwd=place)
        assert done.returncode == 0, done.stderr
        return place

    def log_text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def start(self) -> "Postgres":
        """Starts it, and returns when it takes connections: after a crash, when it has recovered."""
        if not self.data.exists():
            self._make()
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                # It ends with the tests, even if they are killed. SIGQUIT ends its children too.
                as_account("setpriv", "--pdeathsig", "QUIT", program("postgres"), "-D", self.data),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=clean_environment(),
                cwd=self.home,
                start_new_session=True,  # a Ctrl-C is for the tests
            )
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise StartFailed(self.process.returncode, self.log_text())
            if self._is_ready():
                return self
            time.sleep(0.02)
        self.kill()
        raise StartFailed(None, self.log_text())

    def stop(self, mode: str = "fast") -> None:
        """Ends it like `pg_ctl stop -m MODE`: "smart" waits for clients, "fast" disconnects them, "immediate" is a crash that says so."""
        assert self.process is not None
        self.process.send_signal(SIGNALS[mode])
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"PostgreSQL still there {STOP_SECONDS} s after the {mode} stop:\n{self.log_text()}") from None

    def kill(self) -> None:
        """Kills the whole server with SIGKILL: no client gets a goodbye."""
        assert self.process is not None
        kill_tree(self.process.pid)
        self.process.wait(STOP_SECONDS)

    def kill_postmaster(self) -> None:
        """Kills the postmaster alone: its children notice that and end by themselves."""
        assert self.process is not None
        children = children_of(self.process.pid)
        self.process.kill()
        self.process.wait(STOP_SECONDS)
        for child in children:
            _await_end(child)

    def restart(self, mode: str = "fast") -> "Postgres":
        if self.alive():
            self.stop(mode)
        return self.start()

    def _make(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        # The path of a socket may have 107 bytes; that of `home` can be longer.
        self.socket = Path(tempfile.mkdtemp(prefix="weir-pg-"))
        give(self.socket, 0o755)
        self.port = free_port(self.address)
        if self.primary:
            self.primary.base_backup(self.data, "--write-recovery-conf")
        else:
            subprocess.run(["cp", "--archive", "--reflink=auto", template(), self.data], check=True, timeout=60)
        settings = {"listen_addresses": self.address, "port": self.port, "unix_socket_directories": self.socket, **self.settings}
        if self.authority:
            issued = self.authority.issue(f"postgres-{self.port}", f"IP:{self.address},DNS:localhost")
            for source, name in zip(issued, ("server.crt", "server.key"), strict=True):
                shutil.copyfile(source, self.data / name)
                give(self.data / name, 0o600)
            settings["ssl"] = "on"
        with open(self.data / "postgresql.conf", "a") as conf:
            conf.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
        kind = "hostssl" if self.authority else "host"
        lines = ["local all all", "local replication all", f"{kind} all all 0.0.0.0/0", f"{kind} all all ::/0"]
        (self.data / "pg_hba.conf").write_text("".join(f"{line} scram-sha-256\n" for line in lines))

    def _is_ready(self) -> bool:
        """The server writes its state into the last line of this file."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        # The file of a server that was killed stays.
        return len(lines) >= 8 and lines[0] == str(self.process.pid) and lines[7].strip() == "ready"
