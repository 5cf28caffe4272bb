"""Requests on an open handle are answered by the server that has the handle, or refused there in words. A client that is sent to the
manager with a handle opens its file again, is sent back, and never ends."""

import struct
import time

import pytest
import raw
from clients import Xrdfs, xrdcp
from cluster import Cluster
from content import MIB, page_sum, write
from raw import Raw
from test_attributes import DEL, GET, LIST, SET, fattr
from XRootD import client
from XRootD.client.flags import OpenFlags

pytestmark = pytest.mark.managers_ok

NEW, POSC = raw.OPEN_NEW | raw.OPEN_UPDATE, 0x1000
ATTR_NOT_FOUND, EXISTS, INVALID_REQUEST = 3027, 3018, 3006
QUERY_CHECKSUM, QUERY_XATTR, QUERY_VISA, QUERY_FINFO, QUERY_OPAQUE_HANDLE = 3, 4, 8, 9, 64
SIZE, PAGE = MIB + 7, 4096
VERSION, ANNOUNCED = 0x520, 0x511
NOT_SUPPORTED_BY_CLIENT = 13  # errNotSupported of XrdCl


@pytest.fixture(scope="module", params=["replica(2) sync=2", "stripe(2, 64KiB)"])
def cluster(base, request):
    with Cluster(base / f"handles-{request.param[:6]}", 3) as cluster:
        cluster.policy("/", request.param)
        yield cluster


@pytest.fixture
def fs(cluster) -> Xrdfs:
    return Xrdfs(cluster.url)


@pytest.fixture
def path(cluster, fs, request, tmp_path) -> str:
    place = "/" + request.node.name.translate(str.maketrans("[](), =", "_______"))
    fs("mkdir", place).ok()
    xrdcp(write(tmp_path / "source", place, SIZE), f"{cluster.url}{place}/file").ok()
    return f"{place}/file"


class Opened:
    """A file that is open at the disk server to which the manager sends."""

    def __init__(self, cluster: Cluster, path: str, options: int = raw.OPEN_READ):
        with Raw.to(cluster.manager) as manager:
            port, host, words = manager.ask_open(path, options).redirect
        self.connection = Raw(port, host=host)
        answer = self.connection.request(raw.OPEN, struct.pack(">HH12x", 0o644, options), f"{path}?{words}".encode())
        assert answer.status == raw.OK, answer
        self.handle = answer.body[:4]

    def __enter__(self) -> "Opened":
        return self

    def __exit__(self, *_) -> None:
        self.connection.socket.close()

    def fattr(self, operation: int, names=(), values=(), options: int = 0) -> raw.Answer:
        return fattr(self.connection, operation, self.handle, list(names), values, options)

    def close(self) -> None:
        answer = self.connection.close(self.handle)
        assert answer.status == raw.OK, answer


def pgwrite(at: Raw, handle: bytes, offset: int, data: bytes) -> raw.Answer:
    units = b"".join(
        struct.pack(">I", page_sum(page)) + page for page in (data[begin : begin + PAGE] for begin in range(0, len(data), PAGE))
    )
    return at.request(raw.PGWRITE, handle + struct.pack(">q", offset), units)


def writev(at: Raw, handle: bytes, parts: dict[int, bytes]) -> raw.Answer:
    """The list of places counts as the request's data; the bytes follow it."""
    places = b"".join(handle + struct.pack(">iq", len(data), offset) for offset, data in parts.items())
    return at.request(raw.WRITEV, b"", places + b"".join(parts.values()), length=len(places))


def value_of(fs: Xrdfs, path: str, name: str) -> str:
    return fs("xattr", path, "get", name).ok().out


def test_the_state_is_an_attribute_of_the_handle_too(cluster, fs, path):
    with Opened(cluster, path) as file:
        answer = file.fattr(GET, [b"weir.state"])
        assert answer.status == raw.OK and b"complete" in answer.body, answer
    assert '"complete"' in value_of(fs, path, "weir.state")


def test_xrdcp_takes_attributes_along(cluster, fs, path, tmp_path):
    """With XrdCl 5.5 this had not ended."""
    fs("xattr", path, "set", "a=b").ok()
    begin = time.monotonic()
    xrdcp("-f", "--xattr", f"{cluster.url}{path}", tmp_path / "back", timeout=60).ok()
    assert (tmp_path / "back").stat().st_size == SIZE
    assert time.monotonic() - begin < 30
    xrdcp("--xattr", f"{cluster.url}{path}", f"{cluster.url}{path}-copy", timeout=60).ok()
    assert '"b"' in value_of(fs, f"{path}-copy", "a")


