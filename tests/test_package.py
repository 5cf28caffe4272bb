"""The Debian package: its programs run, systemd accepts its unit, and installing, upgrading and purging work as described."""

import os
import re
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import pytest
from booted import Booted, NotHere
from debian_package import make_package
from harness import is_well, weir


@pytest.fixture(scope="module")
def package():
    return make_package()


def test_what_is_in_it(package, tmp_path):
    subprocess.run(["dpkg-deb", "-x", package, tmp_path], check=True)
    there = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    units = {f"lib/systemd/system/{unit}" for unit in ("weir.service", "weir-backup.service", "weir-backup.timer")}
    files = units | {"usr/bin/weir", "usr/share/doc/weir/docs/how-to/operate.md"}
    files |= {"usr/lib/sysusers.d/weir.conf", "usr/lib/tmpfiles.d/weir.conf"}
    files |= {"usr/share/weir/weir-alerts.yml", "usr/share/weir/weir-dashboard.json"}
    files |= {f"usr/share/man/man{page[-1]}/{page}.gz" for page in ("weir.1", "weir-init.1", "weir.toml.5", "weir.service.8")}
    files |= {"usr/share/bash-completion/completions/weir"}
    assert files <= there, files - there
    assert not any(name.startswith("etc/") for name in there), "`weir init` writes the settings"
    said = subprocess.run([tmp_path / "usr/bin/weir", "--version"], check=True, capture_output=True, text=True).stdout

    def field(name: str) -> str:
        return subprocess.run(["dpkg-deb", "-f", package, name], check=True, capture_output=True, text=True).stdout.strip()

    assert said == f"weir {field('Version')}\n"
    assert "libc6" in field("Depends") and "procps" not in field("Depends")
    # The unit runs no other program.
    unit = (tmp_path / "lib/systemd/system/weir.service").read_text()
    assert {line.split()[0] for line in re.findall(r"^Exec\w+=(.*)", unit, re.M)} == {"/usr/bin/weir"}
    first = package.read_bytes()
    assert make_package(again=True).read_bytes() == first, "the same bytes from the same commit"


@contextmanager
def copy_of_this_system(tmp_path: Path):
    """The root file system under an overlay that takes all changes."""
    base, root = tmp_path / "overlay", tmp_path / "overlay/root"
    base.mkdir()
    mounted = []

    def mount(*arguments: str | Path) -> None:
        subprocess.run(["mount", *arguments], check=True, capture_output=True)
        mounted.append(arguments[-1])

    try:
        try:
            mount("-t", "tmpfs", "tmpfs", base)
            for name in ("upper", "work", "root"):
                (base / name).mkdir()
            mount("-t", "overlay", "overlay", "-o", f"lowerdir=/,upperdir={base}/upper,workdir={base}/work", root)
            mount("--bind", "/dev", root / "dev")
            mount("-t", "proc", "proc", root / "proc")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no overlay can be mounted here: {error.stderr}")
        yield root
    finally:
        for place in reversed(mounted):
            subprocess.run(["umount", "-l", place], check=False)


