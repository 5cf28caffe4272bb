"""What a cluster's nodes need in memory, how long readers and writers stand still when a server dies, and the rate of a repair."""

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import measure  # noqa: E402
import raw  # noqa: E402
from cluster_rates import add  # noqa: E402
from clusters import DISKS, MIB, Gluster, LocalCluster, forget_most, memory  # noqa: E402
from crowds import allow_descriptors  # noqa: E402
from harness import WEIR_BIN  # noqa: E402
from raw import Raw  # noqa: E402
from recorder import start_writer  # noqa: E402

IDLE, WRITERS = 1000, 40
WRITTEN = 16 * MIB  # by each writer
LONG = 512 * MIB
KILL_AT = LONG // 4
PAUSES = 3
BACK_AFTER = 2  # seconds until a disk server that was killed is started again
REPAIR_RATE = 50 * MIB
REPAIRED_FILES, REPAIRED_SIZE = 50, 16 * MIB


def idle_clients(cluster: LocalCluster, samples: dict) -> None:
    """Bytes that a manager has for each client that has logged in, asked something and is silent."""
    allow_descriptors()
    pid = cluster.pid("manager")
    with ExitStack() as stack:
        # What the first ones make grow is there for all.
        for me in [stack.enter_context(Raw(cluster.port)) for _ in range(50)]:
            assert me.stat("/").status == raw.OK
        time.sleep(1)
        before = memory(pid)
        everybody = [stack.enter_context(Raw(cluster.port)) for _ in range(IDLE)]
        for me in everybody:
            assert me.stat("/").status == raw.OK
        time.sleep(2)
        add(samples, "manager KiB per idle client", (memory(pid) - before) / IDLE / 1024)


def streams_memory(cluster: LocalCluster, samples: dict) -> None:
    """The most that a disk server has had while so many streams wrote to it, for each; written in requests of 8 MiB, all at once. With two
    copies a stream counts at both of its servers."""
    for directory in ("one", "two"):
        measure.run([str(WEIR_BIN), "mkdir", f"{cluster.url}/{directory}/streams"])
        of_streams(cluster, directory, samples)
        measure.run([str(WEIR_BIN), "rm", "-r", f"{cluster.url}/{directory}/streams"])
        measure.settle(cluster.everybody)


