"""The metrics of a node: /metrics read by Prometheus' own parser, `weir top`, the log as JSON, a reload of the configuration."""

import json
import re
import signal
import socket
import struct
import threading
import time
import urllib.request

import pytest
import raw
from clients import Xrdfs, xrdcp
from content import KIB, MIB, write
from harness import ROOT, until, weir
from prometheus_client.parser import text_string_to_metric_families
from raw import Raw


def metrics_port(server) -> int:
    # Of its last start.
    return int(re.findall(r"metrics on http://127\.0\.0\.1:(\d+)/metrics", server.log_text())[-1])


def fetch(server, path: str = "/metrics") -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port(server)}{path}", timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return answer.read().decode()


def samples(server) -> dict[tuple, float]:
    """Values by name and labels: `("weir_errors_total", ("error", "NotFound"), …)`."""
    families = list(text_string_to_metric_families(fetch(server)))
    names = [family.name for family in families]
    assert len(set(names)) == len(names), "a family comes twice"
    found = {}
    for family in families:
        assert family.type in ("counter", "gauge", "histogram"), family
        assert family.documentation, family
        for sample in family.samples:
            key = (sample.name, *sorted(sample.labels.items()))
            assert key not in found, key
            found[key] = sample.value
    return found


def named(found: dict[tuple, float], name: str, **labels: str) -> float:
    """The sum of all samples with this name and at least these labels."""
    return sum(value for key, value in found.items() if key[0] == name and set(labels.items()) <= set(key[1:]))


@pytest.fixture
def server(own_node):
    return own_node("--metrics", "127.0.0.1:0")


def test_everything_that_happens_is_counted(server, tmp_path):
    before = samples(server)
    source = write(tmp_path / "source", "counted", 3 * MIB)
    xrdcp(source, f"{server.url}/file").ok()
    xrdcp("-f", f"{server.url}/file", tmp_path / "back").ok()
    assert Xrdfs(server.url)("stat", "/missing").error == raw.NOT_FOUND
    with Raw(server.port) as me:
        me.open("/file")
        held = me.open("/new", raw.OPEN_NEW | raw.OPEN_UPDATE)
        assert me.write(held, 0, bytes(100)).status == raw.OK
        for _ in range(50):
            assert me.stat("/file").status == raw.OK

        def alone() -> dict[tuple, float] | None:
            found = samples(server)
            return found if named(found, "weir_connections") == named(found, "weir_sessions") == 1 else None

        # The server has noticed the ends of the other clients.
        now = until(alone, 20)

    def grown(name: str, **labels: str) -> float:
        return named(now, name, **labels) - named(before, name, **labels)

    assert grown("weir_written_bytes_total") >= 3 * MIB + 100
    assert grown("weir_read_bytes_total") >= 3 * MIB
    assert 50 < grown("weir_request_seconds_count", request="stat") < 70
    assert grown("weir_request_seconds_count", request="close") >= 2
    assert grown("weir_request_seconds_sum", request="stat") > 0
    assert grown("weir_errors_total", error="NotFound", number="3011") >= 1
    assert grown("weir_connections_accepted_total") >= 4
    assert grown("weir_journal_sync_seconds_count") >= 1 and grown("weir_journal_sync_seconds_sum") > 0
    assert grown("weir_journal_sync_records_sum") >= 2
    assert grown("weir_commit_operations_sum") >= 2
    assert grown("weir_operations_total", outcome="committed") >= 2
    assert grown("process_cpu_seconds_total") >= 0
    assert (named(now, "weir_open_files"), named(now, "weir_writers"), named(now, "weir_sessions")) == (2, 1, 1)
    assert named(now, "weir_connections") == 1 <= named(now, "weir_connections_limit")
    assert named(now, "weir_writers_memory_bytes") == 384 * KIB
    assert named(now, "weir_transfers_running") == named(now, "weir_transfers_waiting") == 0
    assert 0 < named(now, "weir_space_floor_bytes") <= named(now, "weir_space_free_bytes") < named(now, "weir_space_total_bytes")
    assert abs(named(now, "process_resident_memory_bytes") - server.rss_bytes()) < 32 * MIB
    assert abs(named(now, "weir_start_time_seconds") - time.time()) < 60


