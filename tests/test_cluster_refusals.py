"""Errors of a cluster and their texts: nodes of other versions, expired capabilities, policies that can no longer be met, files whose
replicas are all away. Stock clients, real processes, and a peer on the level of bytes."""

import base64
import socket
import ssl
import struct
import time
from pathlib import Path

import pytest
import raw
from clients import Xrdfs, run, start_xrdcp, xrdcp
from cluster import Cluster, Node
from content import MIB, content, page_sum, write
from harness import WEIR_BIN, remove, until

# A little more than the validity of a capability.
PERMISSION_SECONDS = 61
# A little more than the time until an absent store has the state "offline".
LOST_SECONDS = 60


@pytest.fixture(scope="module")
def small(base):
    """One disk server on each of two sites."""
    with Cluster(base / "refusals", 2, ("--grace-seconds", "5")) as cluster:
        cluster.policy("/one", "replica(1)")
        cluster.policy("/both", "replica(2) spread=site")
        cluster.policy("/dealt", "stripe(2, 64KiB)")
        yield cluster
        assert cluster.manager.alive(), cluster.logs()
    remove(cluster.home)


@pytest.fixture
def cluster(small):
    yield small
    for node in small.disks:
        if not node.alive():
            node.start()
    until(lambda: [store["state"] for store in small.stores()] == ["online"] * len(small.disks), LOST_SECONDS)


@pytest.fixture(scope="module")
def early(small, tmp_path_factory) -> tuple[float, str, str, Node]:
    """A capability from the beginning, which expires while the other tests run: its time, its file, its words, its server."""
    source = write(tmp_path_factory.mktemp("early") / "source", "early", 200_000)
    xrdcp("-f", source, f"{small.url}/one/early").ok()
    with raw.Raw(small.manager.port) as there:
        port, host, opaque = there.ask_open("/one/early").redirect
    return time.monotonic(), "/one/early", opaque, small.at(f"{host}:{port}")


class Stranger:
    """Speaks as a node, with the identity of one; a test decides what it says about itself."""

    def __init__(self, identity: Path, home: Path):
        known = dict(line.split(" ", 1) for line in identity.read_text().splitlines()[1:])
        for key, kind in [("key", "PRIVATE KEY"), ("certificate", "CERTIFICATE")]:
            der = base64.b64decode(known[key].strip())
            body = base64.encodebytes(der).decode()
            (home / key).write_text(f"-----BEGIN {kind}-----\n{body}-----END {kind}-----\n")
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.check_hostname, self.context.verify_mode = False, ssl.CERT_NONE
        self.context.load_cert_chain(home / "certificate", home / "key")
        self.context.set_alpn_protocols(["weir-node"])

    def verdict_on(self, manager: Node, oldest: int, newest: int) -> tuple[int, str]:
        """The manager's answer to a node of these versions."""
        with (
            socket.create_connection((manager.host, manager.nodes_port), timeout=15) as plain,
            self.context.wrap_socket(plain) as link,
        ):

            def exactly(count: int) -> bytes:
                got = b""
                while len(got) < count:
                    more = link.recv(count - len(got))
                    assert more, f"it ended after {got!r}"
                    got += more
                return got

            # Only the length and the beginning of a hello are the same in all versions.
            link.sendall(struct.pack("<8sHH", b"weirnode", oldest, newest).ljust(88, b"\0"))
            assert exactly(88).startswith(b"weirnode")
            verdict, _, length = struct.unpack("<BBH", exactly(4))
            return verdict, exactly(length).decode()


def test_older_and_newer_nodes_are_told_who_is_behind(cluster, early, tmp_path):
    disk = cluster.disks[1]
    stranger = Stranger(disk.home / "data/node/identity", tmp_path)
    for versions, words in [((13, 14), "versions 13 to 14"), ((0, 0), "version 0")]:
        refused, why = stranger.verdict_on(cluster.manager, *versions)
        assert refused == 1 and words in why and "upgrade node" in why, why
        until(lambda words=words: words in cluster.manager.log_text(), 10)
    # Neither harms the real node of that identity.
    xrdcp("-f", write(tmp_path / "source", "after", 1000), f"{cluster.url}/both/after").ok()
    assert len(cluster.whole_on("/both/after")) == 2


