"""Quotas of trees and users: what they refuse and let go on, and that the usage is exact. Stock clients, on a node and a cluster."""

import json
import random
import re
import subprocess
import time
from contextlib import suppress

import pytest
from clients import environment, run
from cluster import Cluster
from content import KIB, MIB, write
from harness import WEIR_BIN, Weir, remove, weir
from raw import OPEN_NEW, OPEN_UPDATE, Closed, Raw
from XRootD import client
from XRootD.client.flags import OpenFlags

OVER_QUOTA = 3021


class Site:
    """A node, or a cluster with its manager."""

    def __init__(self, url: str, data, tmp_path):
        self.url, self.data, self.home = url, data, tmp_path

    def weir(self, *arguments: str):
        return run([str(WEIR_BIN), *arguments, "--data", str(self.data)])

    def tree(self, path: str, *limits: str) -> str:
        self.weir("tree", "create", path, "--mkdir").ok()
        if limits:
            self.limit(path, *limits)
        return path

    def limit(self, path: str, *limits: str) -> None:
        self.weir("quota", "set", path, *limits).ok()

    def fs(self, *arguments: str):
        return run(["xrdfs", self.url, *arguments])

    def put(self, path: str, size: int, *flags: str):
        return run(["xrdcp", *flags, str(write(self.home / "source", path, size)), f"{self.url}/{path}"])

    def used(self, path: str, kind: str = "tree") -> tuple[int, int, int]:
        """Bytes and files that count, and bytes that are reserved."""
        listed = json.loads(self.weir("quota", "list", path, "--json").ok().out)
        found = next(one for one in listed if one["kind"] == kind)
        return found["bytes"]["used"], found["files"]["used"], found["bytes"]["reserved"]

    def opened(self, path: str) -> client.File:
        file = client.File()
        status, _ = file.open(f"{self.url}/{path}", OpenFlags.NEW)
        assert status.ok, status
        return file


@pytest.fixture(scope="module", params=["node", "cluster"])
def started(request, base):
    flags = ("--grace-seconds", "2")
    if request.param == "cluster":
        with Cluster(base / "quota", 2, flags) as cluster:
            yield cluster.url.rstrip("/"), cluster.data
        remove(base / "quota")
        return
    server = Weir(base / "quota-node", None, flags).start()
    yield f"root://127.0.0.1:{server.port}", server.data
    server.kill()
    remove(server.home)


@pytest.fixture
def site(started, tmp_path):
    return Site(*started, tmp_path)


def test_a_full_tree_refuses_new_files_with_the_reason(site):
    tree = site.tree("/full", "--bytes", "3MiB")
    site.put(f"{tree}/one", MIB).ok()
    refused = site.put(f"{tree}/two", 3 * MIB).refused(OVER_QUOTA)
    assert "hard limit of tree /full is 3145728 bytes" in refused.out + refused.err
    # The refused file is not there, and its space is free.
    assert site.used(tree) == (MIB, 2, 0)
    site.put(f"{tree}/two", 2 * MIB).ok()
    site.put(f"{tree}/three", 1).refused(OVER_QUOTA)
    site.put("/elsewhere", 3 * MIB).ok()
    site.fs("rm", f"{tree}/one").ok()
    site.put(f"{tree}/three", 1).ok()
    assert site.used(tree) == (2 * MIB + 1, 3, 0)


def test_a_limit_of_files_counts_directories_and_ends_with_what_is_removed(site):
    tree = site.tree("/few", "--files", "3")
    site.fs("mkdir", f"{tree}/sub").ok()
    site.put(f"{tree}/sub/one", 10).ok()
    site.put(f"{tree}/two", 10).refused(OVER_QUOTA)
    site.fs("mkdir", f"{tree}/other").refused(OVER_QUOTA)
    site.fs("rm", f"{tree}/sub/one").ok()
    site.put(f"{tree}/two", 10).ok()


