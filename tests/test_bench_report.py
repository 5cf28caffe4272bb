"""The reports of weir bench: the page, the tables, the schema, the verdicts, the comparison of two runs."""

import csv
import html.parser
import json
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree
from pathlib import Path

import jsonschema
import pytest
from harness import ROOT, WEIR_BIN

SCHEMA = json.loads((ROOT / "docs/reference/bench-schema.json").read_text())
EVIL = "<script>alert('x')</script>&"

CAMPAIGN = """
name = "{evil}"
repeats = 6
[[system]]
name = "disk"
place = "{place}/disk"
[[system]]
name = "{evil}"
place = "{place}/other"
[[streams]]
name = "large"
phases = ["write", "reread"]
file = "4MiB"
block = "256KiB"
streams = 2
[[streams]]
name = "paced"
phases = ["write"]
file = "8MiB"
block = "256KiB"
rate = "4MiB"
durability = "none"
[[small]]
name = "small"
least = "0s"
clients = 2
files = 20
file = "1000B"
one_directory = [false, true]
[[client]]
name = "client"
threads = 1
block = "256KiB"
seconds = 1
work = ["make"]
"""


def bench(*arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess:
    done = subprocess.run([WEIR_BIN, "bench", *map(str, arguments)], capture_output=True, text=True, timeout=200)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    """A run on two folders of this machine."""
    place = tmp_path_factory.mktemp("report")
    for name in ("disk", "other"):
        (place / name).mkdir()
    (place / "campaign.toml").write_text(CAMPAIGN.format(evil=EVIL, place=place))
    bench("run", place / "campaign.toml", "--results", place / "results")
    return place / "results"


def valid(value: object, kind: str) -> None:
    jsonschema.Draft202012Validator({"$ref": f"#/$defs/{kind}", "$defs": SCHEMA["$defs"]}).validate(value)


def cells(summary: dict) -> dict[tuple[str, str, str], dict]:
    return {(row["work"], row["phase"], cell["system"]): cell for row in summary["rows"] for cell in row["cells"]}


def test_all_that_is_written_follows_the_schema(results):
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    run = json.loads((results / "run.json").read_text())
    valid(run, "run")
    trials = [json.loads(line) for line in (results / "trials.jsonl").read_text().splitlines()]
    assert len(trials) == 6 * (2 * 4 + 1)
    for trial in trials:
        valid(trial, "trial")
    summary = json.loads((results / "summary.json").read_text())
    valid(summary, "summary")
    assert summary == json.loads(bench("report", results, "--json").stdout)
    # The schema refuses unknown keys.
    with pytest.raises(jsonschema.ValidationError):
        valid({**run, "surprise": 1}, "run")
    # Each value agrees with its source.
    for row in summary["rows"]:
        for cell in row["cells"]:
            assert len(cell["sources"]) == len(cell["values"]) == 6
            for source in cell["sources"]:
                trial = trials[source["trial"]]
                assert (trial["system"], trial["work"]) == (cell["system"], row["work"])
                assert trial["phases"][source["phase"]]["phase"] == row["phase"]


class Page(html.parser.HTMLParser):
    """Tags, attributes and text of a page; wrongly nested tags are an error."""

    VOID = {"meta", "br", "hr"}

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, tag

    def handle_data(self, data):
        self.text += data


def test_the_page_stands_alone_and_texts_stay_texts(results):
    text = (results / "report.html").read_text()
    page = Page(text)
    assert "script" not in page.tags and EVIL in page.text
    links = [value for name, value in page.attributes if name in ("src", "href") and not value.startswith("#")]
    figures = sorted(f"figures/{file.name}" for file in (results / "figures").iterdir())
    assert sorted(links) == [*figures, "table.csv"]
    assert not any(name.startswith("on") for name, _ in page.attributes)
    assert "@import" not in text and "url(" not in text
    # The machines and the overview come first.
    assert page.text.index("Machines") < page.text.index("Overview") < page.text.index("All repeats")
    assert Path("/proc/sys/kernel/osrelease").read_text().strip() in page.text[: page.text.index("Overview")]
    for part in (
        "All repeats",
        "Latency",
        "is bounded by",
        "Flags of figures",
        "All figures",
        "The campaign",
        "Settings of the machine",
    ):
        assert part in page.text, part
    assert page.tags.count("svg") > 10
    # It can be made again from the trials alone.
    (results / "report.html").unlink()
    bench("report", results)
    assert (results / "report.html").read_text() == text


def test_each_figure_is_a_file_that_stands_alone(results):
    figures = {file.name: file.read_text() for file in (results / "figures").iterdir()}
    page = (results / "report.html").read_text()
    assert len(figures) == page.count("<figure>") and "overview.svg" in figures
    # Names of files have what varies in the campaign.
    assert "large_write_repeats.svg" in figures and "small_directories-one_create_latency.svg" in figures, sorted(figures)
    for name, text in figures.items():
        root = xml.etree.ElementTree.fromstring(text)
        assert root.tag == "{http://www.w3.org/2000/svg}svg" and re.fullmatch(r"[A-Za-z0-9_-]+\.svg", name)
        tags = {element.tag.split("}")[1] for element in root.iter()}
        assert tags <= {"svg", "title", "style", "rect", "path", "polyline", "text"}, (name, tags)
        attributes = {attribute for element in root.iter() for attribute in element.attrib}
        assert not any(attribute.startswith("on") or "href" in attribute for attribute in attributes), (name, attributes)
        assert "var(" not in text and "url(" not in text and "@import" not in text
    # A report that is made again has the same files. It removes figures that it no longer has, and nothing else.
    (results / "figures/own.svg").write_text("<svg/>")
    (results / "figures/old.svg").write_text(figures["overview.svg"])
    bench("report", results)
    again = {file.name: file.read_text() for file in (results / "figures").iterdir()}
    assert again.pop("own.svg") == "<svg/>" and again == figures
    (results / "figures/own.svg").unlink()


def test_the_table_has_a_line_for_each_figure(results):
    lines = list(csv.DictReader((results / "table.csv").open(newline="")))
    found = cells(json.loads((results / "summary.json").read_text()))
    assert len(lines) == 2 * (2 + 1 + 2 * 5) + 1
    large = {(line["phase"], line["system"]): line for line in lines if line["work"] == "large"}
    for phase in ("write", "reread"):
        line, cell = large[phase, EVIL], found["large", phase, EVIL]
        assert float(line["median"]) == cell["median"] and float(line["low"]) == cell["interval"]["low"]
        assert line["unit"] == "B/s" and int(line["p99_us"]) == cell["latency_us"][1] and line["bound_by"] == cell["verdict"]["bound"]


def test_what_bounded_figures_and_what_speaks_against_them_is_told(results):
    found = cells(json.loads((results / "summary.json").read_text()))
    for system in ("disk", EVIL):
        paced = found["paced", "write", system]
        assert paced["verdict"]["bound"] == "asked-rate" and "%" in paced["verdict"]["evidence"]
        assert paced["median"] == pytest.approx(4 << 20, rel=0.1)
        # 8 MiB without durability fit into any memory; durable ones show the disk.
        assert "fits-memory" in paced["flags"] and "fits-memory" not in found["large", "write", system]["flags"]
        assert "fits-memory" in found["large", "reread", system]["flags"]
        # Between two folders of one machine durability is equal.
        assert "unequal-durability" not in paced["flags"]
    assert found["client", "make", "this client"]["verdict"]["bound"] == "generator"
    table = bench("report", results).stdout
    assert "bounded by the requested rate (disk, " in table and "[m]" in table


def test_the_machine_is_told_without_its_names_and_addresses(results):
    run = json.loads((results / "run.json").read_text())
    settings = run["machine"]
    assert settings["kernel"] == Path("/proc/sys/kernel/osrelease").read_text().strip()
    assert settings["sysctl vm.swappiness"] == Path("/proc/sys/vm/swappiness").read_text().strip()
    assert settings["mount of disk"].split()[1].startswith(("rw", "ro"))
    total = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    assert run["memory_bytes"] == int(total.split()[1]) * 1024
    text = json.dumps(settings)
    secrets = [Path("/etc/machine-id"), Path("/sys/class/dmi/id/product_uuid"), *Path("/sys/class/net").glob("*/address")]
    for file in secrets:
        try:
            secret = file.read_text().strip()
        except OSError:
            continue
        assert not secret or secret == "00:00:00:00:00:00" or secret not in text, file


def changed(results: Path, to: Path, factor: float, governor: str) -> Path:
    """The same run on a machine with another governor, where writing large files takes `factor` times as long."""
    shutil.copytree(results, to)
    run = json.loads((to / "run.json").read_text())
    run["machine"]["cpu scaling governor"] = governor
    (to / "run.json").write_text(json.dumps(run))
    trials = [json.loads(line) for line in (to / "trials.jsonl").read_text().splitlines()]
    for trial in trials:
        for phase in trial["phases"]:
            if (trial["work"], phase["phase"], trial["system"]) == ("large", "write", "disk"):
                phase["measured"]["wall_s"] *= factor
    (to / "trials.jsonl").write_text("".join(json.dumps(trial) + "\n" for trial in trials))
    return to


def test_two_runs_are_compared_with_what_may_explain_the_difference(results, tmp_path):
    first = changed(results, tmp_path / "first", 1, "performance")
    slow = changed(results, tmp_path / "slow", 50, "powersave")
    same = bench("compare", first, first)
    assert "0 are certainly slower and 0 certainly faster" in same.stdout and "Machine settings" not in same.stdout
    worse = bench("compare", first, slow, code=1)
    assert "certainly slower" in worse.stdout and "cpu scaling governor: performance -> powersave" in worse.stdout
    better = bench("compare", slow, first)
    assert "0 are certainly slower and 1 certainly faster" in better.stdout
    found = json.loads(bench("compare", first, slow, "--json", code=1).stdout)
    valid(found, "difference")
    assert found["settings"] == [{"name": "cpu scaling governor", "first": "performance", "second": "powersave"}]
    slower = [row for row in found["rows"] if row["ratio"]["interval"]["high"] < 1]
    assert [(row["work"], row["phase"], row["system"]) for row in slower] == [("large", "write", "disk")]
    assert slower[0]["ratio"]["ratio"] == pytest.approx(1 / 50, rel=0.9)


def test_what_cannot_be_compared_is_refused(results, tmp_path):
    assert "run.json" in bench("compare", results, tmp_path, code=2).stderr
    other = tmp_path / "other"
    shutil.copytree(results, other)
    (other / "trials.jsonl").write_text("")
    refused = bench("compare", results, other, code=2)
    assert "no row in common" in refused.stderr
    # The reason comes last, and the list of the rows before it is short.
    said = refused.stdout.splitlines()
    assert "no row in common" in said[-1] and "Only in the first:" in said and len(said) < 20, said


def test_a_reader_that_closes_early_is_no_error(results):
    file = ROOT / "testdata/root/uproot-Zmumu.root"
    for arguments in (["report", results], ["compare", results, results], ["root-file", file], ["root-file", file, "--json"]):
        reading, writing = os.pipe()
        os.close(reading)
        done = subprocess.run([WEIR_BIN, "bench", *map(str, arguments)], stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60)
        os.close(writing)
        assert (done.returncode, done.stderr) == (0, ""), (arguments, done)
