"""Administration by people with certificates of the grid: which of them give a role, and what is refused."""

import base64
import contextlib
import json
import os
import shutil
import socket
import ssl
from pathlib import Path

import pytest
from authority import Authority
from harness import until
from people import ROLES, Bearer, cluster_of, settings_of, shared_folder, trusted_grid
from proxies import User


@pytest.fixture(scope="module")
def grid(authority, base):
    return trusted_grid(authority, base / "people-certificates-grid")


@pytest.fixture(scope="module")
def settings(authority, issuer, grid):
    return settings_of(authority, issuer, grid)


@pytest.fixture(scope="module")
def site(base, settings):
    with shared_folder() as shared, cluster_of(base, "people-certificates", settings, shared) as site:
        yield site


@pytest.fixture(scope="module")
def users(authority):
    return {name: User(authority, name) for name in ("vera", "ada", "otto", "banned", "nobody", "stolen")}


@pytest.fixture
def holder(site):
    """Somebody on another machine with this proxy."""
    return lambda proxy: Bearer(site, "", X509_USER_PROXY=proxy)


def test_a_certificate_gives_the_role_of_its_principal(site, holder, users):
    store = site.cluster.store_of(site.cluster.disks[0])
    by = {name: holder(users[name].proxy()) for name in ("vera", "ada", "otto")}
    for command in ("status", "stores", "tree list"):
        by["vera"].done(*command.split())
    assert "vera is viewer, and this needs the role operator" in by["vera"].denied("store", "online", store)
    assert "otto has no role, and this needs the role viewer: no [[administrator]]" in by["otto"].denied("stores")
    by["ada"].done("store", "online", store)
    by["ada"].done("identity", "add", "by-certificate")
    line = site.audit('by="ada"', f"put store {store} online", 'outcome="done"', "the certificate /DC=org/DC=example/CN=ada")
    assert "role=admin" in line and "127.0.0.1:" in line, line
    made = until(lambda: [one for one in site.audited("ada") if (one["mechanism"], one["result"]) == ("gsi", "ok")], 10)
    assert made[-1]["credential"] == "admin, the certificate /DC=org/DC=example/CN=ada", made[-1]
    # The certificate alone, where the tools of Globus keep it.
    alone = Bearer(site, "")
    (alone.home / ".globus").mkdir()
    for name, file in (("usercert.pem", users["vera"].certificate), ("userkey.pem", users["vera"].key)):
        shutil.copy2(file, alone.home / ".globus" / name)
    if not Path(f"/tmp/x509up_u{os.geteuid()}").exists():
        alone.done("stores")
    # What the user names goes first, and a token before a certificate.
    by["vera"].token = "not.a.token"
    said = by["vera"].denied("stores")
    assert "has shown the token of BEARER_TOKEN: to show a certificate instead, unset BEARER_TOKEN" in said, said
    said = by["otto"].denied("stores")
    assert "has shown the certificate of X509_USER_PROXY: to show a token instead" in said, said


def test_certificates_count_only_if_the_settings_say_so(site, holder, users, settings):
    vera = holder(users["vera"].proxy())
    vera.done("stores")
    try:
        site.reload(settings(site.socket, certificates=False))
        assert "have no `administration.certificates = true`" in vera.denied("stores")
    finally:
        site.reload(settings(site.socket))
    vera.done("stores")


@pytest.mark.skipif(shutil.which("voms-proxy-fake") is None, reason="needs voms-clients")
def test_a_voms_attribute_gives_the_role_of_its_group(site, holder, users, authority):
    server = authority.issue("voms.example.org", hosts="DNS:voms.example.org")
    store = site.cluster.store_of(site.cluster.disks[0])
    wanda = users["nobody"]
    holder(wanda.voms_proxy(server, "/wlcg/Role=ops", "/wlcg")).done("store", "online", store)
    line = site.audit('by="wanda"', f"put store {store} online", "role=operator")
    assert "CN=nobody" in line, line
    # Without the role in the organization, and with one that another server has signed.
    assert "CN=nobody" in holder(wanda.voms_proxy(server, "/wlcg")).denied("stores")
    stranger = authority.issue("stranger.example.org", hosts="DNS:voms.example.org")
    assert "CN=nobody" in holder(wanda.voms_proxy(stranger, "/wlcg/Role=ops")).denied("stores")


