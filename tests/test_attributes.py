"""Extended attributes and prepare, by xrdfs and the Python bindings."""

import json
import struct
from collections.abc import Sequence

import pytest
import raw
from clients import xrdcp
from content import write
from raw import Raw
from XRootD import client
from XRootD.client.flags import OpenFlags, PrepareFlags, QueryCode

NOT_FOUND, ATTR_NOT_FOUND, TOO_LONG, EXISTS = 3011, 3027, 3002, 3018
POSC = 0x1000


@pytest.fixture
def remote(node) -> client.FileSystem:
    return client.FileSystem(node.url)


@pytest.fixture
def path(node, place, tmp_path) -> str:
    xrdcp(write(tmp_path / "source", place, 100), f"{node.url}{place}/file").ok()
    return f"{place}/file"


@pytest.mark.peer_ok
def test_set_get_list_del_by_xrdfs(fs, path):
    fs("xattr", path, "set", "run=4711").ok()
    fs("xattr", path, "set", "site=Genève").ok()
    assert '"4711"' in fs("xattr", path, "get", "run").ok().out
    listed = fs("xattr", path, "list").ok().out
    assert 'run="4711"' in listed and 'site="Genève"' in listed
    fs("xattr", path, "set", "run=4712").ok()
    assert '"4712"' in fs("xattr", path, "get", "run").ok().out
    fs("xattr", path, "del", "run").ok()
    listed = fs("xattr", path, "list").ok().out
    assert "run" not in listed and "site" in listed


@pytest.mark.peer_ok
def test_attributes_of_what_is_not_there(fs, place, path):
    fs("xattr", f"{place}/missing", "set", "a=b").refused(NOT_FOUND)
    fs("xattr", f"{place}/missing", "list").refused(NOT_FOUND)


def test_a_directory_has_attributes_too(fs, place):
    fs("xattr", place, "set", "policy=keep").ok()
    assert 'policy="keep"' in fs("xattr", place, "list").ok().out


@pytest.mark.peer_ok
def test_flags_of_several_paths(node, fs, place, path):
    with Raw(node.port) as connection:
        assert connection.request(raw.STATX, b"", f"{path}\n{place}\n/".encode()).body == b"\0\2\2"
        assert connection.request(raw.STATX, b"", f"{path}\n{place}/missing".encode()).error == NOT_FOUND


@pytest.mark.peer_ok
def test_attributes_of_what_is_not_there_one_by_one(node, place):
    with Raw(node.port) as connection:
        for operation in (SET, GET, DEL):
            told = fattr(connection, operation, f"{place}/missing".encode(), [b"a", b"b"], [b"1", b"2"] if operation == SET else [])
            assert told.body[:4] == struct.pack(">BBH", 2, 2, NOT_FOUND), operation
        assert fattr(connection, LIST, f"{place}/missing".encode(), []).error == NOT_FOUND


def test_each_attribute_has_its_own_result(remote, path):
    status, results = remote.set_xattr(path, [("a", "1"), ("b", "2")])
    assert status.ok and all(result["ok"] for _, result in results), results
    status, results = remote.get_xattr(path, ["a", "missing", "b"])
    assert status.ok
    assert [(name, value) for name, value, result in results if result["ok"]] == [("a", "1"), ("b", "2")]
    assert [result["errno"] for _, _, result in results if not result["ok"]] == [ATTR_NOT_FOUND]
    status, results = remote.del_xattr(path, ["a", "missing"])
    assert status.ok and [result["ok"] for _, result in results] == [True, False]
    status, listed = remote.list_xattr(path)
    assert status.ok and [(name, value) for name, value, _ in listed] == [("b", "2")]


def test_of_an_open_file(node, path):
    with client.File() as file:
        assert file.open(f"{node.url}{path}", OpenFlags.READ)[0].ok
        status, _ = file.set_xattr([("of", "handle")])
        assert status.errno == raw.INVALID_REQUEST
    with client.File() as file:
        assert file.open(f"{node.url}{path}", OpenFlags.UPDATE)[0].ok
        status, results = file.set_xattr([("of", "handle")])
        assert status.ok and results[0][1]["ok"]
        status, results = file.get_xattr(["of"])
        assert status.ok and results[0][1] == "handle"


