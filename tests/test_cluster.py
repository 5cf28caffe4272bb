"""A cluster as its users meet it: stock clients and our own at the manager's single address. Tests look for the replicas on the disks."""

import base64
import os
import time

import pytest
import raw
import uproot
import xrdcl
from clients import Xrdfs, run, xrdcp
from cluster import Cluster, Node
from content import MIB, adler32, content, write
from harness import WEIR_BIN, remove, root_file, until
from XRootD import client
from XRootD.client.flags import OpenFlags

pytestmark = pytest.mark.managers_ok

BIG = 20_000_000


@pytest.fixture(scope="module")
def cluster(base):
    """Two sites with two disk servers each: disk1 and disk3 on site1, disk2 and disk4 on site2."""
    with Cluster(base / "cluster", 4) as cluster:
        cluster.policy("/one", "replica(1)")
        cluster.policy("/two", "replica(2) spread=site")
        cluster.policy("/late", "replica(2) sync=1 spread=site")
        cluster.policy("/near", "replica(1) near=client")
        cluster.policy("/site1", "replica(1) prefer=site1")
        yield cluster
        assert all(node.alive() for node in cluster.nodes), cluster.logs()
    remove(cluster.home)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return xrdcl.build(tmp_path_factory.mktemp("xrdcl"))


@pytest.fixture
def fs(cluster) -> Xrdfs:
    return Xrdfs(cluster.url)


@pytest.fixture
def folder(cluster, request) -> str:
    """The folder for a test's files, with two replicas each."""
    return f"/two/{request.node.name}"


def sites(disks: list[Node]) -> set[str]:
    """disk1, disk3, .. are on the first site."""
    return {f"site{(int(disk.home.name.removeprefix('disk')) - 1) % 2 + 1}" for disk in disks}


def good(result):
    status, value = result
    assert status.ok, status.message
    return value


def opened(url: str, flags: OpenFlags = OpenFlags.READ) -> client.File:
    file = client.File()
    good(file.open(url, flags))
    return file


def fetched(url: str, tmp_path) -> bytes:
    xrdcp("-f", url, tmp_path / "fetched").ok()
    return (tmp_path / "fetched").read_bytes()


# Requests that every client relies on.


@pytest.mark.parametrize("size", [0, 100, 65_536, 65_537, BIG])
def test_a_file_is_what_was_written(cluster, fs, folder, tmp_path, size):
    source = write(tmp_path / "source", size, size)
    path = f"{folder}/made/on/the/way"
    xrdcp(source, cluster.url + path).ok()
    assert fetched(cluster.url + path, tmp_path) == source.read_bytes()
    assert fs.size(path) == size
    assert fs("query", "checksum", path).ok().out.split() == ["adler32", adler32(source.read_bytes())]
    assert f" {size} " in fs("ls", "-l", f"{folder}/made/on/the").ok().out


def test_our_own_client_writes_and_reads(cluster, fs, folder, tmp_path):
    source = write(tmp_path / "source", "own", BIG)
    run([str(WEIR_BIN), "cp", str(source), f"{cluster.url}{folder}/own"]).ok()
    run([str(WEIR_BIN), "cp", f"{cluster.url}{folder}/own", str(tmp_path / "back")]).ok()
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    assert fs.size(f"{folder}/own") == BIG


def test_reads_of_many_pieces_at_once_and_of_pages(cluster, folder, tmp_path):
    data = write(tmp_path / "source", "vector", 9 * MIB + 1234).read_bytes()
    url = f"{cluster.url}{folder}/vector"
    xrdcp(tmp_path / "source", url).ok()
    file = opened(url)
    assert good(file.stat()).size == len(data)
    pieces = [(offset, 1000 + number) for number, offset in enumerate(range(0, 9 * MIB, 100_003))]
    for chunk in good(file.vector_read(pieces)).chunks:
        assert chunk.buffer == data[chunk.offset : chunk.offset + chunk.length]
    assert good(file.read(4095, 70_000)) == data[4095:74_095]
    assert good(file.read(len(data) - 10, 100)) == data[-10:]
    good(file.close())