def test_bad_certificates_are_refused_with_the_reason(site, holder, users, authority, grid, settings, tmp_path):
    ada = users["ada"]
    home = tmp_path / "strangers"
    home.mkdir()
    bad = {
        "expired": (ada.proxy(days=-1), "ended"),
        "limited": (ada.proxy("limited"), "the proxy is limited"),
        "as services have it": (ada.proxy(of=ada.proxy()), "a proxy of a proxy"),
        "of a limited one": (ada.proxy(of=ada.proxy("limited")), "the proxy is limited"),
        "banned": (users["banned"].proxy(), "refuse = true"),
        "unknown": (users["nobody"].proxy(), "CN=nobody"),
        "of a stranger": (User(Authority(home, "stranger"), "ada").proxy(), "neither a trusted authority nor in the chain"),
        "gone": (tmp_path / "gone", "cannot read"),
    }
    for name, (proxy, reason) in bad.items():
        one = holder(proxy)
        assert reason in one.denied("status"), name
        one.denied("identity", "add", "mallory")
    assert "mallory" not in site.weir("identity", "list")
    login = site.audited_logins("gsi")
    assert any("CN=nobody" in one["reason"] for one in login) and all(one["result"] == "denied" for one in login), login
    # Somebody whose certificate is revoked while the manager runs.
    stolen = holder(users["stolen"].proxy())
    roles = ROLES + '[[administrator]]\nprincipal = "stolen"\nrole = "admin"\n'
    roles += '[[identity]]\ncertificate = "/DC=org/DC=example/CN=stolen"\nprincipal = "stolen"\n'
    [hashed] = [path.name.removesuffix(".0") for path in grid.joinpath("authorities").glob("*.0")]
    revoked = grid / "authorities" / f"{hashed}.r0"
    try:
        site.reload(settings(site.socket, roles))
        stolen.done("stores")
        revoked.write_text(authority.revoke(users["stolen"].certificate))
        site.reload(settings(site.socket, roles))
        assert "revoked" in stolen.denied("stores")
        holder(ada.proxy()).done("stores")
    finally:
        revoked.unlink(missing_ok=True)
        site.reload(settings(site.socket))


def test_what_is_no_request_with_certificates_does_no_harm(site, holder, users):
    """Over TLS made without weir, by the name in TLS that says what follows."""
    line = site.weir("admin", "authority").split()
    host, _, port = line[line.index("--manager") + 1].rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["weir-admin-certificate-1"])

    def said(sent: bytes) -> bytes:
        with socket.create_connection((host, int(port)), timeout=10) as plain, context.wrap_socket(plain) as tls:
            assert tls.selected_alpn_protocol() == "weir-admin-certificate-1"
            tls.sendall(sent)
            answer = b""
            with contextlib.suppress(OSError):
                while more := tls.recv(4096):
                    answer += more
            return answer

    chain = [base64.b64encode(ssl.PEM_cert_to_DER_cert(users["ada"].certificate.read_text())).decode()]
    request = {"ask": "identity-add", "kind": "user", "name": "mallory"}
    for certificates, signature, reason in (
        (chain, "", b"has not signed this connection"),
        (chain, base64.b64encode(bytes(256)).decode(), b"has not signed this connection"),
        ([], "", b"0 certificates"),
        (chain * 17, "", b"does not understand"),
        (["MAA="], "", b"RSA key"),
        (["!"], "", b"does not understand"),
    ):
        answer = said(json.dumps({"certificates": certificates, "signature": signature, "request": request}).encode() + b"\n")
        assert reason in answer and b'"ok"' not in answer, (certificates, answer)
    for sent in (b"\n", b"{}\n", os.urandom(1000) + b"\n", json.dumps(request).encode() + b"\n"):
        assert b'"ok"' not in said(sent), sent
    holder(users["ada"].proxy()).done("stores")