def test_they_outlive_a_kill(own_node, tmp_path):
    server = own_node()
    xrdcp(write(tmp_path / "source", "x", 10), f"{server.url}/file").ok()
    remote = client.FileSystem(server.url)
    for number in range(20):
        assert remote.set_xattr("/file", [(f"n{number}", str(number))])[0].ok
    server.kill()
    server.start()
    status, listed = client.FileSystem(server.url).list_xattr("/file")
    assert status.ok and {name: value for name, value, _ in listed} == {f"n{n}": str(n) for n in range(20)}


def fattr(connection: Raw, operation: int, of: bytes, names: list[bytes], values: Sequence[bytes] = (), options: int = 0) -> raw.Answer:
    """`of`: a path, or a handle."""
    handle, path = (bytes(4), of) if of.startswith(b"/") else (of, b"")
    data = path + b"\0" + b"".join(b"\0\0" + name + b"\0" for name in names)
    data += b"".join(len(value).to_bytes(4, "big") + value for value in values)
    return connection.request(raw.FATTR, handle + bytes([operation, len(names), options]), data)


DEL, GET, LIST, SET = range(4)


def test_only_new_ones_on_request(node, path):
    with Raw(node.port) as connection:
        where = path.encode()
        assert fattr(connection, SET, where, [b"once"], [b"1"], options=1).body[:4] == b"\0\1\0\0"
        again = fattr(connection, SET, where, [b"once"], [b"2"], options=1).body
        assert again[0] == 1 and int.from_bytes(again[2:4], "big") == EXISTS
        assert fattr(connection, GET, where, [b"once"]).body.endswith(b"\0\0\0\x011")


@pytest.mark.peer_ok
def test_a_handle_for_reading_changes_no_attributes(node, path):
    with Raw(node.port) as connection:
        assert fattr(connection, SET, path.encode(), [b"run"], [b"1"]).body[:1] == b"\0"
        reads = connection.open(path)
        assert fattr(connection, SET, reads, [b"run"], [b"2"]).error == raw.INVALID_REQUEST
        assert fattr(connection, DEL, reads, [b"run"]).error == raw.INVALID_REQUEST
        assert fattr(connection, GET, reads, [b"run"]).body.endswith(b"\0\0\0\x011")
        assert connection.close(reads).status == raw.OK
        writes = connection.open(path, raw.OPEN_UPDATE)
        assert fattr(connection, SET, writes, [b"run"], [b"3"]).body[:1] == b"\0"
        assert connection.close(writes).status == raw.OK
        assert fattr(connection, GET, path.encode(), [b"run"]).body.endswith(b"\0\0\0\x013")


def test_a_handle_leads_to_its_file_wherever_that_was_moved(node, path):
    """And not to another file that has its old name now."""
    with Raw(node.port) as connection:
        writes = connection.open(path, raw.OPEN_UPDATE)
        moved = f"{path}-moved"
        assert connection.request(raw.MV, struct.pack(">14xH", len(path)), f"{path} {moved}".encode()).status == raw.OK
        other = connection.open(path, raw.OPEN_NEW)
        assert connection.close(other).status == raw.OK
        assert fattr(connection, SET, writes, [b"run"], [b"1"]).body[:1] == b"\0"
        assert connection.close(writes).status == raw.OK
        assert fattr(connection, LIST, path.encode(), []).body == b""
        assert fattr(connection, LIST, moved.encode(), []).body == b"run\0"


def test_attributes_of_a_file_that_nobody_sees_yet_appear_with_it(node, path):
    with Raw(node.port) as connection:
        name = f"{path}-hidden"
        hidden = connection.open(name, raw.OPEN_NEW | POSC)
        assert fattr(connection, SET, hidden, [b"run", b"gone"], [b"1", b"2"]).body[:1] == b"\0"
        assert fattr(connection, SET, hidden, [b"run"], [b"3"], options=1).body[0] == 1
        assert fattr(connection, DEL, hidden, [b"gone"]).body[:1] == b"\0"
        assert fattr(connection, GET, hidden, [b"run", b"gone"]).body[0] == 1
        assert fattr(connection, LIST, hidden, []).body == b"run\0"
        assert fattr(connection, LIST, name.encode(), []).error == NOT_FOUND
        assert connection.close(hidden).status == raw.OK
        assert fattr(connection, LIST, name.encode(), []).body == b"run\0"


