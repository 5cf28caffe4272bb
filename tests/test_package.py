"""The Debian package: what is in it runs, systemd takes its unit, and installing, upgrading and purging it does what it says."""

import os
import socket
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness import ROOT, WEIR_BIN, weir


@pytest.fixture(scope="module")
def package():
    made = subprocess.run([ROOT / "scripts/deb.sh", WEIR_BIN], cwd=ROOT, check=True, capture_output=True, text=True, timeout=300)
    return ROOT / made.stdout.splitlines()[-1]


def test_what_is_in_it(package, tmp_path):
    subprocess.run(["dpkg-deb", "-x", package, tmp_path], check=True)
    there = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert {"usr/bin/weir", "etc/weir/weir.toml", "lib/systemd/system/weir.service", "usr/share/doc/weir/operate.md"} <= there
    said = subprocess.run([tmp_path / "usr/bin/weir", "--version"], check=True, capture_output=True, text=True).stdout

    def field(name: str) -> str:
        return subprocess.run(["dpkg-deb", "-f", package, name], check=True, capture_output=True, text=True).stdout.strip()

    assert said == f"weir {field('Version')}\n"
    assert "libc6" in field("Depends")
    # The settings that it brings are settings.
    refused = weir("serve", "--config", str(tmp_path / "etc/weir/weir.toml"), "--existing", "--data", str(tmp_path / "nothing"))
    assert refused.returncode == 3 and "not a weir data directory" in refused.stderr
    again = subprocess.run([ROOT / "scripts/deb.sh", WEIR_BIN], cwd=ROOT, check=True, capture_output=True, text=True, timeout=300)
    first = package.read_bytes()
    assert (ROOT / again.stdout.splitlines()[-1]).read_bytes() == first, "the same bytes from the same commit"


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
        done = inside("dpkg", "-i", "/tmp/weir.deb")
        assert done.returncode == 0, done.stderr
        marker = root / "var/lib/weir/data/FORMAT"
        owner = inside("stat", "-c", "%U:%G %a", "/var/lib/weir", "/var/lib/weir/data").stdout.split("\n")
        assert marker.exists() and owner[:2] == ["weir:weir 750", "weir:weir 700"]
        made = marker.read_text()
        if inside("which", "systemd-analyze").returncode == 0:
            checked = inside("systemd-analyze", "verify", "/lib/systemd/system/weir.service")
            assert checked.returncode == 0 and "weir" not in checked.stderr, checked.stderr
        # An upgrade keeps what somebody has set, and does not make a data directory that is gone: it is not mounted, perhaps.
        (root / "etc/weir/weir.toml").write_text('data = "/elsewhere"\n')
        marker.parent.rename(root / "var/lib/weir/away")
        assert inside("dpkg", "-i", "/tmp/weir.deb").returncode == 0
        assert (root / "etc/weir/weir.toml").read_text() == 'data = "/elsewhere"\n' and not marker.parent.exists()
        (root / "var/lib/weir/away").rename(marker.parent)
        assert inside("dpkg", "-P", "weir").returncode == 0
        assert not (root / "usr/bin/weir").exists() and not (root / "etc/weir/weir.toml").exists()
        assert marker.read_text() == made, "a purge leaves what the node holds"


@pytest.mark.parametrize("abstract", [False, True])
def test_the_service_manager_is_told(own_node, tmp_path, monkeypatch, abstract):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        name = f"weir-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
        manager.bind(("\0" if abstract else "") + name)
        manager.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", ("@" if abstract else "") + name)
        server = own_node()
        assert manager.recv(100) == b"READY=1"
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
