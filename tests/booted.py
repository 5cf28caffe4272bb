"""A copy of this machine's system under a systemd of its own: pid 1 of its own namespaces, with its own loopback interface."""

import os
import subprocess
import time
from pathlib import Path

START_SECONDS = 60
# Mask the early units, except for the journal and temporary folders, because the container shares the kernel with the host.
KEPT = ("systemd-journald.service", "systemd-tmpfiles-setup.service")
TARGET = "booted.target"

# Runs as pid 1. Makes the root file system (BASE: an empty folder; HELD: the folder to mount at PLACE), enters it and becomes systemd.
BOOT = f"""
set -eu
base=$1 held=$2 place=$3 root=$1/root
mount --make-rprivate /
mount -t tmpfs tmpfs "$base"
mkdir "$base/upper" "$base/work" "$root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$base/upper,workdir=$base/work" "$root"
mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for node in null:3 zero:5 full:7 random:8 urandom:9; do mknod -m 666 "$root/dev/${{node%:*}}" c 1 "${{node#*:}}"; done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
for folder in run tmp var/log dev/shm; do mount -t tmpfs tmpfs "$root/$folder"; done
chmod 1777 "$root/tmp"
mkdir -p "$root$place"
mount --bind "$held" "$root$place"
: >"$root/etc/fstab"
units=$root/etc/systemd/system
rm -rf "$units"/*.wants
for unit in "$root"/lib/systemd/system/{{sysinit,local-fs,sockets}}.target.wants/* systemd-journald-audit.socket; do
    case ${{unit##*/}} in {"|".join(KEPT)}) ;; *) ln -sf /dev/null "$units/${{unit##*/}}" ;; esac
done
printf '[Unit]\\nRequires=sysinit.target\\nAfter=sysinit.target\\n' >"$units/{TARGET}"
mkdir "$root/tmp/old"
cd "$root"
pivot_root . tmp/old
umount -l tmp/old
exec chroot . /usr/bin/env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \\
    /lib/systemd/systemd --system --unit={TARGET} --show-status=no
"""


class NotHere(Exception):
    """Why no system can be started here."""


class Booted:
    """The system runs while this is entered. `held` is mounted at `place`, as if it were a separate disk."""

    def __init__(self, base: Path, held: Path, place: str):
        self.base, self.held, self.place = base, held, place
        self.log = base.with_name(base.name + ".log")
        self.process: subprocess.Popen | None = None
        self.group: Path | None = None
        self.init = 0

    def __enter__(self) -> "Booted":
        if os.getuid() != 0:
            raise NotHere("namespaces and mounts need root")
        if not Path("/lib/systemd/systemd").exists():
            raise NotHere("systemd is not installed")
        self.base.mkdir()
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self) -> None:
        self.group = self.control_group()
        own = f'echo 0 >"{self.group}/cgroup.procs"; exec unshare --cgroup bash -c "$0" boot "$@"'
        command = ["setpriv", "--pdeathsig", "KILL", "unshare", "--fork", "--kill-child", "--pid", "--mount", "--uts", "--ipc", "--net"]
        command += ["bash", "-c", own, BOOT, self.base, self.held, self.place]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise NotHere(f"namespaces, mounts or control groups are not to be had: {self.log.read_text().strip()}")
            children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
            self.init = int(children[0]) if children else 0
            if self.init and self("systemctl", "is-active", TARGET).stdout == "active\n":
                return
            time.sleep(0.1)
        raise AssertionError(f"systemd did not come up in {START_SECONDS} s:\n{self.log.read_text()}")

    def control_group(self) -> Path:
        for top in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")):
            if (top / "cgroup.procs").exists() and (top / "cgroup.controllers").exists():
                try:
                    group = top / f"weir-test-{os.getpid()}-{self.base.name}"
                    group.mkdir()
                except OSError as error:
                    raise NotHere(f"no control group can be made: {error}") from None
                return group
        raise NotHere("there are no control groups (version 2)")

    def __call__(self, *command: str | Path, timeout: float = 60) -> subprocess.CompletedProcess:
        """Runs `command` inside; returns its output as text."""
        inside = ["nsenter", "--target", str(self.init), "--all", *command]
        return subprocess.run(inside, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=timeout)

    def ok(self, *command: str | Path, timeout: float = 60) -> str:
        """Runs a command that must succeed. Returns its stdout without the last newline."""
        done = self(*command, timeout=timeout)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout.rstrip("\n")

    def path(self, inside: str) -> Path:
        """A path inside, as seen from outside."""
        return Path(f"/proc/{self.init}/root{inside}")

    def __exit__(self, *_: object) -> None:
        if self.process:
            self.process.kill()  # and with it pid 1, and so all processes
            self.process.wait()
        end = time.monotonic() + 10
        while self.group and self.group.exists() and time.monotonic() < end:
            for folder, _folders, _files in os.walk(self.group, topdown=False):
                try:
                    os.rmdir(folder)
                except OSError:
                    time.sleep(0.05)  # its last processes are still ending
