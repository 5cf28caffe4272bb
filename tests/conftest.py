"""Fixtures: a running server, a directory of its own on it for each test, and the choice of server (`--peer`, `--managers`)."""

import functools
import os
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path

import cluster
import pytest
from authority import Authority
from clients import Xrdfs
from harness import WEIR_BIN, Defaults, Server, Weir, Xrootd, remove
from issuer import Issuer
from managers import Managers, ManagersServer
from patroni import Patroni
from postgres import Postgres
from wheel import Environment, make_wheel
from xdist.scheduler import LoadScopeScheduling


def pytest_addoption(parser):
    parser.addoption("--peer", action="store_true", help="run the tests marked peer_ok against a stock xrootd instead of weir")
    parser.addoption("--managers", action="store_true", help="run the tests marked managers_ok on clusters of three managers on PostgreSQL")
    parser.addoption("--keep", action="store_true", help="keep the servers' data and logs")


def pytest_configure(config):
    # Stock clients look up the names of addresses. If a resolver loses a query, each such process waits for five seconds.
    os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:2")
    config.addinivalue_line("markers", "peer_ok: also true for a stock xrootd")
    config.addinivalue_line("markers", "managers_ok: also true on a cluster of three managers, where clients have a standby's address")
    if config.getoption("--managers"):
        cluster.Cluster = Managers  # before the tests import it
    config.addinivalue_line("markers", "alone: it measures times or rates, or something that all share: nothing may run beside it")
    config.addinivalue_line("markers", "paced: it measures a rate or times that it has set: only a few of its kind may run beside it")
    config.addinivalue_line(
        "markers",
        "long: it needs long and changes seldom, or repeats others at greater length: `make soak` runs it, and `make test` does not",
    )
    config.addinivalue_line("markers", "together: the tests of this file may not run at the same time")
    file = os.environ.get("WEIR_TEST_TIMES")
    if file and not hasattr(config, "workerinput"):  # parallel runs report all of their tests to the first process
        config.pluginmanager.register(Times(file))


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--peer") and not WEIR_BIN.exists():
        pytest.exit(f"{WEIR_BIN} is missing: `make build` first, or name another with WEIR_BIN", returncode=3)
    marks = [mark for option, mark in (("--peer", "peer_ok"), ("--managers", "managers_ok")) if config.getoption(option)]
    if not marks:
        return
    fit = [item for item in items if all(item.get_closest_marker(mark) for mark in marks)]
    config.hook.pytest_deselected(items=[item for item in items if item not in fit])
    items[:] = fit


@pytest.fixture(scope="session")
def base(request):
    """The folder of all servers in this run. WEIR_TEST_DIR can put it on a real disk. It is accessible to other users."""
    path = Path(tempfile.mkdtemp(prefix="weir-test-", dir=os.environ.get("WEIR_TEST_DIR")))
    path.chmod(0o755)
    yield path
    if request.config.getoption("--keep"):
        print(f"kept: {path}")
    else:
        remove(path)


@pytest.fixture(scope="module")
def authority(request, base):
    """A certificate authority for the tests of a file."""
    home = base / f"{request.module.__name__}-authority"
    home.mkdir()
    return Authority(home)


@pytest.fixture(scope="module")
def issuer(request, authority, base):
    """An issuer of tokens for the tests of a file."""
    home = base / f"{request.module.__name__}-issuer"
    home.mkdir()
    issuer = Issuer(home, authority.issue("issuer"))
    yield issuer
    issuer.stop()


@pytest.fixture(scope="module", autouse=True)
def defaults(request):
    Defaults.without_recent = getattr(request.module, "WITHOUT_RECENT", False)
    Defaults.shipped_sizes = getattr(request.module, "SHIPPED_SIZES", False)


@pytest.fixture(scope="module", autouse=True)
def leaves_nothing(base, request):
    """Removes what the tests of a file have left in the folder of the servers: together, they would fill the disk."""
    yield
    if not request.config.getoption("--keep"):
        for left in base.iterdir():
            remove(left) if left.is_dir() else left.unlink()