def test_xrdcl_6_reads_and_changes_them(cluster, fs, path):
    fs("xattr", path, "set", "a=b").ok()
    with client.File() as file:
        assert file.open(f"{cluster.url}{path}", OpenFlags.READ)[0].ok
        status, found = file.get_xattr(["a", "missing"])
        assert status.ok and [(name, value) for name, value, result in found if result["ok"]] == [("a", "b")], status.message
        assert [result["errno"] for _, _, result in found if not result["ok"]] == [ATTR_NOT_FOUND]
        status, listed = file.list_xattr()
        assert status.ok and [(name, value) for name, value, _ in listed] == [("a", "b")]
        status, _ = file.set_xattr([("of", "handle")])
        assert status.errno == INVALID_REQUEST
    with client.File() as file:
        assert file.open(f"{cluster.url}{path}-new", OpenFlags.NEW)[0].ok
        assert file.write(b"some")[0].ok
        status, results = file.set_xattr([("of", "handle"), ("and", "more")])
        assert status.ok and all(result["ok"] for _, result in results), status.message
        status, results = file.del_xattr(["and"])
        assert status.ok and results[0][1]["ok"]
        assert file.close()[0].ok
    assert '"handle"' in value_of(fs, f"{path}-new", "of")
    fs("xattr", f"{path}-new", "get", "and").refused(ATTR_NOT_FOUND)


def test_each_operation_frame_by_frame(cluster, fs, path):
    with Opened(cluster, f"{path}-new", NEW) as opened:
        assert opened.fattr(LIST).body == b""
        assert opened.fattr(SET, [b"one", b"two"], [b"1", b"x" * 65536]).body == b"\0\2\0\0one\0\0\0two\0"
        again = opened.fattr(SET, [b"one"], [b"2"], options=1).body
        assert again[0] == 1 and int.from_bytes(again[2:4], "big") == EXISTS
        assert opened.fattr(GET, [b"one"]).body == b"\0\1\0\0one\0\0\0\0\x011"
        assert b"x" * 65536 in opened.fattr(GET, [b"two"]).body
        assert opened.fattr(LIST).body == b"one\0two\0"
        assert opened.fattr(LIST, options=0x10).body.startswith(b"one\0\0\0\0\x011two\0\0\1\0\0xxx")
        assert opened.fattr(DEL, [b"one"]).body == b"\0\1\0\0one\0"
        gone = opened.fattr(DEL, [b"one"]).body
        assert gone[0] == 1 and int.from_bytes(gone[2:4], "big") == ATTR_NOT_FOUND
        number = opened.fattr(DEL, [b"weir.damaged"]).body[2:4]
        assert int.from_bytes(number, "big") == ATTR_NOT_FOUND, "weir's own are out of reach"
        opened.close()
    listed = fs("xattr", f"{path}-new", "list").ok().out
    assert "two" in listed and "one" not in listed
    with Opened(cluster, path) as opened:
        assert opened.fattr(SET, [b"run"], [b"1"]).error == INVALID_REQUEST
        assert opened.fattr(DEL, [b"run"]).error == INVALID_REQUEST


def test_attributes_of_a_file_that_nobody_sees_yet_appear_with_it(cluster, fs, path):
    hidden = f"{path}-hidden"
    with Opened(cluster, hidden, NEW | POSC) as opened:
        assert opened.fattr(SET, [b"run"], [b"1"]).body[:1] == b"\0"
        assert opened.fattr(GET, [b"run"]).body.endswith(b"\0\0\0\x011")
        fs("xattr", hidden, "list").refused(raw.NOT_FOUND)
        opened.close()
    assert '"1"' in value_of(fs, hidden, "run")


def test_a_handle_leads_to_its_file_wherever_that_was_moved(cluster, fs, path):
    with Opened(cluster, path) as opened:
        fs("xattr", path, "set", "a=b").ok()
        fs("mv", path, f"{path}-moved").ok()
        xrdcp(cluster.disks[0].log, f"{cluster.url}{path}").ok()
        assert opened.fattr(GET, [b"a"]).body.endswith(b"\0\0\0\x01b")


def test_a_writer_that_was_fenced_changes_none(cluster, fs, path):
    """The same client opens the file again, and its earlier connection is over."""
    new = f"{path}-new"
    with Opened(cluster, new, NEW) as old:
        assert old.connection.write(old.handle, 0, b"data").status == raw.OK
        with Opened(cluster, new, raw.OPEN_UPDATE) as present:
            late = old.fattr(SET, [b"late"], [b"1"])
            assert late.error is not None or late.body[0] == 1, late
            assert present.fattr(SET, [b"run"], [b"1"]).body[:1] == b"\0"
            present.close()
    listed = fs("xattr", new, "list").ok().out
    assert "run" in listed and "late" not in listed