def test_writes_beyond_the_quota_are_refused_and_earlier_ones_stay(site):
    tree = site.tree("/long", "--bytes", "3MiB")
    file = site.opened(f"{tree}/file")
    written = 0
    while (status := file.write(b"x" * (256 * KIB), written)[0]).ok and written < 8 * MIB:
        written += 256 * KIB
    assert status.errno == OVER_QUOTA and "hard limit of tree /long" in status.message, status
    assert written == 3 * MIB
    assert not file.close()[0].ok, "what was refused is missing"
    site.put(f"{tree}/more", 10).refused(OVER_QUOTA)
    end = time.monotonic() + 30
    while site.used(tree) != (3 * MIB, 2, 0) and time.monotonic() < end:
        time.sleep(0.2)
    assert site.used(tree) == (3 * MIB, 2, 0), "it is kept as interrupted"


def test_an_open_write_ends_within_what_it_has_reserved(site):
    tree = site.tree("/lowered", "--bytes", "64MiB")
    file = site.opened(f"{tree}/file")
    assert file.write(b"x" * KIB, 0)[0].ok
    assert site.used(tree)[2] == MIB, "a step is reserved"
    site.limit(tree, "--bytes", "1B")
    assert file.write(b"x" * (MIB - KIB), KIB)[0].ok
    assert file.close()[0].ok
    assert site.used(tree) == (MIB, 2, 0)
    site.put(f"{tree}/more", 1).refused(OVER_QUOTA)
    site.limit(tree, "--bytes", "none")
    site.put(f"{tree}/more", 1).ok()


def test_a_truncation_by_name_needs_room(site):
    tree = site.tree("/cut", "--bytes", "3MiB")
    site.put(f"{tree}/file", MIB).ok()
    site.fs("truncate", f"{tree}/file", str(2 * MIB)).ok()
    assert site.used(tree) == (2 * MIB, 2, 0)
    site.fs("truncate", f"{tree}/file", str(3 * MIB + 1)).refused(OVER_QUOTA)
    # The refused one has left the file complete, with its length.
    assert site.used(tree) == (2 * MIB, 2, 0)
    site.fs("truncate", f"{tree}/file", str(3 * MIB)).ok()
    site.fs("truncate", f"{tree}/file", "1").ok()
    site.put(f"{tree}/more", 3 * MIB - 1).ok()
    assert site.used(tree) == (3 * MIB, 3, 0)


def test_an_open_file_moves_only_where_no_quota_counts_it(site):
    tree = site.tree("/target", "--bytes", "1MiB")
    file = site.opened("/moving")
    assert file.write(b"x" * KIB, 0)[0].ok
    moved = site.fs("mv", "/moving", f"{tree}/moving")
    assert moved.code and "is being written" in moved.out + moved.err, moved
    assert file.write(b"x" * MIB, KIB)[0].ok
    assert file.close()[0].ok
    site.fs("mv", "/moving", f"{tree}/moving").refused(OVER_QUOTA)


@pytest.mark.parametrize("started", ["cluster"], indirect=True)
def test_a_striped_file_is_not_written_directly_past_its_quota(site):
    tree = site.tree("/striped", "--bytes", "3MiB")
    site.weir("policy", "set", tree, "stripe(2, 64KiB)").ok()
    source = write(site.home / "striped", 5, 2 * MIB)
    run([str(WEIR_BIN), "cp", str(source), f"{site.url}/{tree}/file"]).ok()
    assert site.used(tree) == (2 * MIB, 2, 0)
    # The redirect of the manager describes no units to a client that would write them itself, also if it announces a small file.
    with Raw(int(site.url.rpartition(":")[2])) as raw:
        _, _, words = raw.ask_open(f"{tree}/small?weir.direct=1&oss.asize=10", OPEN_NEW | OPEN_UPDATE).redirect
        assert "weir.striped" not in words
        site.weir("quota", "set", tree, "--bytes", "none").ok()
        _, _, words = raw.ask_open(f"{tree}/free?weir.direct=1&oss.asize=10", OPEN_NEW | OPEN_UPDATE).redirect
        assert "weir.striped" in words
    site.limit(tree, "--bytes", "3MiB")
    refused = run([str(WEIR_BIN), "cp", str(source), f"{site.url}/{tree}/more"])
    assert refused.code and "quota" in refused.out + refused.err, refused


