"""A server that moves the bytes of a striped file waits for other servers, and for itself. It holds no transfer slot meanwhile."""

import raw
from clients import xrdcp
from cluster import Cluster
from content import MIB, content, write
from test_clone import NEW, clone


def test_a_clone_takes_no_transfer_slots_from_readers_and_writers_of_its_units(base, tmp_path):
    (base / "turns.toml").write_text("[limits]\ntransfers = 1\n")
    with Cluster(base / "turns", 2, ("--config", str(base / "turns.toml"))) as cluster:
        cluster.policy("/striped", "stripe(2, 64KiB) near=client")
        xrdcp(write(tmp_path / "source", "turns", 3 * MIB), f"{cluster.url}/striped/source").ok()
        disk = cluster.disks[0]
        with raw.Raw.to(cluster.manager, machine=disk.host) as manager, raw.Raw(disk.port, machine=disk.host, host=disk.host) as there:

            def opened(path: str, options: int) -> bytes:
                port, host, opaque = manager.ask_open(path, options).redirect
                assert (host, port) == (disk.host, disk.port)
                return there.open(f"{path}?{opaque}", options)

            source, target = opened("/striped/source", raw.OPEN_READ), opened("/striped/target", NEW)
            assert clone(there, target, (source, 0, 3 * MIB, 0)).status == raw.OK
            assert there.close(target).status == raw.OK
        xrdcp(f"{cluster.url}/striped/target", tmp_path / "back").ok()
        assert (tmp_path / "back").read_bytes() == content("turns", 3 * MIB)