def test_stat_truncate_and_sync_stay(cluster, fs, path):
    if "stripe" in cluster.home.name:
        pytest.skip("a striped file is not cut")
    with Opened(cluster, f"{path}-new", NEW) as opened:
        at = opened.connection
        assert at.write(opened.handle, 0, b"0123456789").status == raw.OK
        assert at.request(raw.TRUNCATE, opened.handle + struct.pack(">q", 4)).status == raw.OK
        assert at.request(raw.STAT, bytes(12) + opened.handle).body.split()[1] == b"4"
        assert at.request(raw.SYNC, opened.handle).status == raw.OK
        opened.close()
    assert fs.size(f"{path}-new") == 4


def test_queries_about_a_handle_are_refused_in_words(cluster, path):
    with Opened(cluster, path) as opened:
        for kind in (QUERY_CHECKSUM, QUERY_VISA, QUERY_FINFO, QUERY_OPAQUE_HANDLE):
            answer = opened.connection.request(raw.QUERY, struct.pack(">H2x", kind) + opened.handle)
            assert answer.error == raw.UNSUPPORTED and answer.text, (kind, answer)
        assert opened.connection.read(opened.handle, 0, 10).status == raw.OK


def test_what_is_about_names_still_goes_to_the_manager(cluster, path):
    with Opened(cluster, path) as opened:
        for answer in (
            opened.connection.stat(path),
            opened.connection.request(raw.QUERY, struct.pack(">H", QUERY_CHECKSUM), path.encode()),
            fattr(opened.connection, LIST, path.encode(), []),
        ):
            assert answer.redirect[0] == cluster.manager.port


def test_ranges_are_cloned_between_handles_of_one_server(cluster, fs, path):
    if "stripe" in cluster.home.name:
        pytest.skip("a striped file is put together anywhere")
    with Opened(cluster, path) as source:
        disk = cluster.disks[[d.port for d in cluster.disks].index(source.connection.socket.getpeername()[1])]
        for number in range(20):
            with Raw.to(cluster.manager) as manager:
                port, host, words = manager.ask_open(f"{path}-{number}", NEW).redirect
            if port == disk.port:
                break
        else:
            pytest.fail("the manager never chooses that server")
        opened = source.connection.request(raw.OPEN, struct.pack(">HH12x", 0o644, NEW), f"{path}-{number}?{words}".encode())
        assert opened.status == raw.OK, opened
        target = opened.body[:4]
        cloned = source.connection.request(raw.CLONE, target, source.handle + struct.pack(">4xQQQ", 3, 1000, 0))
        assert cloned.status == raw.OK, cloned
        assert source.connection.close(target).status == raw.OK
    assert fs.size(f"{path}-{number}") == 1000


def test_no_node_announces_files_that_are_opened_with_a_template(cluster):
    """XrdCl decides by the version of the server alone. It would go to the template's server and follow no redirect from there."""
    for node in cluster.nodes:
        with Raw(node.port, login=False, host=node.host) as connection:
            connection.socket.sendall(struct.pack(">iiiii", 0, 0, 0, 4, 2012))
            assert struct.unpack(">ii", connection.receive().body) == (ANNOUNCED, 1)
            answer = connection.request(raw.PROTOCOL, struct.pack(">iBB", VERSION, 0, 3))
            assert struct.unpack(">i", answer.body[:4]) == (ANNOUNCED,)


@pytest.mark.parametrize("flags", [OpenFlags.DUP, OpenFlags.SAMEFS, OpenFlags.DUP | OpenFlags.SAMEFS])
def test_xrdcl_6_knows_that_it_cannot_open_with_a_template(cluster, fs, path, flags):
    one, target = client.File(), client.File()
    assert one.open(f"{cluster.url}{path}", OpenFlags.READ)[0].ok
    status, _ = target.openusingtemplate(one, f"{cluster.url}{path}-like", OpenFlags.NEW | OpenFlags.UPDATE | flags)
    assert not status.ok and (status.code, status.errno) == (NOT_SUPPORTED_BY_CLIENT, 0), (status.code, status.errno, status.message)
    assert one.read(0, 10)[0].ok, "its handle is as good as before"
    assert one.close()[0].ok
    assert not fs.exists(f"{path}-like")


def test_a_client_that_opens_with_a_template_all_the_same_is_told_why_it_cannot(cluster, fs, path):
    with Opened(cluster, path) as opened:
        at = opened.connection
        assert at.request(raw.PROTOCOL, struct.pack(">iBB", VERSION, 0, 3)).status == raw.OK
        like = struct.pack(">HHH6x", 0o640, NEW, raw.OPEN_DUP) + opened.handle
        answer = at.request(raw.OPEN, like, f"{path}-like".encode())
        assert answer.error == raw.UNSUPPORTED and "template" in answer.text, answer
        assert at.read(opened.handle, 0, 10).status == raw.OK
    assert not fs.exists(f"{path}-like")


