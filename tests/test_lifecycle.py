"""`weir serve` as its users meet it: starting, errors, ending, its output and its exit codes."""

import os
import signal
import socket
import struct
import subprocess
import time

import pytest
from clients import Xrdfs, start_xrdcp, xrdcp
from content import MIB, write
from harness import WEIR_BIN, StartFailed, Weir, weir
from ports import free_port
from raw import READ, Raw

USAGE, DATA_DIRECTORY, IN_USE, LISTEN = 2, 3, 4, 7


def test_one_line_when_ready(own_node):
    server = own_node()
    assert (server.home / "ready").read_text() == f"weir: ready root://127.0.0.1:{server.port}/\n"
    Xrdfs(server.url)("ls", "/").ok()
    server.stop()
    assert (server.home / "ready").read_text().count("\n") == 1


def test_sigterm_ends_it_cleanly(own_node, tmp_path):
    server = own_node()
    source = write(tmp_path / "source", "term", MIB)
    xrdcp(source, f"{server.url}/file").ok()
    code, seconds = server.stop()
    assert code == 0 and seconds < 10
    server.start()
    xrdcp(f"{server.url}/file", tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == source.read_bytes()


def test_sigterm_in_the_middle_of_work(own_node, tmp_path):
    """Stops within 10 s, whatever the clients do: one uploads, one has requested much and reads nothing, one is idle."""
    server = own_node()
    source = write(tmp_path / "source", "busy", 60 * MIB)
    xrdcp(source, f"{server.url}/old").ok()
    copy = start_xrdcp("--xrate", "5m", source, f"{server.url}/file")
    idle = socket.create_connection(("127.0.0.1", server.port))
    reader = Raw(server.port)
    handle = reader.open("/old")
    for _ in range(100):
        reader.send(READ, handle + struct.pack(">qi", 0, 4 * MIB))
    time.sleep(1.5)
    code, seconds = server.stop()
    assert seconds < 10
    assert code == 0
    copy.kill()
    copy.communicate()
    idle.close()
    reader.socket.close()
    server.start()
    xrdcp(f"{server.url}/old", tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == source.read_bytes()


def test_sigint_is_a_clean_end_too(own_node):
    server = own_node()
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(10) == 0


def test_a_second_server_on_the_same_data_is_refused(own_node, base):
    server = own_node()
    with pytest.raises(StartFailed) as refused:
        Weir(base / "second", data=server.data).start()
    assert refused.value.code == IN_USE
    assert "in use" in refused.value.log and str(server.data) in refused.value.log
    Xrdfs(server.url)("ls", "/").ok()


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_only_loopback_without_authentication(base, address):
    refused = weir("serve", "--data", str(base / "public"), "--listen", address, timeout=20)
    assert refused.returncode == LISTEN
    assert "--insecure" in refused.stderr and "authentication" in refused.stderr
    assert "ready" not in refused.stdout


def test_insecure_must_be_written_out(base):
    """Listens on all addresses only with the flag, and only as long as the test."""
    process = subprocess.Popen(
        [str(WEIR_BIN), "serve", "--data", str(base / "insecure"), "--listen", "127.0.0.1:0", "--insecure"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout.readline().startswith("weir: ready root://127.0.0.1:")
    process.terminate()
    assert process.wait(10) == 0


def test_a_taken_port(own_node, base):
    server = own_node()
    refused = weir("serve", "--data", str(base / "port"), "--listen", f"127.0.0.1:{server.port}", timeout=20)
    assert refused.returncode == LISTEN
    assert str(server.port) in refused.stderr
    assert not (base / "port").exists(), "a start that fails to listen makes nothing"


@pytest.mark.parametrize("flags", [("--metrics",), ("--role", "manager", "--nodes"), ("--role", "manager", "--metrics")])
def test_another_port_that_is_taken(own_node, base, request, flags):
    server, home = own_node(), base / request.node.name
    arguments = [*flags, f"127.0.0.1:{server.port}", "--listen", "127.0.0.1:0"]
    arguments += [] if "--nodes" in flags or "manager" not in flags else ["--nodes", "127.0.0.1:0"]
    refused = weir("serve", "--data", str(home), *arguments, timeout=20)
    assert refused.returncode == LISTEN and str(server.port) in refused.stderr, refused.stderr
    assert not home.exists()


def test_ipv6_loopback(base):
    port = free_port()
    process = subprocess.Popen(
        [str(WEIR_BIN), "serve", "--data", str(base / "v6"), "--listen", f"[::1]:{port}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout.readline() == f"weir: ready root://[::1]:{port}/\n"
    Xrdfs(f"root://[::1]:{port}/")("ls", "/").ok()
    process.terminate()
    assert process.wait(10) == 0


@pytest.mark.parametrize(
    "line,nearest", [("grace_secnds = 5", "grace_seconds"), ("lisen = '127.0.0.1:0'", "listen"), ("dta = '/x'", "data")]
)
def test_an_unknown_key_names_the_nearest(base, line, nearest):
    config = base / "wrong.toml"
    config.write_text(line + "\n")
    refused = weir("serve", "--data", str(base / "config"), "--config", str(config), timeout=20)
    assert refused.returncode == USAGE
    assert f"{nearest}" in refused.stderr and line.split()[0] in refused.stderr and str(config) in refused.stderr
    assert not (base / "config").exists(), "nothing is touched before the configuration is right"


@pytest.mark.parametrize("text", ["grace_seconds = 'soon'", "grace_seconds = -1", "not toml at all [", "listen = 5"])
def test_a_wrong_value_is_named(base, text):
    config = base / "value.toml"
    config.write_text(text + "\n")
    refused = weir("serve", "--data", str(base / "config"), "--config", str(config), timeout=20)
    assert refused.returncode == USAGE
    assert str(config) in refused.stderr


@pytest.mark.parametrize(
    "text,code",
    [
        ("grace_seconds = 5", 0),
        ("grace_seconds = 'soon'", USAGE),
        ("log = 'a=b=c'", USAGE),
        ("listen = '0.0.0.0:1094'", LISTEN),
        ("metrics.listen = '127.0.0.1:9100'", 0),
        ("metrics.listen = '0.0.0.0:9100'", LISTEN),
        ("metrics.listen = '9100'", USAGE),
        ("metrics.listen = '0.0.0.0:9100'\ninsecure = true", 0),
    ],
)
def test_a_configuration_is_checked_without_being_used(base, text, code):
    config = base / "checked.toml"
    config.write_text(text + "\n")
    checked = weir("serve", "--check", "--existing", "--data", str(base / "config"), "--config", str(config), timeout=20)
    assert (checked.returncode, checked.stdout, bool(checked.stderr)) == (code, "", code != 0), checked


def test_a_missing_configuration_file(base):
    refused = weir("serve", "--data", str(base / "config"), "--config", str(base / "missing.toml"), timeout=20)
    assert refused.returncode == USAGE and "missing.toml" in refused.stderr


def test_flags_win_over_the_file(own_node, base):
    config = base / "flags.toml"
    config.write_text(f"listen = '127.0.0.1:{free_port()}'\n")
    server = own_node("--config", str(config))
    assert server.url != config.read_text()
    Xrdfs(server.url)("ls", "/").ok()


def test_a_directory_with_other_things_is_not_taken(base):
    """A mistaken path, such as somebody's home directory, is left alone."""
    other = base / "somebody"
    other.mkdir()
    (other / "thesis.tex").write_text("years of work")
    refused = weir("serve", "--data", str(other), "--listen", "127.0.0.1:0", timeout=20)
    assert refused.returncode == DATA_DIRECTORY
    assert sorted(os.listdir(other)) == ["thesis.tex"]


def test_a_data_directory_of_another_version_is_refused(own_node):
    server = own_node()
    server.stop()
    form = server.data / "FORMAT"
    text = form.read_text()
    assert any(character.isdigit() for character in text)
    form.write_text("".join("9" if character.isdigit() else character for character in text))
    with pytest.raises(StartFailed) as refused:
        server.start()
    assert refused.value.code == DATA_DIRECTORY and "FORMAT" in refused.value.log


def test_everything_is_there_after_many_starts(own_node, tmp_path):
    server = own_node()
    for number in range(6):
        source = write(tmp_path / "source", f"start {number}", 10 ** (number + 1))
        xrdcp(source, f"{server.url}/file{number}").ok()
        if number % 2:
            server.kill()
            server.start()
        else:
            server.restart()
    assert [Xrdfs(server.url).size(f"/file{number}") for number in range(6)] == [10 ** (n + 1) for n in range(6)]
    server.stop()
    checked = weir("fsck", "--data", str(server.data))
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_help_and_version():
    assert "serve" in weir("--help").stdout and "Exit codes" in weir("serve", "--help").stdout
    assert weir("--version").returncode == 0
    assert weir("serve", "--no-such-flag").returncode == USAGE
    assert weir("nonsense").returncode == USAGE