def test_analysis_reads_its_branches(cluster, folder):
    path = root_file("uproot-HZZ.root")
    url = f"{cluster.url}{folder}/HZZ.root"
    xrdcp(path, url).ok()
    with uproot.open(path) as here, uproot.open(url) as there:
        for column in ("Jet_Px", "NMuon", "MET_px"):
            assert here["events"][column].array().to_list() == there["events"][column].array().to_list()


def test_an_overwritten_file_has_the_new_content_alone(cluster, fs, folder, tmp_path):
    url = f"{cluster.url}{folder}/again"
    for number, size in enumerate([BIG, 100, 3 * MIB, 0, 70_000]):
        source = write(tmp_path / "source", f"again {number}", size)
        xrdcp("-f", source, url).ok()
        assert fetched(url, tmp_path) == source.read_bytes()
    xrdcp(source, url).fails("exists")


def test_a_file_is_changed_in_place_on_all_its_stores(cluster, fs, folder, tmp_path):
    data = bytearray(write(tmp_path / "source", "in place", 2 * MIB).read_bytes())
    path = f"{folder}/changed"
    xrdcp(tmp_path / "source", cluster.url + path).ok()
    with opened(cluster.url + path, OpenFlags.UPDATE) as file:
        good(file.write(b"changed", 100_001))
        good(file.write(b"appended", len(data)))
        good(file.close())
    data[100_001:100_008] = b"changed"
    data += b"appended"
    holders = cluster.holders(path)
    assert len(holders) == 2
    for away in holders:
        # At either of the two.
        assert fetched(f"{cluster.url}{path}?tried={away.host}", tmp_path) == data
    assert fs("query", "checksum", path).ok().out.split()[1] == adler32(bytes(data))


def test_an_open_file_is_cut_on_all_its_stores(cluster, fs, folder, tmp_path, program):
    data = write(tmp_path / "source", "cut", MIB).read_bytes()
    path = f"{folder}/cut"
    xrdcp(tmp_path / "source", cluster.url + path).ok()
    with xrdcl.File(program, cluster.url + path) as file:
        file("truncate", 1000)
        file("writev", "500:10:x", "990:20:y")
        file("close")
    wanted = data[:500] + b"x" * 10 + data[510:990] + b"y" * 20
    for away in cluster.holders(path):
        assert fetched(f"{cluster.url}{path}?tried={away.host}", tmp_path) == wanted


def test_a_file_is_cut_by_name_on_all_its_stores(cluster, fs, folder, tmp_path):
    data = write(tmp_path / "source", "cut by name", MIB).read_bytes()
    path = f"{folder}/whole"
    xrdcp(tmp_path / "source", cluster.url + path).ok()
    for wanted in (data[:100_001], data[:100_001], data[:100_001] + bytes(99_999), b""):
        fs("truncate", path, str(len(wanted))).ok()
        assert len(cluster.whole_on(path)) == 2
        for away in cluster.holders(path):
            assert fetched(f"{cluster.url}{path}?tried={away.host}", tmp_path) == wanted
        assert fs("query", "checksum", path).ok().out.split() == ["adler32", adler32(wanted)]
    fs("truncate", folder, "0").refused(raw.IS_DIRECTORY)
    fs("truncate", f"{path}-none", "0").refused(raw.NOT_FOUND)


def test_a_file_that_is_open_for_writing_is_not_cut_by_name(cluster, fs, folder):
    path = f"{folder}/open"
    file = opened(cluster.url + path, OpenFlags.NEW | OpenFlags.MAKEPATH)
    good(file.write(b"x" * 1000))
    fs("truncate", path, "10").refused(raw.FILE_LOCKED)
    # Nor by its own writer, who has a handle.
    status, _ = client.FileSystem(cluster.url).truncate(path, 10)
    assert status.errno == raw.FILE_LOCKED, status.message
    good(file.write(b"y" * 1000, 1000))
    good(file.close())
    assert fs.size(path) == 2000