@pytest.mark.parametrize("started", ["cluster"], indirect=True)
def test_a_client_that_opens_again_and_never_comes_writes_past_no_quota(site):
    """The manager counts the second open as the present one, so it reserves nothing for the first, which its disk server still serves."""
    tree = site.tree("/again", "--bytes", "3MiB")
    manager = int(site.url.rpartition(":")[2])
    with Raw(manager) as raw:
        port, host, words = raw.ask_open(f"{tree}/file", OPEN_NEW | OPEN_UPDATE).redirect
        with Raw(port, host=host) as disk:
            handle = disk.open(f"{tree}/file?{words}", OPEN_NEW | OPEN_UPDATE)
            assert disk.write(handle, 0, b"x" * MIB).status == 0
            raw.ask_open(f"{tree}/file", OPEN_UPDATE).redirect  # noqa: B018
            written = MIB
            with suppress(Closed):
                while written < 16 * MIB and disk.write(handle, written, b"x" * MIB).status == 0:
                    written += MIB
            assert written == MIB, "nothing is reserved for what was acknowledged"


def test_many_writers_do_not_take_all_space_before_they_write(site):
    tree = site.tree("/many", "--bytes", "64MiB")
    files = [site.opened(f"{tree}/{number}") for number in range(20)]
    assert all(file.write(b"x" * MIB, 0)[0].ok for file in files)
    assert all(file.close()[0].ok for file in files)
    assert site.used(tree) == (20 * MIB, 21, 0)