@pytest.mark.skipif(os.getuid() != 0, reason="installing a package needs root")
def test_installed_upgraded_and_purged(package, tmp_path):
    with copy_of_this_system(tmp_path) as root:

        def inside(*command: str) -> subprocess.CompletedProcess:
            return subprocess.run(["chroot", root, *command], capture_output=True, text=True, timeout=120)

        (root / "tmp/weir.deb").write_bytes(package.read_bytes())
        done = inside("dpkg", "--no-triggers", "-i", "/tmp/weir.deb")
        assert done.returncode == 0, done.stderr
        assert "weir init --role" in done.stdout and not (root / "etc/weir/weir.toml").exists()
        made = inside("weir", "init", "--role", "single")
        assert made.returncode == 0 and "next: systemctl enable --now weir" in made.stdout, made
        assert 'listen = "127.0.0.1:1094"' in (root / "etc/weir/weir.toml").read_text()
        marker = root / "var/lib/weir/data/FORMAT"
        owner = inside("stat", "-c", "%U:%G %a", "/var/lib/weir", "/var/lib/weir/data").stdout.split("\n")
        assert marker.exists() and owner[:2] == ["weir:weir 750", "weir:weir 700"]
        made = marker.read_text()
        if inside("which", "systemd-analyze").returncode == 0:
            checked = inside("systemd-analyze", "verify", "/lib/systemd/system/weir.service")
            assert checked.returncode == 0 and "weir" not in checked.stderr, checked.stderr
        # An upgrade keeps changed settings, and does not make a missing data directory: it may just not be mounted.
        (root / "etc/weir/weir.toml").write_text('data = "/elsewhere"\n')
        marker.parent.rename(root / "var/lib/weir/away")
        assert inside("dpkg", "--no-triggers", "-i", "/tmp/weir.deb").returncode == 0
        assert (root / "etc/weir/weir.toml").read_text() == 'data = "/elsewhere"\n' and not marker.parent.exists()
        (root / "var/lib/weir/away").rename(marker.parent)
        assert inside("dpkg", "--no-triggers", "-P", "weir").returncode == 0
        assert not (root / "usr/bin/weir").exists() and not (root / "etc/weir/weir.toml").exists()
        assert marker.read_text() == made, "a purge leaves what the node holds"


@pytest.fixture(scope="module")
def system(package, tmp_path_factory):
    """A system with the package; its data directory's folder is a mount that root has made."""
    place = tmp_path_factory.mktemp("booted")
    (place / "held").mkdir()
    machine = Booted(place / "base", place / "held", "/var/lib/weir")
    try:
        machine.__enter__()
    except NotHere as reason:
        pytest.skip(f"no systemd can be started here: {reason}")
    try:
        machine.path("/tmp/weir.deb").write_bytes(package.read_bytes())
        machine.ok("dpkg", "--no-triggers", "-i", "/tmp/weir.deb", timeout=120)
        assert machine("systemctl", "is-active", "weir").stdout == "inactive\n", "nobody has said what it is for"
        machine.ok("weir", "init", "--role", "single", "--start", timeout=120)
        yield machine
    finally:
        machine.__exit__()


def said(system: Booted, *more: str) -> str:
    """The journal's entries of the unit."""
    system.ok("journalctl", "--sync")
    return system.ok("journalctl", "--no-pager", "-o", "cat", "-u", "weir", *more)


def warned(system: Booted) -> str:
    """The warnings, and anything worse."""
    return said(system, "-p", "warning").replace("-- No entries --", "")


def shown(system: Booted, name: str) -> str:
    return system.ok("systemctl", "show", "-P", name, "weir")