def of_streams(cluster: LocalCluster, directory: str, samples: dict) -> None:
    nodes = cluster.nodes
    disks = {node["clients"]: name for name, node in nodes.items() if name != "manager"}
    before = {}
    for name in disks.values():
        forget_most(nodes[name]["pid"])
        before[name] = memory(nodes[name]["pid"], "VmHWM")
    streams, wrong = dict.fromkeys(disks.values(), 0), []
    data, together = bytes(range(256)) * (8 * MIB // 256), threading.Barrier(WRITERS * DISKS)

    def one(number: int) -> None:
        try:
            path = f"/{directory}/streams/{number}"
            with Raw(cluster.port, timeout=60) as door:
                port, host, opaque = door.ask_open(path, raw.OPEN_NEW | raw.OPEN_UPDATE).redirect
            with Raw(port, host=host, timeout=60) as me:
                handle = me.open(f"{path}?{opaque}", raw.OPEN_NEW | raw.OPEN_UPDATE)
                together.wait(60)
                for offset in range(0, WRITTEN, len(data)):
                    assert me.write(handle, offset, data).status == raw.OK
                together.wait(60)
                assert me.close(handle).status == raw.OK
        except Exception as trouble:
            wrong.append(trouble)
            together.abort()

    threads = [threading.Thread(target=one, args=(number,)) for number in range(WRITERS * DISKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise SystemExit(f"streams for the memory of disk servers: {wrong[:3]}")
    grown = {name: memory(nodes[name]["pid"], "VmHWM") - before[name] for name in streams}
    for number in range(WRITERS * DISKS):
        for copy in cluster.asked("file", f"/{directory}/streams/{number}")["object"]["replicas"]:
            streams[copy["location"].rpartition("/")[2]] += 1
    for name, count in streams.items():
        if count:
            add(samples, f"{directory} disk server MiB per stream", grown[name] / count / MIB)
    samples[f"{directory} streams at each disk server"] = [list(streams.values())]
    print("memory", directory, streams, {name: round(size / MIB) for name, size in grown.items()}, flush=True)


class Clock:
    """The longest time between two steps."""

    def __init__(self) -> None:
        self.last, self.longest = time.monotonic(), 0.0

    def step(self) -> None:
        now = time.monotonic()
        self.last, self.longest = now, max(self.longest, now - self.last)


def stepwise(take: Callable[[int], int], kill: Callable[[], None]) -> float:
    """Moves a long file step by step as fast as it goes; somebody is killed on the way. The longest time that a step took."""
    clock, moved, killed = Clock(), 0, False
    while moved < LONG:
        if moved >= KILL_AT and not killed:
            kill()
            killed = True
            clock.last = time.monotonic()
        step = take(moved)
        assert step > 0, f"ended after {moved} bytes"
        moved += step
        clock.step()
    return clock.longest


def connected_to(pid: int, cluster: LocalCluster) -> str:
    """The disk server that a process has a connection with, the first of them."""
    nodes = {node["clients"]: name for name, node in cluster.nodes.items() if name != "manager"}
    end = time.monotonic() + 10
    while time.monotonic() < end:
        sockets = set()
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                sockets.add(os.readlink(entry))
            except FileNotFoundError:
                continue
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            address, port = fields[2].split(":")
            host = socket.inet_ntoa(struct.pack("<I", int(address, 16)))
            if f"socket:[{fields[9]}]" in sockets and f"{host}:{int(port, 16)}" in nodes:
                return nodes[f"{host}:{int(port, 16)}"]
        time.sleep(0.02)
    raise SystemExit("a client is connected to no disk server")


@contextmanager
def victim(cluster: LocalCluster) -> Iterator[Callable[[str], None]]:
    """Kills a disk server; at the end it is started again and has all that it missed."""
    killed: list[str] = []

    def kill(name: str) -> None:
        os.kill(cluster.pid(name), signal.SIGKILL)
        killed.append(name)

    yield kill
    for name in killed:
        if cluster.pid(name) is None:
            cluster.local("start", name)
    cluster.wait_whole()


def our_reader(cluster: LocalCluster, url: str) -> float:
    with victim(cluster) as kill, subprocess.Popen([WEIR_BIN, "cp", "-q", url, "-"], stdout=subprocess.PIPE) as process:
        out = process.stdout
        assert out is not None
        return stepwise(lambda _: len(out.read(MIB)), lambda: kill(connected_to(process.pid, cluster)))


def our_writer(cluster: LocalCluster, url: str) -> float:
    """Its close, until all is durable, is a step as the others."""
    data = os.urandom(MIB)
    with victim(cluster) as kill:
        process = subprocess.Popen([WEIR_BIN, "cp", "-q", "-f", "-", url], stdin=subprocess.PIPE)
        into = process.stdin
        assert into is not None
        longest = stepwise(lambda _: into.write(data), lambda: kill(connected_to(process.pid, cluster)))
        begun = time.monotonic()
        into.close()
        if process.wait(60) != 0:
            raise SystemExit(f"a writer failed when its disk server was killed: {process.returncode}")
        return max(longest, time.monotonic() - begun)


def stock_reader(url: str, kill: Callable[[str], None]) -> float:
    """By the stock client library, at its own settings; `kill` gets where the file is read."""
    from XRootD import client
    from XRootD.client.flags import OpenFlags

    file = client.File()
    status, _ = file.open(url, OpenFlags.READ)  # only who said so is led back to the manager
    assert status.ok, status.message

    def take(at: int) -> int:
        status, data = file.read(at, MIB)
        if not status.ok:
            raise SystemExit(f"the stock reader failed when its server was killed: {status.message}")
        return len(data)

    longest = stepwise(take, lambda: kill(file.get_property("DataServer")))
    file.close()
    return longest


def stock_writer(cluster: LocalCluster, path: str, back_after: float | None) -> tuple[float, bool]:
    """A stock client that writes 1 MiB after the other, told to try again every 2 s for a minute: the longest step, and whether it came to
    its end; else the longest step is the one at which it gave up. Its server comes back after so many seconds, or not."""
    clock, moved = Clock(), 0
    with victim(cluster) as kill:
        writer = start_writer(cluster.url + path, "stock writer", MIB, LONG // MIB)
        assert writer.stdin is not None and writer.stdout is not None
        back = None
        for line in writer.stdout:
            if not line.strip().isdigit():
                break
            clock.step()
            moved = int(line)
            if moved >= KILL_AT and back is None:
                copies = cluster.asked("file", path)["object"]["replicas"]
                name = next(copy["location"].rpartition("/")[2] for copy in copies if copy["replica"] == "primary")
                kill(name)
                clock = Clock()
                back = threading.Timer(back_after or 0, lambda name=name: cluster.local("start", name))
                if back_after is not None:
                    back.start()
            if moved == LONG:
                writer.stdin.write("\n")
                writer.stdin.flush()
        clock.step()
        is_done = writer.wait(60) == 0
        if back_after is not None and back is not None:
            back.join()
    return clock.longest, is_done


def stock_writers(cluster: LocalCluster, samples: dict) -> None:
    """What becomes of a stock writer whose server dies, `replica(2) sync=2`: where that comes back, and where it does not."""
    for number in range(PAUSES):
        pause, is_done = stock_writer(cluster, f"/two/stock-{number}", BACK_AFTER)
        add(samples, "pause of stock writer", pause)
        add(samples, "stock writers that came to their end", float(is_done))
        print("stock writer", number, round(pause, 2), is_done, flush=True)
    pause, is_done = stock_writer(cluster, "/two/stock-without", None)
    if is_done:
        raise SystemExit("a stock writer went on without its server: what is written of it is not true any more")
    add(samples, "stock writer gives up", pause)
    print("stock writer without its server", round(pause, 2), flush=True)


def pauses(cluster: LocalCluster, gluster: Gluster, samples: dict) -> None:
    """`replica(2) sync=2`: the longest time that a client waits for 1 MiB while its disk server is killed; a file of 512 MiB, flat out."""
    with measure.random_source(LONG) as source:
        measure.run([str(WEIR_BIN), "cp", "-q", str(source), f"{cluster.url}/two/long"])
        (gluster.at("replica") / "long").write_bytes(source.read_bytes())
    for number in range(PAUSES):
        add(samples, "pause of our reader", our_reader(cluster, f"{cluster.url}/two/long"))
        add(samples, "pause of our writer", our_writer(cluster, f"{cluster.url}/two/written-{number}"))
        with victim(cluster) as kill:
            told = stock_reader_apart(f"{cluster.url}/two/long", lambda where, kill=kill: kill(cluster.at(where)))
            add(samples, "pause of stock reader", told)
        print("pauses", number, {key: round(value[-1], 2) for key, value in samples.items() if key.startswith("pause")}, flush=True)
    # It loses a brick for good.
    add(samples, "pause of glusterfs", by_path(gluster))
    print("glusterfs", samples["pause of glusterfs"], flush=True)


def stock_reader_apart(url: str, kill: Callable[[str], None]) -> float:
    """In a process of its own, as XrdCl keeps to itself which servers did not answer: it says whom to kill and waits until that is done."""
    with subprocess.Popen([sys.executable, __file__, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        for line in process.stdout:
            word, _, rest = line.strip().partition(" ")
            if word == "kill":
                kill(rest)
                process.stdin.write("\n")
                process.stdin.flush()
            elif word == "longest":
                return float(rest)
    raise SystemExit(f"the stock reader ended with {process.returncode}")


def read_by(pid: int) -> int:
    """Bytes that a process has read, from whatever."""
    return int(Path(f"/proc/{pid}/io").read_text().split()[1])


def by_path(gluster: Gluster) -> float:
    """The brick that is read from is killed for good."""
    bricks = gluster.bricks("replica")
    before = {pid: read_by(pid) for pid in bricks}

    def kill() -> None:
        os.kill(max(bricks, key=lambda pid: read_by(pid) - before[pid]), signal.SIGKILL)

    with open(gluster.at("replica") / "long", "rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return stepwise(lambda _: len(file.read(MIB)), kill)


def repair(cluster: LocalCluster, samples: dict) -> None:
    """A disk server is lost for good; how fast the bytes of its copies appear on the others, from a tenth of them to nine tenths."""
    measure.run([str(WEIR_BIN), "rm", "-r", f"{cluster.url}/two", f"{cluster.url}/one"])
    measure.settle(cluster.everybody)
    cluster.directory("/kept", "replica(2) sync=2 spread=site")
    with measure.random_source(REPAIRED_SIZE) as source:
        for number in range(REPAIRED_FILES):
            measure.run([str(WEIR_BIN), "cp", "-q", str(source), f"{cluster.url}/kept/f{number}"])
    cluster.wait_whole()
    lost = "disk2"
    store = next(one["store"] for one in cluster.asked("stores") if one["location"].endswith(lost))
    cluster.local("kill", lost)
    data, end = str(cluster.home / "manager"), time.monotonic() + 60
    give_up = [str(WEIR_BIN), "repair", "--store", store, "--data", data]
    begin = cluster.contents(lost)
    while subprocess.run(give_up, capture_output=True).returncode:
        assert time.monotonic() < end, "the store is not removed as lost"
        time.sleep(0.3)
    seen, end = [(time.monotonic(), 0)], time.monotonic() + 120
    while not (view := cluster.asked("repair"))["lost"] or view["lost"][0]["groups"] or view["missing"]["count"]:
        assert time.monotonic() < end, f"the repair did not end: {view}"
        seen.append((time.monotonic(), cluster.contents(lost) - begin))
        time.sleep(0.05)
    whole = cluster.contents(lost) - begin
    middle = [(when, size) for when, size in seen if whole / 10 <= size <= whole * 9 / 10]
    (first, least), (last, most) = middle[0], middle[-1]
    add(samples, "repair MiB/s", (most - least) / (last - first) / MIB)
    print("repair", f"{whole / MIB:.0f} MiB, {samples['repair MiB/s'][-1]:.1f} MiB/s over {last - first:.1f} s", flush=True)


def main() -> None:
    """The other side of `stock_reader_apart`."""

    def kill(where: str) -> None:
        print("kill", where, flush=True)
        sys.stdin.readline()

    print("longest", stock_reader(sys.argv[1], kill), flush=True)


if __name__ == "__main__":
    main()