def test_histograms_hold_together(server, tmp_path):
    xrdcp(write(tmp_path / "source", "x", MIB), f"{server.url}/file").ok()
    buckets: dict[tuple, list[tuple[float, float]]] = {}
    found = samples(server)
    for key, value in found.items():
        if key[0].endswith("_bucket"):
            labels = dict(key[1:])
            bound = float(labels.pop("le"))
            buckets.setdefault((key[0].removesuffix("_bucket"), *sorted(labels.items())), []).append((bound, value))
    assert len(buckets) >= 6
    for (name, *labels), counts in buckets.items():
        assert counts == sorted(counts), name
        assert [count for _, count in counts] == sorted(count for _, count in counts), name
        assert counts[-1][0] == float("inf") and counts[-1][1] == found[(f"{name}_count", *labels)]


def test_the_documents_list_every_metric(server, tmp_path):
    xrdcp(write(tmp_path / "source", "x", MIB), f"{server.url}/file").ok()
    text, _ = (ROOT / "docs/reference/metrics.md").read_text().split("\n## Nodes of a cluster\n")
    documented = dict(re.findall(r"^\| `((?:weir|process)_\w+)` \| (\w+) \|", text, re.MULTILINE))
    told = dict(re.findall(r"^# TYPE (\w+) (\w+)$", fetch(server), re.MULTILINE))
    assert documented == told


def test_the_number_of_time_series_is_bounded(server):
    """Whatever clients send: labels of kinds and errors come from the protocol."""
    with Raw(server.port) as me:
        for code in [*range(2900, 3100), 0, 65535]:
            if code not in (raw.BIND, raw.SIGVER, raw.AUTH, raw.ENDSESS, raw.READ, raw.WRITE, raw.PGWRITE, raw.WRITEV, raw.CHKPOINT):
                me.send(code)
        me.send(raw.PING)
        time.sleep(1)
    assert len(samples(server)) < 2000


@pytest.mark.parametrize("request_text,status", [("GET / HTTP/1.1", 404), ("POST /metrics HTTP/1.1", 405), ("rubbish", 400)])
def test_other_requests_are_told_so(server, request_text, status):
    with socket.create_connection(("127.0.0.1", metrics_port(server)), timeout=10) as me:
        me.sendall(f"{request_text}\r\n\r\n".encode())
        assert me.recv(1000).startswith(f"HTTP/1.1 {status} ".encode())


def test_slow_visitors_hold_nobody_up(server):
    """Some send nothing, some half a request, some read nothing. Others are answered at once, and these are cut off."""
    port = metrics_port(server)
    stuck = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(40)]
    for number, me in enumerate(stuck):
        if number % 2:
            me.sendall(b"GET /metrics HT")
    begin = time.monotonic()
    for _ in range(5):
        assert "weir_build_info" in fetch(server)
    assert time.monotonic() - begin < 2
    for me in stuck:
        assert me.recv(100) == b"", "it was not cut off"
    assert time.monotonic() - begin < 15


