"""Delegation: a client signs a proxy for the target of a third-party copy, which reads the source with it as the client."""

from pathlib import Path

import pytest
from clients import run
from cluster import Cluster
from content import MIB, write
from gsi_servers import weir_settings
from harness import WEIR_BIN, Weir, remove
from proxies import User
from stock import GsiXrootd

SIZE = 9 * MIB + 17
DELEGATION = 'authentication.gsi_delegation = true\nauthentication.signing = "standard"'
STOCK = ["xrdcp", "-s", "-f", "--tpc", "delegate", "only"]
OURS = [str(WEIR_BIN), "cp", "--quiet", "--force", "--tpc", "--delegate"]
CLIENTS = pytest.mark.parametrize("client", [STOCK, OURS], ids=["xrdcp", "weir"])


@pytest.fixture(scope="module")
def ana(authority):
    return User(authority, "ana")


@pytest.fixture(scope="module")
def keeper(authority):
    return User(authority, "keeper")


@pytest.fixture(autouse=True)
def environment(authority, tmp_path, monkeypatch):
    monkeypatch.setenv("X509_CERT_DIR", str(authority.trusted))
    monkeypatch.setenv("XrdSecPROTOCOL", "gsi")
    # Without it, a client without a proxy asks for a passphrase.
    monkeypatch.setenv("X509_USER_PROXY", str(tmp_path / "none"))


def with_proxy(proxy, *command: str):
    return run(["env", f"X509_USER_PROXY={proxy}", *map(str, command)])


def node(base, authority, name: str, more: str):
    config = base / f"{name}.toml"
    config.write_text(weir_settings(authority, name, more))
    return Weir(base / name, flags=("--config", str(config)))


def shared(port: int, keeper: User) -> str:
    """A directory of that server in which anybody may write, as a URL."""
    url = f"root://localhost:{port}/"
    proxy = keeper.proxy()
    with_proxy(proxy, "xrdfs", url, "mkdir", "/shared").ok()
    with_proxy(proxy, "xrdfs", url, "chmod", "/shared", "rwxrwxrwx").ok()
    return f"{url}/shared"


@pytest.fixture(scope="module")
def made(base):
    """Where a file of the test lies that sources get."""
    return write(base / "delegation-source", "delegated", SIZE)


def put(proxy, source, url: str) -> str:
    with_proxy(proxy, "xrdcp", "-s", "-f", source, url).ok()
    return url


