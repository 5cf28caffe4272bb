"""A disk server without a [[store]] has one store in its data directory. No configuration makes it serve less or another one in silence."""

import pytest
from clients import xrdcp
from cluster import Cluster
from content import write
from harness import remove, until, weir

# The data directory was refused; nothing was touched.
REFUSED = 3


@pytest.fixture
def cluster(base, request):
    with Cluster(base / request.node.name, 1) as made:
        yield made
    remove(made.home)


def with_stores(disk, *folders) -> None:
    config = disk.home / "weir.toml"
    config.write_text("".join(f'[[store]]\ndir = "{folder}"\n' for folder in folders))
    disk.flags = (*disk.flags[:2], "--config", str(config))


def refused(disk) -> str:
    disk.launch()
    assert disk.process.wait(60) == REFUSED, disk.log_text(since_start=True)
    return disk.log_text(since_start=True)


def test_the_store_in_the_data_directory_is_not_left_out_in_silence(cluster, tmp_path):
    (disk,) = cluster.disks
    xrdcp(write(tmp_path / "source", "one", 1000), f"{cluster.url}/file").ok()
    disk.stop()
    second = disk.home / "second"
    with_stores(disk, second)
    words = refused(disk)
    assert str(disk.data / "store") in words and "[[store]]" in words, words
    assert not second.exists(), "nothing was made"
    with_stores(disk, second, disk.data / "store")
    disk.start()
    cluster.wait_sessions()
    assert len(cluster.stores()) == 2
    xrdcp("-f", f"{cluster.url}/file", tmp_path / "back").ok()
    # It is left out when its directory is moved away: on purpose.
    disk.stop()
    (disk.data / "store").rename(disk.home / "aside")
    with_stores(disk, second)
    disk.start()
    cluster.until(lambda: sorted(one["state"] for one in cluster.stores()) == ["offline", "online"])


def test_no_store_is_made_in_place_of_those_that_were_named(cluster):
    (disk,) = cluster.disks
    disk.stop()
    only = disk.home / "only"
    (disk.data / "store").rename(only)
    with_stores(disk, only)
    disk.start()
    cluster.wait_sessions()
    disk.stop()
    with_stores(disk)
    words = refused(disk)
    assert "names no [[store]]" in words, words
    assert not (disk.data / "store").exists()
    with_stores(disk, only)
    disk.start()
    cluster.wait_sessions()
    assert len(cluster.stores()) == 1


def test_a_node_that_has_just_stopped_is_removed_when_its_lease_has_ended(cluster):
    (disk,) = cluster.disks
    number = str(cluster.stores()[0]["node"])
    remove_it = ["node", "remove", number, "--data", cluster.data]
    there = weir(*remove_it)
    assert there.returncode != 0 and "is online: stop it first" in there.stderr, there
    disk.stop()

    def answer():
        # The manager notices a moment later that the connection has ended.
        done = weir(*remove_it)
        return None if "stop it first" in done.stderr else done

    gone = until(answer, 30)
    assert gone.returncode != 0 and "has stopped, and its lease ends within" in gone.stderr, gone
    assert "s: try again then" in gone.stderr, gone
    until(lambda: weir(*remove_it).returncode == 0, 30)