@pytest.fixture(scope="session")
def environment(tmp_path_factory):
    """An environment in which the Python package is installed."""
    return Environment(tmp_path_factory.mktemp("python") / "venv", make_wheel())


@pytest.fixture(scope="session")
def package(environment):
    """The installed package, imported here. A process can do that once, so the tests of all files share it."""
    sys.path.insert(0, str(environment.packages))
    try:
        import weir

        assert weir.__file__.startswith(str(environment.packages))
        yield weir
    finally:
        sys.path.remove(str(environment.packages))


@pytest.fixture(scope="session")
def kind(request) -> type[Server]:
    if request.config.getoption("--managers"):
        return ManagersServer
    return Xrootd if request.config.getoption("--peer") else Weir


def _name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", text)[-80:].strip("_")


@pytest.fixture(scope="module")
def node(kind, base, request):
    """One server for all tests of a file that do not disturb it."""
    with kind(base / _name(request.module.__name__)) as server:
        yield server
        assert server.alive(), "the server died"
    if not request.config.getoption("--keep"):
        remove(server.home)


@pytest.fixture(scope="module", params=["node", "cluster"])
def node_or_manager(request, tmp_path_factory):
    """A node, and the manager of a cluster of two disk servers, to which it redirects."""
    home = tmp_path_factory.mktemp(request.param) / "home"
    if request.param == "node":
        with Weir(home).start() as node:
            yield node
    else:
        with cluster.Cluster(home, 2) as made:
            yield made.manager


@pytest.fixture
def without_batches(base, request):
    """A server with too little memory of writers for batches, so that small files are opened, written and closed one by one."""
    home = base / f"{_name(request.node.name)}-one-by-one"
    home.mkdir()
    (home / "weir.toml").write_text('[limits]\nwriters_memory = "8MiB"\n')
    started = []

    def start(*flags: str) -> Weir:
        started.append(Weir(home, flags=("--config", str(home / "weir.toml"), *flags)))
        return started[-1].start()

    yield start
    for server in started:
        assert server.alive(), "the server died"
        server.kill()
    if not request.config.getoption("--keep"):
        remove(home)


@pytest.fixture
def own_node(kind, base, request):
    """A server for one test to disturb: `own_node("--grace-seconds", "1")` starts it."""
    started = []

    def start(*flags: str, data: Path | None = None) -> Server:
        server = kind(base / f"{_name(request.node.name)}-{len(started)}", data, flags)
        started.append(server)
        return server.start()

    yield start
    for server in started:
        if server.alive():
            server.kill()
    if not request.config.getoption("--keep"):
        for server in started:
            remove(server.home)


@pytest.fixture
def fs(node) -> Xrdfs:
    return Xrdfs(node.url)


@pytest.fixture
def place(node, fs, request) -> str:
    """An empty directory on the server for this test, `/test_x`."""
    path = "/" + _name(request.node.name)
    fs("mkdir", path).ok()
    return path


class Scheduling(LoadScopeScheduling):
    """Distributes the tests of a parallel run. The tests of a file stay together, in their order, if the file makes a fixture for several
    of them, such as a cluster. All others go one by one to the next free process: a node of one's own is quickly made."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if stays_together(self.config.rootpath / file) else nodeid


@functools.cache
def stays_together(file: Path) -> bool:
    return re.search(r'scope="(module|session)"|pytest\.mark\.together', file.read_text()) is not None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log) -> Scheduling:
    return Scheduling(config, log)


class Times:
    """The time of each test with its fixtures. At the end they are added to a file, one `SECONDS NAME` a line."""

    def __init__(self, file: str):
        self.file, self.seconds = file, Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        with open(self.file, "a") as file:
            file.writelines(f"{seconds:.1f} {name}\n" for name, seconds in self.seconds.items())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Adds the ends of the servers' logs to a failed test."""
    report = yield
    if report.failed:
        servers = [value for value in getattr(item, "funcargs", {}).values() if isinstance(value, Server | Postgres | Patroni)]
        for server in servers:
            report.sections.append((f"log of {server.home}", server.log_text()[-4000:]))
    return report