def test_a_permission_to_read_cuts_nothing(cluster, fs, secret, tmp_path):
    path, permission, disk = secret
    with raw.Raw(disk.port, host=disk.host) as there:
        answer = there.request(raw.TRUNCATE, bytes(4) + bytes(8), f"{path}?{permission}".encode())
        assert answer.error == raw.NOT_AUTHORIZED, answer
        # Without a capability, only the manager can answer.
        assert is_sent_back(cluster, there.request(raw.TRUNCATE, bytes(4) + bytes(8), path.encode()))
    assert fetched(cluster.url + path, tmp_path) == content("secret", 200_000)


def test_a_file_is_moved_while_it_is_written(cluster, fs, folder, tmp_path):
    data = content("moved", 2 * MIB)
    fs("mkdir", "-p", folder).ok()
    with opened(f"{cluster.url}{folder}/before", OpenFlags.NEW) as file:
        good(file.write(data[:MIB], 0))
        fs("mv", f"{folder}/before", f"{folder}/after").ok()
        good(file.write(data[MIB:], MIB))
        good(file.close())
    assert fs.names(folder) == ["after"]
    assert fetched(f"{cluster.url}{folder}/after", tmp_path) == data


def test_a_removed_file_stays_with_its_reader_and_goes_from_the_disks(cluster, fs, folder, tmp_path):
    data = write(tmp_path / "source", "removed", 3 * MIB).read_bytes()
    path = f"{folder}/removed"
    before = objects(cluster)
    xrdcp(tmp_path / "source", cluster.url + path).ok()
    assert len(objects(cluster) - before) == 2
    file = opened(cluster.url + path)
    assert good(file.read(0, 1000)) == data[:1000]
    fs("rm", path).ok()
    assert not fs.exists(path)
    until(lambda: not objects(cluster) - before, 20)
    # A reader continues with the file that it opened, or learns that it is gone. It never gets other bytes, nor none.
    status, got = file.read(MIB, 1000)
    assert not status.ok or got == data[MIB : MIB + 1000], (status, got)
    assert status.ok or status.errno == raw.NOT_FOUND, status
    file.close()


def test_a_file_that_is_removed_while_it_is_written_is_gone(cluster, fs, folder):
    fs("mkdir", "-p", folder).ok()
    before = objects(cluster)
    file = opened(f"{cluster.url}{folder}/short-lived", OpenFlags.NEW)
    good(file.write(content("short-lived", MIB), 0))
    fs("rm", f"{folder}/short-lived").ok()
    file.write(b"more", MIB)
    file.close()
    assert fs.names(folder) == []
    until(lambda: not objects(cluster) - before, 20)


def test_a_copy_that_is_persistent_on_success_alone(cluster, fs, folder, tmp_path):
    source = write(tmp_path / "source", "posc", 3 * MIB)
    xrdcp("--posc", source, f"{cluster.url}{folder}/posc").ok()
    assert fetched(f"{cluster.url}{folder}/posc", tmp_path) == source.read_bytes()
    file = opened(f"{cluster.url}{folder}/unseen", OpenFlags.NEW | OpenFlags.POSC)
    good(file.write(b"half", 0))
    assert not fs.exists(f"{folder}/unseen")
    good(file.close())
    assert fs.size(f"{folder}/unseen") == 4


def test_attributes_and_names_are_the_managers(cluster, fs, folder, tmp_path):
    xrdcp(write(tmp_path / "source", "attributes", 100), f"{cluster.url}{folder}/file").ok()
    fs("xattr", f"{folder}/file", "set", "colour=blue").ok()
    assert 'colour="blue"' in fs("xattr", f"{folder}/file", "get", "colour").ok().out
    fs("chmod", f"{folder}/file", "rw-r-----").ok()
    assert "0640" in fs("stat", f"{folder}/file").ok().out
    # A disk server sends clients with questions about names to the manager.
    disk = Xrdfs(cluster.disks[-1].url)
    assert disk.names(folder) == ["file"]
    assert disk.size(f"{folder}/file") == 100
    disk("mkdir", f"{folder}/made").ok()
    assert fs.names(folder) == ["file", "made"]


