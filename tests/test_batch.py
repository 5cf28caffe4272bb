"""Small files in batches: hundreds in one request, as `weir cp` sends them to a weir server."""

import json
import re
import subprocess
import threading

from harness import WEIR_BIN, Xrootd, weir
from proxy import DOWN, UP, Proxy
from test_cp import content, files, ok
from test_metrics import samples


def tree_of(place, count, size=4096):
    place.mkdir()
    for number in range(count):
        (place / f"f{number}").write_bytes(content(size + number % 7, number))
    return place


def test_a_server_killed_right_after_it_has_acknowledged_a_batch_has_its_files(own_node, tmp_path):
    """The server is killed while the answer to a batch is on its way: every acknowledged file exists."""
    server, tree = own_node(), tree_of(tmp_path / "tree", 200)
    with Proxy(server.port) as proxy:
        answered = threading.Event()

        def kill(go_on):
            server.kill()
            answered.set()
            go_on()

        def await_answer(go_on):
            # The next bytes are the answer to the batch.
            proxy.at(DOWN, proxy.count[DOWN] + 8 * 200, lambda: kill(lambda: None))
            go_on()

        proxy.when(UP, content(4096, 0)[:100], await_answer)
        command = [WEIR_BIN, "cp", "-j", "1", "-r", str(tree), f"{proxy.url}/up"]
        copy = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert answered.wait(60)
        server.start()
        listed = ok("ls", f"{server.url}/up").split()
        assert len(listed) == 200, "acknowledged, and gone"
        assert copy.communicate(timeout=120)[1] == "" and copy.returncode == 0
    ok("cp", "-r", f"{server.url}/up", tmp_path / "back")
    assert files(tree) == files(tmp_path / "back")


def test_many_small_files_take_few_requests_and_stock_servers_are_sent_none(own_node, base, tmp_path):
    tree, server = tree_of(tmp_path / "tree", 1000), own_node("--metrics", "127.0.0.1:0")
    ok("cp", "-j", "1", "-r", tree, f"{server.url}/many")
    counts = {key: count for key, count in samples(server).items() if key[0] == "weir_request_seconds_count"}
    done = {dict(labels)["request"]: count for (_, *labels), count in counts.items()}
    assert 4 <= done["batch"] <= 40 and "open" not in done, done
    ok("cp", "-r", f"{server.url}/many", tmp_path / "back")
    assert files(tree) == files(tmp_path / "back")
    with Xrootd(base / "no-batches") as stock:
        ok("cp", "-r", tree, f"{stock.url}/many")
        assert files(tree) == files(stock.data / "many")
        assert not re.search("nvalid request|not supported", stock.log_text())


def test_one_file_that_cannot_be_made_does_not_hold_back_the_others(node, tmp_path):
    tree, place = tree_of(tmp_path / "tree", 300), f"{node.url}/one"
    ok("cp", tree / "f1", f"{place}/tree/f7")
    ok("mkdir", f"{place}/tree/f9")
    done = weir("cp", "-r", str(tree), place)
    assert done.returncode != 0, done
    named = {name for name in ("f7", "f9") if f"/tree/{name}" in done.stderr}
    assert named == {"f7", "f9"} and "f8" not in done.stderr, done.stderr
    place += "/tree"
    there = ok("ls", place).split()
    assert len(there) == 300
    ok("cp", "-f", tree / "f7", f"{place}/f7")
    ok("rm", "-r", f"{place}/f9")
    ok("cp", tree / "f9", f"{place}/f9")
    ok("cp", "-r", place, tmp_path / "back")
    assert files(tree) == files(tmp_path / "back")


def test_a_campaign_makes_its_files_in_batches_where_the_system_takes_them(node, tmp_path):
    (tmp_path / "campaign.toml").write_text(f"""
name = "batches"
repeats = 1
[[system]]
name = "weir"
place = "{node.url}/bench"
[[system]]
name = "path"
place = "{tmp_path}"
[[small]]
name = "small"
batch = true
clients = 2
files = 700
least = "0s"
file = "5KiB"
""")
    ok("mkdir", f"{node.url}/bench")
    done = weir("bench", "run", "-q", str(tmp_path / "campaign.toml"), "--results", str(tmp_path / "results"))
    records = [json.loads(line) for line in (tmp_path / "results" / "trials.jsonl").read_text().splitlines()]
    found = {record["system"]: record for record in records if "system" in record}
    assert set(found) == {"weir", "path"}, (done, records)
    # The created files are listed, measured and read back.
    text = json.dumps(found["weir"])
    assert '"failures": {}' in text and '"wrong": 0' in text and text.count('"verified": 7168000') >= 1, text[:3000]
    assert "making files in batches" in json.dumps(found["path"]), found["path"]