def test_no_request_with_a_handle_is_redirected(cluster, fs, path):
    """Each request that has a place for a handle, with one that is open and one that is not."""
    with Opened(cluster, path) as opened:
        at = opened.connection
        assert at.request(raw.PROTOCOL, struct.pack(">iBB", VERSION, 0, 3)).status == raw.OK
        for handle in (opened.handle, b"\x7f\x7f\x7f\x7f"):
            like = struct.pack(">HHH6x", 0o640, NEW, raw.OPEN_DUP) + handle
            answers = {
                "stat": at.request(raw.STAT, bytes(12) + handle),
                "truncate": at.request(raw.TRUNCATE, handle + struct.pack(">q", 4)),
                "sync": at.request(raw.SYNC, handle),
                "read": at.read(handle, 0, 10),
                "readv": at.request(raw.READV, b"", handle + struct.pack(">iq", 10, 0)),
                "pgread": at.request(raw.PGREAD, handle + struct.pack(">qi", 0, 10)),
                "write": at.write(handle, 0, b"x"),
                "pgwrite": pgwrite(at, handle, 0, b"p" * 5000),
                "writev": writev(at, handle, {0: b"one", 4: b"two"}),
                "clone": at.request(raw.CLONE, handle, handle + struct.pack(">4xQQQ", 0, 1, 0)),
                "chkpoint": at.request(raw.CHKPOINT, handle + bytes(12)),
                "open": at.request(raw.OPEN, like, f"{path}-like".encode()),
                **{f"fattr {op}": fattr(at, op, handle, [b"a"] * (op != LIST), [b"v"] * (op == SET)) for op in (DEL, GET, LIST, SET)},
                **{
                    f"query {kind}": at.request(raw.QUERY, struct.pack(">H2x", kind) + handle)
                    for kind in (QUERY_CHECKSUM, QUERY_VISA, QUERY_FINFO, QUERY_OPAQUE_HANDLE)
                },
                "close": at.close(handle),
            }
            assert not [name for name, answer in answers.items() if answer.status == raw.REDIRECT]
            is_open = handle == opened.handle
            for name in ("write", "pgwrite", "writev"):
                expected, words = (raw.NOT_AUTHORIZED, "for reading only") if is_open else (raw.FILE_NOT_OPEN, "handle")
                assert answers[name].error == expected and words in answers[name].text, (name, answers[name])
            assert answers["close"].error == (None if is_open else raw.FILE_NOT_OPEN), answers["close"]
            assert answers["close"].status == (raw.OK if is_open else raw.ERROR), answers["close"]
        assert at.stat("/").redirect[0] == cluster.manager.port, "what follows the data of a refused request is the next one"
    assert fs.size(path) == SIZE


def test_each_kind_of_write_through_a_handle_is_answered_and_kept(cluster, fs, path, tmp_path):
    new = f"{path}-new"
    with Opened(cluster, new, NEW) as opened:
        at, handle = opened.connection, opened.handle
        paged = pgwrite(at, handle, 0, b"p" * 5000)
        # Behind the header that all answers with checksums have: the offset, and no page to be sent again.
        assert paged.status == raw.STATUS and paged.body[16:] == bytes(8), paged
        parts = {0: b"one", 4094: b"two", 200_000: b"three"}
        vector = writev(at, handle, parts)
        assert (vector.status, vector.body) == (raw.OK, b""), vector
        closed = at.close(handle)
        assert (closed.status, closed.body) == (raw.OK, b""), closed
        late = {"pgwrite": pgwrite(at, handle, 0, b"q" * 5000), "writev": writev(at, handle, {0: b"late"}), "close": at.close(handle)}
        assert {name: answer.error for name, answer in late.items()} == dict.fromkeys(late, raw.FILE_NOT_OPEN)
    expected = bytearray(b"p" * 5000 + bytes(195_005))
    for offset, data in parts.items():
        expected[offset : offset + len(data)] = data
    xrdcp(f"{cluster.url}{new}", tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == bytes(expected)


def test_a_manager_that_is_away_is_named(base, tmp_path):
    with Cluster(base / "handles-without-manager", 1) as cluster:
        path = "/file"
        xrdcp(write(tmp_path / "source", path, 100), f"{cluster.url}{path}").ok()
        with Opened(cluster, path) as opened:
            opened.connection.socket.settimeout(60)
            cluster.manager.kill()
            begin = time.monotonic()
            answer = opened.fattr(LIST)
            assert answer.error is not None and "manager" in answer.text, answer
            assert time.monotonic() - begin < 20
            cluster.manager.start()
            cluster.wait_sessions()
            assert opened.fattr(LIST).body == b""
