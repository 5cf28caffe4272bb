"""weir's own client goes to another disk server if the one in the redirect cannot be reached, or has a damaged replica."""

import os

import pytest
from cluster import Cluster, Node
from harness import weir
from ports import free_port
from test_damage import PAGE, flip, places_of

pytestmark = pytest.mark.managers_ok

WITHOUT_RECENT = True

MIB = 1 << 20


class HalfReached(Cluster):
    """Clients of the first disk server are sent to an address where nobody listens; its manager does not know that."""

    def __init__(self, home, disks):
        super().__init__(home, disks)
        first = self.disks[0]
        first.flags = (*first.flags, "--advertise", f"{first.host}:{free_port(first.host)}")


@pytest.fixture
def cluster(base, request):
    kind = request.param
    with kind(base / request.node.name, 2) as cluster:
        cluster.policy("/", "replica(2) sync=2 near=client")
        yield cluster


half_reached = pytest.mark.parametrize("cluster", [HalfReached], indirect=True)
all_reached = pytest.mark.parametrize("cluster", [Cluster], indirect=True)


def near(cluster: Cluster, disk: Node, path: str) -> str:
    """A file, as requested by a client on the disk server's host."""
    return f"{cluster.url}{path}?weir.location=site{cluster.disks.index(disk) % 2 + 1}/rack1/disk{cluster.disks.index(disk) + 1}"


def cp(*arguments) -> str:
    done = weir("cp", *map(str, arguments))
    assert done.returncode == 0, done.stderr
    return done.stderr


@half_reached
def test_an_open_goes_on_where_a_server_can_be_reached(cluster, tmp_path):
    cluster.policy("/", "replica(2) sync=2")
    source, back, sent_on = tmp_path / "source", tmp_path / "back", set()
    for number, size in enumerate((1000, 5 * MIB) * 4):
        source.write_bytes(os.urandom(size))
        # Half of them try the first server first. Its result must not block the retry.
        sent_on.add("cannot connect" in cp("--log", "info", source, f"{cluster.url}/file{number}"))
        assert cluster.file(f"/file{number}")["object"]["state"] == "complete"
        for disk in cluster.disks:
            cp("-f", near(cluster, disk, f"/file{number}"), back)
            assert back.read_bytes() == source.read_bytes()
    assert sent_on == {True, False}


@half_reached
def test_a_unit_whose_address_refuses_connections_is_read_elsewhere(cluster, tmp_path):
    cluster.policy("/", "stripe(2, 64KiB) replica(2) sync=2")
    source, back, sent_on = tmp_path / "source", tmp_path / "back", 0
    source.write_bytes(os.urandom(3 * MIB))
    cp(source, f"{cluster.url}/file")
    for _ in range(8):
        sent_on += "cannot connect" in cp("--log", "info", "-f", f"{cluster.url}/file", back)
        assert back.read_bytes() == source.read_bytes()
    assert sent_on > 0


@half_reached
def test_a_client_that_cannot_reach_the_preferred_server_goes_elsewhere(cluster, tmp_path):
    source, back = tmp_path / "source", tmp_path / "back"
    source.write_bytes(os.urandom(1000))
    assert "cannot connect" in cp("--log", "info", source, near(cluster, cluster.disks[0], "/file"))
    cp("-f", near(cluster, cluster.disks[0], "/file"), back)
    assert back.read_bytes() == source.read_bytes()


@half_reached
def test_a_file_that_can_be_made_nowhere_else_is_not_reported_as_taken(cluster, tmp_path):
    """The reachable server accepts nothing new."""
    cluster.policy("/", "replica(1)")
    cluster.weir("store", "read-only", cluster.store_of(cluster.disks[1]), "--data", cluster.data)
    (tmp_path / "source").write_bytes(os.urandom(1000))
    done = weir("cp", "--retry-for", "2", str(tmp_path / "source"), f"{cluster.url}/file")
    assert done.returncode == 15 and "cannot connect" in done.stderr, done


@all_reached
def test_a_damaged_page_is_read_from_another_copy(cluster, tmp_path):
    source, back = tmp_path / "source", tmp_path / "back"
    first, second = cluster.disks

    def write(path: str) -> bytes:
        data = os.urandom(9 * MIB + 5)
        source.write_bytes(data)
        cp(source, near(cluster, first, path))
        return data

    def damage(disk: Node, data: bytes, at: int) -> None:
        (place,) = places_of(disk.data, data[at : at + PAGE])
        flip(place[0], place[1] + 1000)

    data = write("/one-damaged")
    damage(first, data, 3 * MIB)
    said = cp("--log", "info", "-f", near(cluster, first, "/one-damaged"), back)
    assert back.read_bytes() == data and "which other server has it" in said, said
    # Each replica has a damaged page that is good in the other, so that repair can replace neither.
    data = write("/file")
    damage(first, data, 3 * MIB)
    damage(second, data, 7 * MIB)
    for disk in cluster.disks:
        said = cp("--log", "info", "-f", near(cluster, disk, "/file"), back)
        assert back.read_bytes() == data and "which other server has it" in said, said
    damage(second, data, 3 * MIB)
    for disk in cluster.disks:
        done = weir("cp", "-f", near(cluster, disk, "/file"), str(back))
        assert done.returncode != 0 and "checksum" in done.stderr.lower() and "/file" in done.stderr, done
        assert back.read_bytes() == data, "what was there stays"
