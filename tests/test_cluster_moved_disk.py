"""A disk moves from a dead machine to another one: its files are available again. For files that were being written at the time, only bytes
that are certainly on the disk count."""

import shutil
import time

import pytest
import raw
from clients import xrdcp
from cluster import Cluster, Node
from content import MIB, content, write
from harness import remove, weir

GRACE_SECONDS = 3
# Another kernel's boot, as the process sees it.
BOOTED = ("unshare", "--mount", "bash", "-c", 'mount --bind "$1" /proc/sys/kernel/random/boot_id && shift && exec "$@"', "booted")


@pytest.fixture
def cluster(base):
    made = Cluster(base / "moved-disk", 3, ("--grace-seconds", str(GRACE_SECONDS))).start()
    made.policy("/", "replica(2) sync=2")
    made.policy("/one", "replica(1)")
    yield made
    made.__exit__()
    remove(made.home)


def state(cluster: Cluster, path: str) -> str:
    return cluster.file(path)["object"]["state"]


def test_what_was_being_written_is_waited_for_and_then_only_what_is_certain_counts(cluster, tmp_path):
    data = content("recording", 3 * MIB)
    written, on = {}, {}
    while len(set(on.values())) < len(cluster.disks):
        path = f"/one/f{len(on)}"
        written[path] = write(tmp_path / "source", path, MIB).read_bytes()
        xrdcp("-f", tmp_path / "source", cluster.url + path).ok()
        (on[path],) = cluster.whole_on(path)
        assert len(on) < 60
    # Its writer arrives at once: the manager soon ends a write whose client does not come.
    with raw.Raw.to(cluster.manager) as manager:
        port, host, opaque = manager.ask_open("/recording", raw.OPEN_NEW | raw.OPEN_UPDATE).redirect
        gone = cluster.at(f"{host}:{port}")
        store = cluster.store_of(gone)
        files = {path: written[path] for path in written if on[path] == store}
        with raw.Raw(port, host=host) as there:
            handle = there.open(f"/recording?{opaque}", raw.OPEN_NEW | raw.OPEN_UPDATE)
            assert there.write(handle, 0, data).status == raw.OK
            being_written = state(cluster, "/recording")
            others = [disk for disk in cluster.disks if disk is not gone]
            # All at once, and the other machines have lost their unsynced bytes.
            for disk in cluster.disks:
                disk.freeze()
            for disk in cluster.disks:
                disk.kill()
    boot = cluster.home / "boot_id"
    boot.write_text("6f1c7a52-93a6-4d0e-8c44-0d6c4d8f6f01\n")
    for disk in others:
        disk.log.unlink()
        disk.prefix = (*BOOTED, str(boot))
        disk.start()
    removing = ["node", "remove", str(next(one for one in cluster.stores() if one["store"] == store)["node"])]
    cluster.until(lambda: weir(*removing, "--data", cluster.data).returncode == 0)
    time.sleep(4 * GRACE_SECONDS)
    assert state(cluster, "/recording") == being_written, "it was ended with what the other one has for certain"

    moved = Node(cluster.home / "moved", "disk", "127.0.0.9", ("--config", str(cluster.home / "weir.toml")))
    shutil.move(gone.data / "store", cluster.home / "disk")
    (cluster.home / "weir.toml").write_text(f'[[store]]\ndir = "{cluster.home}/disk"\nlocation = "site3/rack1/moved"\n')
    cluster.disks[cluster.disks.index(gone)] = moved
    moved.start("--join", cluster.weir("token", "create", "--data", cluster.data).strip())
    cluster.until(lambda: state(cluster, "/recording") == "interrupted")
    kept = cluster.file("/recording")["object"]["len"]
    if kept:
        xrdcp("-f", f"{cluster.url}/recording?weir.partial=1", tmp_path / "back").ok()
        assert (tmp_path / "back").read_bytes() == data[:kept]
    for path, written in files.items():
        xrdcp("-f", cluster.url + path, tmp_path / "back").ok()
        assert (tmp_path / "back").read_bytes() == written, path
        assert cluster.whole_on(path) == {store}
