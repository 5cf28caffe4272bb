"""A recovering client opens its file again (XrdCl once for each waiting write), and then uses any of the handles. All handles of a session
lead to the one object. If one of them failed to write, no other can close the file as whole."""

import pytest
import raw
from clients import xrdcp
from cluster import Cluster
from content import MIB, content

pytestmark = pytest.mark.managers_ok

NEW = raw.OPEN_NEW | raw.OPEN_UPDATE


@pytest.fixture(scope="module")
def cluster(base):
    with Cluster(base / "opened-twice", 3) as cluster:
        cluster.policy("/two", "replica(2) sync=2")
        cluster.policy("/striped", "stripe(2, 64KiB) near=client")
        yield cluster


def opened(manager: raw.Raw, path: str, options: int) -> tuple[tuple[int, str], str]:
    port, host, opaque = manager.ask_open(path, options).redirect
    return (port, host), f"{path}?{opaque}"


@pytest.mark.parametrize("used", [0, 1, 2])
@pytest.mark.parametrize("folder", ["/two", "/striped"])
def test_each_handle_of_a_session_goes_on(cluster, folder, used, tmp_path):
    path, data = f"{folder}/used{used}", content("twice", 3 * MIB + 5)
    with raw.Raw.to(cluster.manager, machine=cluster.disks[0].host) as manager:
        at, with_permission = opened(manager, path, NEW)
        with raw.Raw(at[0], machine=cluster.disks[0].host, host=at[1]) as there:
            handles = [there.open(with_permission, NEW)]
            assert there.write(handles[0], 0, data[:MIB]).status == raw.OK
            for _ in range(2):
                again, with_permission = opened(manager, path, raw.OPEN_UPDATE)
                assert again == at
                handles.append(there.open(with_permission, raw.OPEN_UPDATE))
            chosen = handles.pop(used)
            assert there.write(chosen, MIB, data[MIB : 2 * MIB]).status == raw.OK
            # The others work as well.
            assert there.write(handles[0], 2 * MIB, data[2 * MIB :]).status == raw.OK
            assert there.close(chosen).status == raw.OK
            for handle in handles:
                assert there.close(handle).status == raw.OK
    xrdcp(cluster.url + path, tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == data


def test_a_session_that_has_lost_the_file_writes_and_closes_nothing(cluster, tmp_path):
    path, data = "/two/taken", content("taken", 2 * MIB)
    with raw.Raw.to(cluster.manager) as manager:
        at, with_permission = opened(manager, path, NEW)
        with raw.Raw(at[0], host=at[1]) as first, raw.Raw(at[0], host=at[1]) as second:
            old = first.open(with_permission, NEW)
            assert first.write(old, 0, data[:MIB]).status == raw.OK
            _, with_permission = opened(manager, path, raw.OPEN_UPDATE)
            new = second.open(with_permission, raw.OPEN_UPDATE)
            assert first.write(old, 0, bytes(MIB)).status == raw.ERROR
            assert second.write(new, MIB, data[MIB:]).status == raw.OK
            assert first.close(old).status == raw.ERROR
            assert second.close(new).status == raw.OK
    xrdcp(cluster.url + path, tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == data


@pytest.mark.parametrize("options", [NEW, raw.OPEN_DELETE | raw.OPEN_UPDATE], ids=["new", "force"])
@pytest.mark.parametrize("folder", ["/two", "/striped"])
def test_a_client_sent_back_by_a_restarted_disk_server_continues_its_own_file(cluster, folder, options, tmp_path):
    path, data = f"{folder}/back{options}", content("back", MIB)
    with raw.Raw.to(cluster.manager) as manager:
        _, with_permission = opened(manager, path, options)
        # Not another client's file, and not without a redirect to it before.
        # An open that replaces the file waits until it is known whether the client that was sent to the server arrives there.
        told = raw.WAIT if options != NEW else raw.ERROR
        with raw.Raw.to(cluster.manager, machine="127.0.0.77") as other:
            assert other.ask_open(with_permission, options).status == told
        assert manager.ask_open(path, options).status == told
        at, with_permission = opened(manager, with_permission, options)
        with raw.Raw(at[0], host=at[1]) as there:
            handle = there.open(path + "?" + with_permission.rpartition("?")[2], options)
            assert there.write(handle, 0, data).status == raw.OK
            assert there.close(handle).status == raw.OK
    xrdcp(cluster.url + path, tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == data