def test_a_manager_says_what_it_is_and_what_there_is(cluster, fs):
    assert fs("query", "config", "role").ok().out.strip() == "manager"
    space = dict(pair.split("=") for pair in fs("query", "space", "/").ok().out.strip().split("&"))
    # Four stores on one file system, which the cluster sees as four file systems.
    one = os.statvfs(cluster.home)
    assert int(space["oss.space"]) == 4 * one.f_blocks * one.f_frsize
    fs("locate", "/not/there").refused(raw.NOT_FOUND)


# Where the bytes are.


def objects(cluster: Cluster) -> set[tuple[str, str]]:
    """Replicas that are files of their own, with their disk servers."""
    return {(disk.home.name, path.name) for disk in cluster.disks for path in disk.objects()}


def piece_of(cluster: Cluster, url: str, tmp_path) -> set[str]:
    """Writes a file; returns the disk servers that have a replica."""
    before = objects(cluster)
    xrdcp("-f", write(tmp_path / "source", url, MIB), url).ok()
    return {disk for disk, _ in objects(cluster) - before}


def test_single_copies_are_spread_over_all_stores(cluster, tmp_path):
    used = [piece_of(cluster, f"{cluster.url}/one/spread{number}", tmp_path) for number in range(24)]
    assert all(len(disks) == 1 for disks in used)
    # A given one of four is never drawn in 24 times once in 250 runs, and less than twice more often; no store may get nearly all.
    assert len(set.union(*used)) >= 3


def test_two_copies_are_on_two_sites(cluster, tmp_path):
    for number in range(6):
        path = f"/two/spread{number}"
        disks = piece_of(cluster, cluster.url + path, tmp_path)
        holders = cluster.holders(path)
        assert {disk.home.name for disk in holders} == disks
        assert len(disks) == 2 and sites(holders) == {"site1", "site2"}


def test_a_missing_replica_is_repaired_in_the_background(cluster, fs, tmp_path):
    source = write(tmp_path / "source", "missing", BIG)
    before = objects(cluster)
    xrdcp(source, f"{cluster.url}/late/missing").ok()
    cluster.until(lambda: len(objects(cluster) - before) == 2)
    holders = cluster.until(lambda: len(found := cluster.holders("/late/missing")) == 2 and found)
    assert sites(holders) == {"site1", "site2"}
    for away in holders:
        assert fetched(f"{cluster.url}/late/missing?tried={away.host}", tmp_path) == source.read_bytes()


def test_a_preferred_site_gets_the_first_copy(cluster, tmp_path):
    for number in range(6):
        assert piece_of(cluster, f"{cluster.url}/site1/{number}", tmp_path) <= {"disk1", "disk3"}


def test_a_file_is_made_near_its_client(cluster, tmp_path):
    for number in (1, 2, 3, 4):
        place = f"site{(number - 1) % 2 + 1}/rack1/disk{number}"
        url = f"{cluster.url}/near/stated{number}?weir.location={place}"
        assert piece_of(cluster, url, tmp_path) == {f"disk{number}"}
    # A client that gives no location has that of its address.
    disk = cluster.disks[1]
    with raw.Raw.to(cluster.manager, machine=disk.host) as there:
        _, host, _ = there.ask_open("/near/by-address", raw.OPEN_NEW | raw.OPEN_UPDATE).redirect
        assert host == disk.host