@pytest.mark.peer_ok
@pytest.mark.parametrize("flags", [(), ("--posc",)])
def test_xrdcp_takes_attributes_along(node, fs, place, path, flags):
    """Into a new file, and into an existing one."""
    target = f"{place}/taken"
    for run, force in (("4711", ()), ("4712", ("-f",))):
        fs("xattr", path, "set", f"run={run}").ok()
        xrdcp(*force, *flags, "--xattr", f"{node.url}{path}", f"{node.url}{target}").ok()
        assert f'run="{run}"' in fs("xattr", target, "list").ok().out


def test_the_longest_values_come_back_and_longer_ones_are_refused(node, path):
    with Raw(node.port) as connection:
        where, names = path.encode(), [b"%d" % n for n in range(16)]
        values = [bytes([n]) * 65536 for n in range(16)]
        assert fattr(connection, SET, where, names, values).body[:2] == b"\0\x10"
        got = fattr(connection, GET, where, names).body
        assert all(value in got for value in values)
        listed = fattr(connection, LIST, where, [], options=0x10).body
        assert all(value in listed for value in values)
        assert fattr(connection, SET, where, [b"a"], [b"x" * 65537]).error is not None
        assert fattr(connection, GET, where, [b"n" * 249]).error is not None
        assert fattr(connection, GET, where, []).error is not None
        assert connection.stat(where).status == raw.OK


def test_weirs_own_notes_have_no_name_here(node, path, fs):
    """An attribute with such a name belongs to the user."""
    fs("xattr", path, "set", "weir.damaged=no").ok()
    fs("xattr", path, "del", "weir.damaged").ok()
    with Raw(node.port) as connection:
        number = fattr(connection, DEL, path.encode(), [b"weir.damaged"]).body[2:4]
        assert int.from_bytes(number, "big") == ATTR_NOT_FOUND


def test_prepare_and_how_far_it_is(remote, place, path):
    status, answer = remote.prepare([path, f"{place}/missing"], PrepareFlags.STAGE)
    assert status.ok
    request = answer.rstrip(b"\0").decode()
    assert request
    question = "\n".join([request, path, f"{place}/missing", place])
    status, answer = remote.query(QueryCode.PREPARE, question)
    assert status.ok
    told = json.loads(answer.rstrip(b"\0"))
    assert told["request_id"] == request
    there, missing, directory = told["responses"]
    assert (there["path"], there["path_exists"], there["online"], there["error_text"]) == (path, True, True, "")
    assert there["requested"] and there["has_reqid"] and not there["on_tape"]
    assert not missing["path_exists"] and not missing["online"] and "missing" in missing["error_text"]
    assert directory["path_exists"] and not directory["online"]


def test_prepare_by_xrdfs(fs, path):
    fs("prepare", "-s", path).ok()
    fs("prepare", "-e", path).ok()
    fs("prepare", "-a", "weir-0123").ok()
    fs("prepare", "-s", "/a/../b").refused(3010)


def test_the_state_of_a_file_is_an_attribute_that_nobody_can_change(node, fs, place, path):
    assert '"complete"' in fs("xattr", path, "get", "weir.state").ok().out
    with Raw(node.port) as writer:
        handle = writer.open(f"{place}/new", raw.OPEN_NEW | raw.OPEN_UPDATE)
        assert '"being written"' in fs("xattr", f"{place}/new", "get", "weir.state").ok().out
        assert writer.close(handle).status == raw.OK
        handle = writer.open(f"{place}/new", raw.OPEN_UPDATE)
        assert '"being changed"' in fs("xattr", f"{place}/new", "get", "weir.state").ok().out
        assert writer.close(handle).status == raw.OK
    assert '"complete"' in fs("xattr", f"{place}/new", "get", "weir.state").ok().out
    fs("xattr", place, "get", "weir.state").refused(ATTR_NOT_FOUND)
    for change in ("set", "weir.state=complete"), ("del", "weir.state"):
        assert fs("xattr", path, *change).code != 0
    assert "weir.state" not in fs("xattr", path, "list").ok().out