def arrived(proxy, url: str, made, tmp_path) -> None:
    with_proxy(proxy, "xrdcp", "-s", "-f", url, tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == made.read_bytes()


@pytest.fixture
def stock(base, authority):
    """A stock server that lets nobody in but with a certificate, and takes part in no third-party copy by key."""
    with GsiXrootd(base / "delegation-stock", authority) as server:
        yield server
    remove(server.home)


@pytest.fixture
def target(base, authority, keeper):
    with node(base, authority, "delegation-target", DELEGATION) as server:
        server.shared = shared(server.port, keeper)
        yield server
        assert server.alive(), server.log_text()
    remove(server.home)


def keys_in(*places) -> list:
    """Files that have a private key in them."""
    files = [file for place in places for file in ([place] if place.is_file() else place.rglob("*")) if file.is_file()]
    return [file for file in files if b"PRIVATE KEY" in file.read_bytes()]


@CLIENTS
def test_weir_reads_a_stock_source_as_the_client(stock, target, ana, made, tmp_path, client):
    proxy = ana.proxy()
    source = put(proxy, made, f"root://localhost:{stock.port}//file")
    with_proxy(proxy, *client, source, f"{target.shared}/copy").ok()
    arrived(proxy, f"{target.shared}/copy", made, tmp_path)
    assert "fetched path=/shared/copy" in target.log_text()
    # A proxy of a limited proxy is limited, and good enough for storage.
    limited = ana.proxy("limited", of=proxy)
    with_proxy(limited, *client, source, f"{target.shared}/limited").ok()
    # Nothing of it is on the disk or in the log.
    assert keys_in(target.data, target.log) == []


def test_weir_reads_a_weir_source_as_the_client(base, target, authority, ana, keeper, made, tmp_path):
    with node(base, authority, "delegation-weir-source", "") as source:
        proxy = ana.proxy()
        at = shared(source.port, keeper)
        put(proxy, made, f"{at}/file")
        # Only she may read it.
        with_proxy(proxy, "xrdfs", f"root://localhost:{source.port}/", "chmod", "/shared/file", "rw-------").ok()
        with_proxy(proxy, *OURS, f"{at}/file", f"{target.shared}/private").ok()
        arrived(proxy, f"{target.shared}/private", made, tmp_path)
        # Clients of XRootD before 5.6 sign with SHA-1. The target takes that for its own new key; a source of weir does not.
        assert with_proxy(proxy, *STOCK, f"{at}/file", f"{target.shared}/old").code != 0
        assert "it is signed with SHA-1" in source.log_text()
        # Without delegation the target cannot show who it is there.
        assert with_proxy(proxy, "xrdcp", "-s", "-f", "--tpc", "only", f"{at}/file", f"{target.shared}/key").code != 0
    remove(source.home)


def test_a_target_that_does_not_take_proxies_says_so(base, stock, authority, ana, keeper, made):
    with node(base, authority, "delegation-off", "") as off:
        proxy = ana.proxy()
        source = put(proxy, made, f"root://localhost:{stock.port}//file")
        at = shared(off.port, keeper)
        why = with_proxy(proxy, *OURS, source, f"{at}/copy")
        assert why.code != 0 and "does not take a delegated proxy" in why.err, why
        assert with_proxy(proxy, *STOCK, source, f"{at}/copy").code != 0
        # A copy that needs none goes on as before.
        put(proxy, made, f"{at}/ordinary")
    remove(off.home)


def test_weirs_client_delegates_to_a_stock_target(base, stock, authority, ana, made, tmp_path):
    more = "ofs.tpc fcreds gsi =X509_USER_PROXY pgm /usr/bin/xrdcp --server\n"
    with GsiXrootd(base / "delegation-stock-target", authority, "-dlgpxy:request -exppxy:=creds", more) as to:
        proxy = ana.proxy()
        source = put(proxy, made, f"root://localhost:{stock.port}//file")
        target = f"root://localhost:{to.port}//copy"
        for deeper in (proxy, ana.proxy(of=proxy)):
            with_proxy(deeper, *OURS, source, target).ok()
            arrived(deeper, target, made, tmp_path)
    remove(to.home)


@CLIENTS
def test_a_disk_server_of_a_cluster_gets_the_proxy_from_its_manager(base, stock, authority, ana, keeper, made, tmp_path, client):
    name = f"delegation-cluster-{Path(client[0]).name}"
    config = base / f"{name}.toml"
    config.write_text(weir_settings(authority, name, DELEGATION))
    with Cluster(base / name, 2, ("--config", str(config))) as cluster:
        proxy = ana.proxy()
        source = put(proxy, made, f"root://localhost:{stock.port}//file")
        at = shared(cluster.manager.port, keeper)
        with_proxy(proxy, *client, source, f"{at}/copy").ok()
        arrived(proxy, f"{at}/copy", made, tmp_path)
        assert [disk for disk in cluster.disks if "fetched path=/shared/copy" in disk.log_text()]
        for one in cluster.nodes:
            assert one.alive() and "PRIVATE KEY" not in one.log_text(), one.log_text()
        data = [part for disk in cluster.disks for part in (disk.data / "journal", disk.data / "store") if part.exists()]
        assert keys_in(*data, cluster.manager.data / "journal") == []
    remove(cluster.home)


def test_a_client_that_does_not_ask_for_it_delegates_nothing(target, ana, made):
    proxy = ana.proxy()
    put(proxy, made, f"{target.shared}/plain")
    answer = with_proxy(proxy, "xrdfs", f"root://localhost:{target.port}/", "query", "config", "tpcdlg").ok()
    assert answer.out.strip() == "tpcdlg", answer
    delegates = run(
        ["env", f"X509_USER_PROXY={proxy}", "XrdSecGSIDELEGPROXY=1", "xrdfs"]
        + [f"root://localhost:{target.port}/", "query", "config", "tpcdlg"]
    ).ok()
    assert delegates.out.strip() == "gsi", delegates


def test_only_a_protected_client_is_asked(base, authority, ana):
    """Without TLS and without signatures, somebody on the way could have the proxy used for another file."""
    proxy = ana.proxy()
    with node(base, authority, "delegation-plain", "authentication.gsi_delegation = true") as plain:
        for scheme, methods in ("root", "tpcdlg"), ("roots", "gsi"):
            url = f"{scheme}://localhost:{plain.port}/"
            asked = ["env", f"X509_USER_PROXY={proxy}", "XrdSecGSIDELEGPROXY=1", "xrdfs", url, "query", "config", "tpcdlg"]
            assert run(asked).ok().out.strip() == methods
    remove(plain.home)


def test_a_proxy_that_must_not_be_passed_on_is_not(target, stock, authority, ana, made):
    proxy = ana.proxy()
    source = put(proxy, made, f"root://localhost:{stock.port}//file")
    last = ana.proxy(of=proxy, more=",pathlen:0")
    why = with_proxy(last, *OURS, source, f"{target.shared}/last")
    assert why.code != 0 and "pCPathLenConstraint" in why.err, why
    # A stock client signs one all the same, which is refused.
    before = len(target.log_text())
    assert with_proxy(last, *STOCK, source, f"{target.shared}/last").code != 0
    assert "the delegated proxy is not accepted" in target.log_text()[before:]
    with_proxy(last, "xrdfs", f"root://localhost:{target.port}/", "stat", "/").ok()