def until(what: str, holds: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"waited in vain: {what}"
        time.sleep(0.1)


def test_systemd_runs_it_and_confines_it(system, tmp_path):
    assert (shown(system, "ActiveState"), shown(system, "UnitFileState"), shown(system, "Type")) == ("active", "enabled", "notify")
    assert "ready root://127.0.0.1:1094/" in said(system) and not warned(system)
    until("the state", lambda: is_well(shown(system, "StatusText").removeprefix("root://127.0.0.1:1094/: ")))
    checked = system("systemd-analyze", "verify", "weir.service")
    assert checked.returncode == 0 and not checked.stdout + checked.stderr, checked
    assert system("systemd-analyze", "security", "--no-pager", "--threshold=20", "weir.service").returncode == 0
    status = system.path(f"/proc/{shown(system, 'MainPID')}/status").read_text().split("\n")
    facts = dict(line.split(":\t", 1) for line in status if ":\t" in line)
    assert (facts["NoNewPrivs"], facts["Seccomp"], int(facts["CapBnd"], 16), int(facts["CapEff"], 16)) == ("1", "2", 0, 0)
    assert facts["Uid"].split() == [system.ok("id", "-u", "weir")] * 4
    # All its functions work in its confinement: small and large files, copies to itself, commands on its control socket.
    for name, size in (("small", 3000), ("large", 20_000_000)):
        system.path(f"/tmp/{name}").write_bytes(os.urandom(size))
        system.ok("xrdcp", "-p", f"/tmp/{name}", f"root://127.0.0.1//run/{name}")
        system.ok("xrdcp", "--tpc", "only", f"root://127.0.0.1//run/{name}", f"root://127.0.0.1//run/{name}-copy")
        system.ok("xrdcp", f"root://127.0.0.1//run/{name}-copy", f"/tmp/{name}-back")
        system.ok("cmp", f"/tmp/{name}", f"/tmp/{name}-back")
    assert "read back and whole" in system.ok("weir", "backup", "--data", "/var/lib/weir/data", "/root/backup")
    system.ok("weir", "scrub", "--data", "/var/lib/weir/data", "--now", "--rate", "1GiB")
    until("a scrub", lambda: "0 damaged" in system.ok("weir", "scrub", "--data", "/var/lib/weir/data").partition("the last pass")[2])
    assert not warned(system)


def test_systemd_makes_backups_when_that_is_wanted(system):
    """The timer is off. Its unit does nothing before somebody has said where the backups go."""
    assert system("systemctl", "is-enabled", "weir-backup.timer").stdout.strip() == "disabled"
    checked = system("systemd-analyze", "verify", "weir-backup.service", "weir-backup.timer")
    assert checked.returncode == 0 and not checked.stdout + checked.stderr, checked
    system.ok("systemctl", "start", "weir-backup.service")
    target = "/var/backups/weir"
    system.ok("install", "-d", "-o", "weir", "-g", "weir", "-m", "700", target)
    system.path("/etc/weir/backup.conf").write_text(f"WEIR_BACKUP_TARGET={target}\n")
    for _ in range(2):
        system.ok("systemctl", "start", "weir-backup.service")
    listed = system.ok("weir", "restore", target, "--list")
    assert "full" in listed and "delta" in listed, listed
    system.ok("systemctl", "enable", "--now", "weir-backup.timer")
    assert "weir-backup.timer" in system.ok("systemctl", "list-timers", "--no-pager")
    system.ok("systemctl", "disable", "--now", "weir-backup.timer")
    system.path("/etc/weir/backup.conf").unlink()


def test_systemd_reloads_kills_and_stops_it(system):
    settings = system.path("/etc/weir/weir.toml")
    good, pid = settings.read_text(), shown(system, "MainPID")
    unneeded = [system.path(program) for program in ("/bin/kill", "/usr/bin/xargs")]  # a small system need not have them
    unneeded = [program for program in unneeded if program.exists()]
    for program in unneeded:
        program.rename(f"{program}.away")
    system.ok("bash", "-c", "echo kept >/tmp/kept && xrdcp -f /tmp/kept root://127.0.0.1//kept")
    settings.write_text(good + 'log = "info,xrootd=debug"\n')
    system.ok("systemctl", "reload", "weir")
    until("the new settings", lambda: "taken over: `log`" in said(system))
    settings.write_text(good + "nonsense = 1\n")
    refused = system("systemctl", "reload", "weir")
    assert refused.returncode != 0 and "unknown key `nonsense`" in warned(system), refused
    assert (shown(system, "MainPID"), shown(system, "ActiveState")) == (pid, "active"), "it goes on with what it has"
    settings.write_text(good)
    for program in unneeded:
        Path(f"{program}.away").rename(program)
    system.ok("kill", "-9", pid)
    until("a new start after a kill", lambda: shown(system, "NRestarts") == "1" and shown(system, "ActiveState") == "active")
    assert system.ok("xrdfs", "127.0.0.1", "cat", "/kept") == "kept"
    # A client that stays silent delays nobody.
    begin = time.monotonic()
    stop = "exec 3<>/dev/tcp/127.0.0.1/1094; systemctl stop weir"
    system.ok("bash", "-c", stop)
    assert time.monotonic() - begin < 12
    assert (shown(system, "ActiveState"), shown(system, "Result"), shown(system, "ExecMainStatus")) == ("inactive", "success", "0")
    assert "stopped cleanly" in said(system)


def test_systemd_checks_before_a_reload_what_the_node_was_started_with(system):
    """Not the command in the package's unit, which a drop-in can replace."""
    drop_in, other = system.path("/etc/systemd/system/weir.service.d"), system.path("/etc/weir/other.toml")
    settings = system.path("/etc/weir/weir.toml").read_text()
    other.write_text(settings)
    drop_in.mkdir()
    (drop_in / "other.conf").write_text("[Service]\nExecStart=\nExecStart=/usr/bin/weir serve --config /etc/weir/other.toml --existing\n")
    try:
        system.ok("systemctl", "daemon-reload")
        system.ok("systemctl", "restart", "weir")
        other.write_text(settings + 'log = "debug"\n')
        system.ok("systemctl", "reload", "weir")
        until("the new settings", lambda: "SIGHUP: taken over: `log`" in said(system).rpartition("stopped cleanly")[2])
        other.write_text(settings + "elsewhere = 1\n")
        refused = system("systemctl", "reload", "weir")
        assert refused.returncode != 0 and "unknown key `elsewhere`" in warned(system), refused
        assert "SIGHUP: nothing was changed" not in warned(system), "it was not even asked"
    finally:
        (drop_in / "other.conf").unlink()
        drop_in.rmdir()
        system.ok("systemctl", "daemon-reload")
        system.ok("systemctl", "stop", "weir")


def test_systemd_leaves_what_waits_for_a_person(system):
    """A disk that is not mounted: the reason is in the journal, and systemd does not restart it over and over."""
    held = system.path("/var/lib/weir")
    (held / "data").rename(held / "away")
    assert system("systemctl", "restart", "weir").returncode != 0
    time.sleep(3)
    assert (shown(system, "ActiveState"), shown(system, "ExecMainStatus"), shown(system, "NRestarts")) == ("failed", "3", "0")
    assert "is its disk mounted?" in warned(system)
    system.ok("umount", "/var/lib/weir")
    system.ok("rmdir", "/var/lib/weir")
    assert system("systemctl", "restart", "weir").returncode != 0
    assert shown(system, "ExecMainStatus") == "3", "weir says it, and not that a name space cannot be made"


def test_systemd_and_the_package(system):
    """An upgrade restarts it, a removal stops it."""
    system.ok("install", "-d", "-o", "weir", "-g", "weir", "/var/lib/weir")
    system.ok("setpriv", "--reuid", "weir", "--regid", "weir", "--clear-groups", "weir", "init", "--data", "/var/lib/weir/data")
    system.ok("systemctl", "start", "weir")
    pid = shown(system, "MainPID")
    system.ok("dpkg", "--no-triggers", "-i", "/tmp/weir.deb", timeout=120)
    assert shown(system, "MainPID") != pid and shown(system, "ActiveState") == "active"
    system.ok("dpkg", "--no-triggers", "-P", "weir", timeout=120)
    assert system("systemctl", "is-active", "weir").stdout == "inactive\n" and system.path("/var/lib/weir/data/FORMAT").exists()


@pytest.mark.parametrize("abstract", [False, True])
def test_the_service_manager_is_told(own_node, tmp_path, monkeypatch, abstract):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        name = f"weir-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
        manager.bind(("\0" if abstract else "") + name)
        manager.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", ("@" if abstract else "") + name)
        server = own_node()
        said = [manager.recv(1000).decode() for _ in range(4)]
        assert said[0].startswith("STATUS=opens its journal")
        assert said[1:3] == ["READY=1", f"STATUS={server.url}"]
        assert is_well(said[3].removeprefix(f"STATUS={server.url}: ")), said
        server.stop()
        assert manager.recv(100) == b"STOPPING=1"


def test_a_data_directory_is_made_once(tmp_path):
    data = tmp_path / "data"
    first = weir("init", "--data", str(data))
    assert first.returncode == 0 and "made" in first.stdout
    made = (data / "FORMAT").read_text()
    assert weir("init", "--data", str(data)).returncode == 0 and (data / "FORMAT").read_text() == made
    (tmp_path / "other").mkdir()
    (tmp_path / "other/thesis").write_text("x")
    assert weir("init", "--data", str(tmp_path / "other")).returncode == 3