def test_a_reader_is_sent_to_the_nearest_copy(cluster, tmp_path):
    path = "/two/nearest"
    piece_of(cluster, cluster.url + path, tmp_path)
    for disk in cluster.holders(path):
        with raw.Raw.to(cluster.manager, machine=disk.host) as there:
            assert there.ask_open(path).redirect[1] == disk.host


# Invalid capabilities.


@pytest.fixture
def secret(cluster, tmp_path) -> tuple[str, str, Node]:
    """A file with one replica, a capability to read it, and the disk server that it names."""
    path = f"/one/secret-{tmp_path.name}"
    xrdcp("-f", write(tmp_path / "source", "secret", 200_000), cluster.url + path).ok()
    with raw.Raw.to(cluster.manager) as there:
        port, host, opaque = there.ask_open(path).redirect
    return path, opaque, cluster.at(f"{host}:{port}")


def is_sent_back(cluster: Cluster, answer: raw.Answer) -> bool:
    return answer.status == raw.REDIRECT and answer.redirect[:2] == (cluster.manager.port, cluster.manager.host)


def test_a_permission_opens_its_file_and_no_other(cluster, secret, tmp_path):
    path, permission, disk = secret
    other = "/one/other"
    xrdcp("-f", write(tmp_path / "source", "other", 200_000), cluster.url + other).ok()
    with raw.Raw(disk.port, host=disk.host) as there:
        handle = there.ask_open(f"{path}?{permission}").body[:4]
        assert there.read(handle, 0, 1000).body == content("secret", 1000)
        # Whatever the spelling of the path.
        spelled = path.replace("/", "/./")
        handle = there.ask_open(f"/{spelled}?{permission}").body[:4]
        assert there.read(handle, 0, 1000).body == content("secret", 1000)
        # With another name, the answer must not reveal whether such a file exists.
        for name in (other, "/one/nothing", f"{path}x", f"{path}/"):
            answer = there.ask_open(f"{name}?{permission}")
            assert answer.error == raw.NOT_AUTHORIZED, answer
            assert b"for another file" in answer.body and b"by the manager's address" in answer.body, answer
            answer = there.request(raw.TRUNCATE, bytes(16), f"{name}?{permission}".encode())
            assert answer.error == raw.NOT_AUTHORIZED and b"for another file" in answer.body, answer
        # It permits reading and nothing else.
        answer = there.ask_open(f"{path}?{permission}", raw.OPEN_UPDATE)
        if answer.status == raw.OK:
            assert there.write(answer.body[:4], 0, b"spoiled").status == raw.ERROR
    assert fetched(cluster.url + path, tmp_path) == content("secret", 200_000)


# The offset in a capability of the number of its sealing key, in bytes.
KEY_AT = range(4, 8)


def opened_up(permission: str) -> tuple[str, bytearray]:
    """The opaque word of a capability, and its bytes."""
    word, _, sealed = permission.partition("&")[0].partition("=")
    return word, bytearray(base64.urlsafe_b64decode(sealed + "=" * (-len(sealed) % 4)))


def altered(permission: str, at: int) -> str:
    """With one flipped bit in one of its bytes."""
    word, there = opened_up(permission)
    there[at] ^= 1
    return f"{word}={base64.urlsafe_b64encode(there).decode().rstrip('=')}"


def key_of(permission: str) -> bytes:
    return bytes(opened_up(permission)[1][KEY_AT.start : KEY_AT.stop])


def test_an_altered_permission_is_refused(cluster, secret):
    path, permission, disk = secret
    word, _, sealed = permission.partition("&")[0].partition("=")
    with raw.Raw(disk.port, host=disk.host) as there:
        for options in (raw.OPEN_READ, raw.OPEN_UPDATE):
            for at in range(len(opened_up(permission)[1])):
                answer = there.ask_open(f"{path}?{altered(permission, at)}", options)
                # Keys change. For an unknown key, the server refers to the manager, which may know it.
                assert is_sent_back(cluster, answer) if at in KEY_AT else answer.error == raw.NOT_AUTHORIZED, (at, answer)
        for none in ("", "x", sealed[:-1], sealed + "A", sealed * 2, "A" * 4000):
            answer = there.ask_open(f"{path}?{word}={none}")
            assert answer.error == raw.NOT_AUTHORIZED, (none, answer)