def test_usage_moves_with_a_file_and_counts_overwrites_once(site):
    one, two = site.tree("/from"), site.tree("/to", "--bytes", "2MiB")
    site.put(f"{one}/file", MIB).ok()
    site.fs("mv", f"{one}/file", f"{two}/file").ok()
    assert (site.used(one), site.used(two)) == ((0, 1, 0), (MIB, 2, 0))
    site.put(f"{two}/file", MIB // 2, "-f").ok()
    assert site.used(two) == (MIB // 2, 2, 0)
    site.fs("truncate", f"{two}/file", str(MIB)).ok()
    site.fs("truncate", f"{two}/file", str(4 * MIB)).refused(OVER_QUOTA)
    assert site.used(two) == (MIB, 2, 0)
    site.put(f"{one}/big", 2 * MIB).ok()
    site.fs("mv", f"{one}/big", f"{two}/big").refused(OVER_QUOTA)
    assert site.used(one, "user") == (2 * MIB, 2, 0)


def test_a_user_has_a_quota_in_one_tree_only(site):
    one, two = site.tree("/mine"), site.tree("/yours")
    me = next(one for one in json.loads(site.weir("quota", "list", one, "--json").ok().out) if one["kind"] == "user")["name"]
    site.limit(one, "--user", me, "--bytes", "1MiB")
    refused = site.put(f"{one}/file", 2 * MIB).refused(OVER_QUOTA)
    assert f"user {me} in tree /mine" in refused.out + refused.err
    site.put(f"{two}/file", 2 * MIB).ok()


def test_a_soft_limit_holds_after_its_grace(site):
    tree = site.tree("/soft", "--soft-bytes", "1MiB", "--bytes", "10MiB", "--grace", "3s")
    site.put(f"{tree}/one", 2 * MIB).ok()
    site.put(f"{tree}/two", MIB).ok()
    time.sleep(3.5)
    refused = site.put(f"{tree}/three", 1).refused(OVER_QUOTA)
    assert "soft limit" in refused.out + refused.err
    site.fs("rm", f"{tree}/one").ok()
    site.put(f"{tree}/three", 1).ok()


def test_the_space_of_a_path_is_that_of_its_quota(site):
    tree = site.tree("/space", "--bytes", "8MiB")
    site.put(f"{tree}/file", 2 * MIB).ok()
    shown = site.fs("query", "space", tree).ok().out
    found = dict(re.findall(r"oss\.(\w+)=(-?\d+)", shown))
    assert (found["quota"], found["space"], found["used"], found["free"]) == tuple(map(str, (8 * MIB, 8 * MIB, 2 * MIB, 6 * MIB)))
    assert re.search(r"oss\.quota=-1", site.fs("query", "space", "/").ok().out)
    assert "6" in site.fs("statvfs", tree).ok().out
    df = json.loads(run([str(WEIR_BIN), "df", "--json", f"{site.url}/{tree}"]).ok().out)
    assert (df["total"], df["used"], df["free"]) == (8 * MIB, 2 * MIB, 6 * MIB)


def test_what_cannot_be_a_tree_or_a_quota_is_refused_with_the_reason(site):
    site.tree("/plain/tree")
    site.put("/plain/file", 1).ok()
    for arguments, words in (
        (("tree", "create", "/plain"), "not empty"),
        (("tree", "create", "/plain/tree"), "exists"),
        (("tree", "create", "/gone"), "no such"),
        (("quota", "set", "/plain", "--bytes", "1B"), "weir tree create"),
        (("quota", "set", "/plain/tree", "--user", "nobody-here", "--bytes", "1B"), "nobody-here"),
        (("quota", "set", "/plain/tree", "--bytes", "1B", "--soft-bytes", "2B"), "soft limit"),
        (("quota", "set", "/plain/tree", "--bytes", "much"), "much"),
        (("quota", "set", "/plain/tree", "--grace", "1d"), "a grace without a limit has no effect"),
    ):
        site.weir(*arguments).fails(words)
    paths = [one["quota"]["tree"] for one in json.loads(site.weir("tree", "list", "--json").ok().out)]
    assert {"/", "/plain/tree"} <= set(paths)


@pytest.mark.timeout(300)
def test_usage_equals_a_recount_after_kills_under_load(base):
    """Writers fill a tree to its limit, overwrite and remove, and the node is killed meanwhile. `weir fsck` counts everything again."""
    home = base / "quota-kills"
    home.mkdir()
    # Kept uploads hold what they have reserved. These go soon, so that nothing may be left in the end.
    (home / "short.toml").write_text('grace_seconds = 1\nfiles.uploads_kept = "3s"\n')
    server = Weir(home, None, ("--config", str(home / "short.toml"))).start()
    url, pick = f"root://127.0.0.1:{server.port}", random.Random(24)
    site = Site(url, server.data, home)
    tree = site.tree("/q", "--bytes", "12MiB", "--files", "40")
    sources = [write(home / f"source-{size}", size, size) for size in (1, 100_000, 3 * MIB)]
    loop = f"""
        while :; do for n in 1 2 3 4 5; do
            xrdcp -f -s {home}/source-$1 {url}/{tree}/$2-$n
            xrdfs {url} rm {tree}/$2-$n
            xrdcp -f -s -P {home}/source-$1 {url}/{tree}/$2-$((n + 5))
        done; done
    """
    patience = {"XRD_CONNECTIONWINDOW": "1", "XRD_CONNECTIONRETRY": "3", "XRD_STREAMERRORWINDOW": "1", "XRD_TIMEOUTRESOLUTION": "1"}
    sizes = [source.name.rpartition("-")[2] for source in sources]
    command = ["setsid", "bash", "-c", loop, "loop"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment(patience)}
    writers = [subprocess.Popen([*command, sizes[number % 3], f"w{number}"], **quiet) for number in range(5)]
    try:
        for kill in range(8):
            time.sleep(pick.uniform(0.5, 2))
            server.kill()
            checked = weir("fsck", "--data", str(server.data))
            assert checked.returncode == 0, f"after kill {kill + 1}: {checked.stdout}{checked.stderr}"
            server.start()
    finally:
        for writer in writers:
            subprocess.run(["kill", "-9", "--", f"-{writer.pid}"], check=False)
            writer.wait()
    # Kept uploads are looked for once a minute.
    end = time.monotonic() + 100
    while site.used(tree)[2] and time.monotonic() < end:
        time.sleep(0.5)
    used, files, reserved = site.used(tree)
    assert reserved == 0, "the ends of the grace period and of kept uploads give back what was reserved"
    assert files > 1 and used <= 12 * MIB, "something was written, and never more than permitted"
    server.stop()
    assert weir("fsck", "--data", str(server.data)).returncode == 0
    remove(home)
