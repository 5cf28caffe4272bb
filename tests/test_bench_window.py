"""weir bench with an automatic window: as many requests under way as a path needs."""

import json
import queue
import socket
import threading
import time

from proxy import Proxy
from test_bench_report import bench, valid

AUTO = """
name = "windows"
repeats = 1
[[system]]
name = "distant"
place = "{distant}"
[[system]]
name = "disk"
place = "{disk}"
[[streams]]
name = "large"
phases = ["write", "read", "rewrite"]
file = "4MiB"
block = "64KiB"
window = [1, "auto"]
"""
ONE_WAY_SECONDS = 0.02
# The most that the driver has under way.
WINDOW_MAX = 64


class Distant(Proxy):
    """A server at the end of a long path: all that is on the way arrives later, and nothing waits for what is before it."""

    def _pump(self, source, sink, direction):
        line: queue.Queue = queue.Queue()

        def arrive() -> None:
            while (item := line.get()) is not None:
                due, data = item
                time.sleep(max(0.0, due - time.monotonic()))
                try:
                    sink.sendall(data)
                except OSError:
                    return

        arriving = threading.Thread(target=arrive, daemon=True)
        arriving.start()
        try:
            while data := source.recv(1 << 18):
                line.put((time.monotonic() + ONE_WAY_SECONDS, data))
        except OSError:
            pass
        line.put(None)
        arriving.join()
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def only(requests: int) -> dict[str, int]:
    return {"least": requests, "most": requests}


def test_an_automatic_window_keeps_a_long_path_busy_and_is_recorded(node, place, fs, tmp_path):
    fs("mkdir", f"{place}/auto").ok()
    (tmp_path / "disk").mkdir()
    file, results = tmp_path / "campaign.toml", tmp_path / "results"
    with Distant(node.port) as proxy:
        file.write_text(AUTO.format(distant=f"{proxy.url}{place}/auto", disk=tmp_path / "disk"))
        summary = json.loads(bench("run", file, "--results", results, "--json").stdout)
    valid(summary, "summary")
    found = {(cell["system"], row["phase"], dict(row["parameters"])["window"]): cell for row in summary["rows"] for cell in row["cells"]}
    assert len(found) == 12 and not any(cell["failed"] for cell in found.values())
    for phase in ("write", "read"):
        one, auto = (found["distant", phase, window] for window in ("1", "auto"))
        # One round trip for each request, against one for all.
        assert one["median"] < 65536 / (2 * ONE_WAY_SECONDS)
        assert auto["median"] > 3 * one["median"], (phase, auto["median"], one["median"])
        assert auto["auto_window"] == only(WINDOW_MAX)
    # Where the driver has one request under way, the window has no effect.
    assert found["distant", "rewrite", "auto"]["auto_window"] == found["disk", "read", "auto"]["auto_window"] == only(1)
    assert not any("auto_window" in cell for (_, _, window), cell in found.items() if window == "1")
    report = bench("report", results).stdout
    assert f"{WINDOW_MAX} requests allowed under way on a file" in report and "1 request allowed under way on a file" in report
    trials = [json.loads(line) for line in (results / "trials.jsonl").read_text().splitlines()]
    for trial in trials:
        valid(trial, "trial")
        is_fixed = dict(trial["parameters"])["window"] == "1"
        assert all(("auto_window" in phase["measured"]["tally"]) != is_fixed for phase in trial["phases"])


def test_an_invalid_window_is_refused(tmp_path):
    file, text = tmp_path / "campaign.toml", AUTO.format(distant=tmp_path, disk=tmp_path)
    for wrong, said in (('"fast"', 'expected a window: a number of requests, or "auto"'), ("0", "window is 0; give at least 1")):
        file.write_text(text.replace('[1, "auto"]', wrong))
        assert said in bench("run", file, "--dry-run", code=2).stderr