def test_a_permission_for_another_disk_server_is_none(cluster, secret):
    path, permission, disk = secret
    for other in cluster.disks:
        if other is not disk:
            with raw.Raw.to(cluster.manager, machine=other.host) as there:
                _, host, of_other = there.ask_open(f"/near/at-{other.home.name}", raw.OPEN_NEW | raw.OPEN_UPDATE).redirect
                assert host == other.host
            with raw.Raw(other.port, host=other.host) as there:
                answer = there.ask_open(f"{path}?{permission}")
            # Each has its own key; keys made at the same time have the same number.
            if key_of(permission) == key_of(of_other):
                assert answer.error == raw.NOT_AUTHORIZED, answer
            else:
                assert is_sent_back(cluster, answer), answer


def test_a_disk_server_opens_nothing_without_permission(cluster, secret, tmp_path):
    path, _, disk = secret
    with raw.Raw(disk.port, host=disk.host) as there:
        assert is_sent_back(cluster, there.ask_open(path))
        assert is_sent_back(cluster, there.ask_open("/one/new", raw.OPEN_NEW | raw.OPEN_UPDATE))
    # A stock client follows the redirect.
    assert fetched(disk.url + path, tmp_path) == content("secret", 200_000)


def test_a_permission_ends_with_its_file(cluster, fs, secret):
    path, permission, disk = secret
    there_is = set(disk.objects())
    fs("rm", path).ok()
    until(lambda: len(set(disk.objects()) & there_is) == len(there_is) - 1, 20)
    with raw.Raw(disk.port, host=disk.host) as there:
        # The manager knows the present file.
        assert is_sent_back(cluster, there.ask_open(f"{path}?{permission}"))


def expires_at(permission: str) -> float:
    """The expiry time: it follows the key, the server, the object, the principal, the path, the epoch and the session."""
    return int.from_bytes(opened_up(permission)[1][60:68], "little") / 1e9


def test_an_expired_permission_opens_nothing_more_and_what_it_has_opened_goes_on(cluster, secret, tmp_path):
    path, to_read, disk = secret
    written = f"/one/{tmp_path.name}"
    with raw.Raw.to(cluster.manager) as there:
        port, host, to_write = there.ask_open(written, raw.OPEN_NEW | raw.OPEN_UPDATE).redirect
        unused_port, unused_host, unused = there.ask_open(f"{written}-unused", raw.OPEN_NEW | raw.OPEN_UPDATE).redirect
    with raw.Raw(disk.port, host=disk.host) as reader, raw.Raw(port, host=host) as writer:
        reading, writing = reader.open(f"{path}?{to_read}"), writer.open(f"{written}?{to_write}", raw.OPEN_NEW | raw.OPEN_UPDATE)
        assert writer.write(writing, 0, b"before").status == raw.OK
        until(lambda: time.time() > max(map(expires_at, (to_read, to_write, unused))) + 1, 130)
        # Nobody can use it now.
        for at, name, permission in [
            ((disk.port, disk.host), path, to_read),
            ((port, host), written, to_write),
            ((unused_port, unused_host), f"{written}-unused", unused),
        ]:
            for options in (raw.OPEN_READ, raw.OPEN_UPDATE, raw.OPEN_NEW | raw.OPEN_UPDATE):
                with raw.Raw(at[0], host=at[1]) as late:
                    assert is_sent_back(cluster, late.ask_open(f"{name}?{permission}", options)), (name, options)
        assert reader.read(reading, 0, 1000).body == content("secret", 1000)
        assert writer.write(writing, 6, b" and after").status == raw.OK
        assert writer.close(writing).status == raw.OK
    assert fetched(cluster.url + written, tmp_path) == b"before and after"