def test_not_for_everybody(tmp_path):
    refused = weir("serve", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--metrics", "0.0.0.0:0")
    assert refused.returncode == 7 and "metrics" in refused.stderr and "--insecure" in refused.stderr, refused
    assert not refused.stdout
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        refused = weir("serve", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--metrics", address)
    assert refused.returncode == 7 and address in refused.stderr and not refused.stdout, refused


def busy(server, until: threading.Event) -> None:
    with Raw(server.port) as me:
        handle = me.open("/file")
        while not until.is_set():
            assert me.read(handle, 0, 8000).status == raw.OK


def test_top_shows_live_rates(server, tmp_path):
    xrdcp(write(tmp_path / "source", "x", MIB), f"{server.url}/file").ok()
    address = f"127.0.0.1:{metrics_port(server)}"
    end = threading.Event()
    load = threading.Thread(target=busy, args=(server, end))
    load.start()
    try:
        shown = weir("top", address, "--once")
        told = weir("top", f"http://{address}/metrics", "--once", "--json", "--interval", "0.5")
    finally:
        end.set()
        load.join()
    assert shown.returncode == 0 and "\x1b" not in shown.stdout, shown
    assert re.search(r"^read +[\d,]+ ", shown.stdout, re.MULTILINE), shown.stdout
    assert "connections 1 of" in shown.stdout and "free of" in shown.stdout
    rates = json.loads(told.stdout)
    read = rates["requests"][0]
    assert read["kind"] == "read" and read["per_second"] > 100, rates
    assert 0 < read["p50_seconds"] <= read["p99_seconds"] < 1
    assert abs(rates["read_bytes_per_second"] / read["per_second"] - 8000) < 800
    assert 0.4 < rates["seconds"] < 5 and rates["connections"] == rates["open_files"] == 1


def test_top_says_what_is_wrong(own_node, tmp_path):
    plain = own_node()
    for target, words in [
        ("nowhere", "HOST:PORT"),
        ("127.0.0.1:1", "--metrics"),
        (f"127.0.0.1:{plain.port}", "metrics"),
    ]:
        failed = weir("top", target, "--once")
        assert failed.returncode in (2, 6) and words in failed.stderr and not failed.stdout, failed


def lines_of(server) -> list[dict]:
    return [json.loads(line) for line in server.log_text().splitlines()]


def test_the_log_as_json(own_node, tmp_path):
    config = tmp_path / "weir.toml"
    config.write_text('log_format = "json"\n')
    server = own_node("--config", str(config))
    with Raw(server.port) as me:
        me.request(2999)
    time.sleep(0.2)
    assert server.stop()[0] == 0
    lines = lines_of(server)
    assert all({"timestamp", "level", "target", "message"} <= line.keys() for line in lines)
    bad = next(line for line in lines if line["message"] == "bad input")
    assert bad["level"] == "WARN" and bad["client"].startswith("raw.4242@127.0.0.1:") and "2999" in bad["reason"]


def until_logged(server, words: str) -> None:
    end = time.monotonic() + 10
    while words not in server.log_text():
        assert time.monotonic() < end, f"not in the log: {words}\n{server.log_text()}"
        time.sleep(0.05)


def reload(server) -> None:
    server.process.send_signal(signal.SIGHUP)


def test_the_configuration_is_read_again(own_node, tmp_path):
    config = tmp_path / "weir.toml"
    config.write_text('log = "info"\n[times]\nrequest = "30s"\n')
    server = own_node("--config", str(config))
    with Raw(server.port) as before:
        config.write_text('log = "debug"\nindex.cache = "33MiB"\nlimits.writers_memory = "1MiB"\n[times]\nrequest = "1s"\n')
        reload(server)
        until_logged(server, "taken over: `log`, `limits.writers_memory`, `times.request`; `index.cache` at the next start only")
        # The log says more now: logins are logged at the level debug.
        with Raw(server.port) as me:
            until_logged(server, "logged in")
            # The memory of writers is less: two of unknown size would need 768 KiB.
            opened = [me.request(raw.OPEN, struct.pack(">HH12x", 0o644, raw.OPEN_NEW | raw.OPEN_UPDATE), b"/%d" % n) for n in range(2)]
            assert [answer.status for answer in opened] == [raw.OK, 4005], opened
        # The server waits for half a request no longer than the new time.
        with Raw(server.port) as me:
            begin = time.monotonic()
            me.socket.sendall(me.frame(raw.STAT, data=b"/")[:10])
            assert me.socket.recv(100) == b"" and 0.5 < time.monotonic() - begin < 5
        assert before.stat("/").status == raw.OK, "who was there goes on"

        # A wrong file changes nothing.
        config.write_text('log = "debug"\nlimits.writers_memory = "1PB"\n')
        reload(server)
        until_logged(server, "nothing was changed")
        assert "weir.toml:2:" in server.log_text()
        config.unlink()
        reload(server)
        until_logged(server, "cannot read the configuration file")
        assert before.stat("/").status == raw.OK and server.alive()


def test_flags_win_over_the_file_also_when_it_is_read_again(own_node, tmp_path):
    config = tmp_path / "weir.toml"
    config.write_text("grace_seconds = 100\n")
    server = own_node("--config", str(config), "--grace-seconds", "1")
    config.write_text("grace_seconds = 200\n")
    reload(server)
    until_logged(server, "the configuration is as it was")