@pytest.mark.parametrize("words", ["tried=nobody.example.org", "CAPABILITY"])
def test_a_client_that_is_sent_back_again_and_again_waits(cluster, early, words):
    """XrdCl gives up after 16 redirects: within milliseconds, if a disk server and the manager disagree for a moment."""
    with raw.Raw.to(cluster.manager) as there:
        path = f"/one/early?{words.replace('CAPABILITY', early[2])}"
        answers = [there.ask_open(path).status for _ in range(7)]
        assert answers == [raw.REDIRECT, raw.REDIRECT, raw.WAIT, raw.REDIRECT, raw.WAIT, raw.REDIRECT, raw.WAIT], answers
        assert there.ask_open(path.replace("early", "late")).status != raw.WAIT, "another file"


def test_a_file_whose_stores_are_all_away_says_where_it_was(cluster, early, tmp_path):
    path, dealt = "/one/away", "/dealt/away"
    for each in (path, dealt):
        xrdcp("-f", write(tmp_path / "source", "away", MIB), cluster.url + each).ok()
    (holder,) = cluster.holders(path)
    place = f"site{cluster.disks.index(holder) + 1}/rack1/disk{cluster.disks.index(holder) + 1}"
    holder.kill()
    until(lambda: "offline" in [store["state"] for store in cluster.stores()], LOST_SECONDS)
    refused = xrdcp("-f", cluster.url + path, tmp_path / "back")
    assert refused.code != 0 and "no store that is online" in refused.err + refused.out, refused
    assert place in refused.err + refused.out, refused
    refused = Xrdfs(cluster.url)("locate", path)
    assert refused.code != 0 and place in refused.err + refused.out, refused
    # The same if only parts of it are away: which ones, and where. A stock client that is redirected between servers would never show that.
    units = cluster.file(dealt)["object"]["units"]
    (missing,) = [number for number, unit in enumerate(units) if unit["replicas"][0]["location"] == place]
    for refused in (xrdcp("-f", cluster.url + dealt, tmp_path / "back"), run([WEIR_BIN, "cp", cluster.url + dealt, tmp_path / "no"])):
        assert refused.code != 0 and f"unit {missing} is on store" in refused.err + refused.out, refused
        assert place in refused.err + refused.out, refused
    # The command shows the same, and the name is kept.
    copies = cluster.file(path)["object"]["replicas"]
    assert [(copy["location"], copy["state"]) for copy in copies] == [(place, "offline")]
    assert Xrdfs(cluster.url).size(path) == MIB
    # A file that needs both sites cannot be made on one. The error gives the reason, and nothing remains.
    refused = xrdcp("-f", tmp_path / "source", f"{cluster.url}/both/new")
    assert refused.code != 0 and "no stores can be chosen for it" in refused.err + refused.out, refused
    assert not Xrdfs(cluster.url).exists("/both/new")
    # Everything recovers by itself.
    holder.start()
    until(lambda: xrdcp("-f", cluster.url + path, tmp_path / "back").code == 0, LOST_SECONDS)
    assert (tmp_path / "back").read_bytes() == content("away", MIB)
    xrdcp("-f", cluster.url + dealt, tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == content("away", MIB)
    until(lambda: xrdcp("-f", tmp_path / "source", f"{cluster.url}/both/new").code == 0, LOST_SECONDS)


def test_nothing_is_lost_for_a_manager_that_has_just_begun(cluster, early, tmp_path):
    """It knows which stores exist, but has not heard from any: readers wait, and administrators see what there is."""
    source = write(tmp_path / "source", "begun", MIB)
    paths = ["/one/begun", "/both/begun", "/dealt/begun"]
    for path in paths:
        xrdcp("-f", source, cluster.url + path).ok()
    places = {store["store"]: store["location"] for store in cluster.stores()}
    (copy,) = cluster.file("/one/begun")["object"]["replicas"]
    cluster.manager.kill()
    for disk in cluster.disks:
        disk.freeze()
    try:
        cluster.manager.start()
        # First what lasts for a lease term only: the stores are offline after it. Readers wait some seconds longer.
        stores, replicas = cluster.stores(), cluster.file("/one/begun")["object"]["replicas"]
        assert {store["store"]: store["location"] for store in stores} == places
        assert {store["state"] for store in stores} == {"suspect"}
        assert replicas == [copy | {"state": "suspect"}]
        with raw.Raw.to(cluster.manager) as there:
            for path in paths:
                assert there.ask_open(path).status == raw.WAIT
                assert there.request(raw.LOCATE, struct.pack(">H14x", 0), path.encode()).status == raw.WAIT
        readers = [start_xrdcp(cluster.url + path, tmp_path / path[1:].replace("/", "-")) for path in paths]
        time.sleep(1)
        assert all(reader.poll() is None for reader in readers)
    finally:
        for disk in cluster.disks:
            disk.thaw()
    for path, reader in zip(paths, readers, strict=True):
        said, _ = reader.communicate(timeout=LOST_SECONDS)
        assert reader.returncode == 0, said
        assert (tmp_path / path[1:].replace("/", "-")).read_bytes() == source.read_bytes()


def test_a_reader_comes_while_the_only_store_is_away_for_a_moment(cluster, early, tmp_path):
    """Its lease has ended, and it comes back: no reader gets the answer that the file is gone."""
    path = "/one/moment"
    xrdcp("-f", write(tmp_path / "source", "moment", MIB), cluster.url + path).ok()
    (holder,) = cluster.holders(path)
    holder.freeze()
    try:
        until(lambda: "offline" in [store["state"] for store in cluster.stores()], LOST_SECONDS)
        with raw.Raw.to(cluster.manager) as there:
            assert there.ask_open(path).status == raw.WAIT
        reader = start_xrdcp(cluster.url + path, tmp_path / "back")
        time.sleep(1)
        assert reader.poll() is None
    finally:
        holder.thaw()
    said, _ = reader.communicate(timeout=LOST_SECONDS)
    assert reader.returncode == 0, said
    assert (tmp_path / "back").read_bytes() == content("moment", MIB)


def test_a_new_file_waits_when_all_stores_were_away_for_a_moment(cluster, early, tmp_path):
    """The manager itself has stood still, for longer than any lease."""
    cluster.manager.freeze()
    writers = []
    try:
        time.sleep(7)
        source = write(tmp_path / "source", "still", MIB)
        writers = [start_xrdcp(source, f"{cluster.url}/{folder}/still") for folder in ("one", "both", "dealt")]
        time.sleep(0.5)
    finally:
        cluster.manager.thaw()
    for writer in writers:
        said, _ = writer.communicate(timeout=LOST_SECONDS)
        assert writer.returncode == 0, said
    for folder in ("one", "both", "dealt"):
        xrdcp("-f", f"{cluster.url}/{folder}/still", tmp_path / "back").ok()
        assert (tmp_path / "back").read_bytes() == source.read_bytes()


def test_a_permission_that_is_too_old_leads_to_the_manager(cluster, early, tmp_path):
    since, path, permission, disk = early
    time.sleep(max(0.0, since + PERMISSION_SECONDS - time.monotonic()))
    with raw.Raw(disk.port, host=disk.host) as there:
        answer = there.ask_open(f"{path}?{permission}")
        assert answer.status == raw.REDIRECT, answer
        assert answer.redirect[:2] == (cluster.manager.port, cluster.manager.host)
    # A stock client with such a capability gets the file, by way of the manager.
    xrdcp("-f", f"{disk.url}{path}?{permission}", tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == content("early", 200_000)


@pytest.mark.parametrize("sent_again", [False, True])
def test_a_page_that_came_damaged_is_missing_still_when_its_writer_has_opened_the_file_again(cluster, sent_again):
    path = f"/one/refused-page-{sent_again}"
    page = b"p" * 4096
    good = struct.pack(">I", page_sum(page)) + page
    with raw.Raw.to(cluster.manager) as manager:

        def opened(options: int) -> tuple[raw.Raw, bytes]:
            port, host, opaque = manager.ask_open(path, options).redirect
            there = raw.Raw(port, host=host)
            return there, there.open(f"{path}?{opaque}", options)

        def put(there: raw.Raw, handle: bytes, offset: int, unit: bytes) -> None:
            assert there.request(raw.PGWRITE, handle + struct.pack(">q", offset), unit).status == raw.STATUS

        before, handle = opened(raw.OPEN_NEW | raw.OPEN_UPDATE)
        with before:
            put(before, handle, 0, good + good)
            put(before, handle, 4096, bytes(4) + page)
            again, handle = opened(raw.OPEN_UPDATE)
        with again:
            if sent_again:
                put(again, handle, 4096, good)
            assert again.close(handle).status == (raw.OK if sent_again else raw.ERROR)
    until(lambda: cluster.file(path)["object"]["state"] == ("complete" if sent_again else "interrupted"), 20)
