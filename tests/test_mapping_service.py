"""The external mapping service: who clients are that no rule knows. The service is a small server of this file."""

import json
import re
import socket
import ssl
import struct
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import raw
from authority import Authority
from clients import run
from harness import weir
from issuer import AUDIENCE, Issuer
from ports import free_port

NOT_NOW = 3012  # kXR_ServerError: the client may try again


class MappingService:
    """Serves on a port of this machine until `stop`. `answer` gets the question, and returns a body, or a status and a body."""

    def __init__(self, answer, tls=None, port: int = 0):
        self.asked: list[dict] = []
        self.heads: list[dict] = []
        self.at_once = self.most_at_once = 0
        self.lock = threading.Lock()
        self.answer = answer
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with service.lock:
                    service.asked.append(json.loads(body))
                    service.heads.append({"path": self.path, **{name.lower(): value for name, value in self.headers.items()}})
                    service.at_once += 1
                    service.most_at_once = max(service.most_at_once, service.at_once)
                try:
                    said = service.answer(json.loads(body))
                    with service.lock:
                        service.at_once -= 1
                    status, said = said if isinstance(said, tuple) else (200, said)
                    sent = said if isinstance(said, bytes) else json.dumps(said).encode()
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(sent)))
                    if status in (301, 302, 307):
                        self.send_header("Location", sent.decode())
                    self.end_headers()
                    self.wfile.write(sent)
                except OSError:
                    self.close_connection = True

            def log_message(self, *_):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_):
                pass

        self.server = Server(("127.0.0.1", port), Handler)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self.server.server_port
        self.url = f"{'https' if tls else 'http'}://localhost:{self.port}/map"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def by_name(question: dict) -> dict:
    """Everybody gets a name of the service, but for one."""
    if question["subject"] == "eve":
        return {"refused": "eve left the site"}
    groups = [group.strip("/") for group in question["groups"] if group != "root"]
    return {"principal": f"site-{question['subject']}", "groups": ["site", *groups]}


RULES = """
[[identity]]
local_user = "keeper"
principal = "admin"
[[identity]]
local_user = "banned"
refuse = true
"""


@pytest.fixture
def served(own_node, tmp_path):
    def start(url: str, more: str = "", keep: str = "60s"):
        config = tmp_path / "weir.toml"
        config.write_text(
            f'authentication.mechanisms = ["unix"]\nauthentication.mapping_service = "{url}"\n'
            f'authentication.mapping_service_keep = "{keep}"\n{more}{RULES}'
        )
        return own_node("--config", str(config), "--metrics", "127.0.0.1:0")

    return start


def log_in(node, user: str, group: str = "", machine: str = "127.0.0.1") -> raw.Answer:
    with raw.Raw(node.port, login=False, machine=machine) as client:
        client.handshake()
        client.request(raw.LOGIN, struct.pack(">i8sBBBB", 7, b"x", 0, 0, 5, 0))
        return client.request(raw.AUTH, bytes(12) + b"unix", f"unix\0{user}{' ' + group if group else ''}\0".encode())


def users(node) -> str:
    return weir("identity", "list", "--data", str(node.data)).stdout


def test_the_service_says_who_a_client_is_that_no_rule_knows(served):
    with MappingService(by_name) as service:
        node = served(service.url)
        assert log_in(node, "ana", "atlas").status == raw.OK
        assert service.asked == [
            {
                "version": 1,
                "credential": "local_user",
                "subject": "ana",
                "issuer": None,
                "secret": None,
                "groups": ["atlas"],
                "client": "127.0.0.1",
            }
        ]
        head = service.heads[0]
        assert head["path"] == "/map" and head["content-type"] == "application/json" and head["host"] == f"localhost:{service.port}"
        assert "site-ana" in users(node)
        groups = weir("identity", "list", "--group", "--data", str(node.data)).stdout
        assert "site" in groups and "atlas" in groups, groups
        # The stock client, with what it says about itself.
        run(["env", "XrdSecPROTOCOL=unix", "xrdfs", node.url, "stat", "/"]).ok()
        assert len(service.asked) == 2


def test_rules_come_first(served):
    with MappingService(lambda _: {"principal": "everybody"}) as service:
        node = served(service.url)
        assert log_in(node, "keeper").status == raw.OK
        refused = log_in(node, "banned")
        assert "refuse = true" in refused.text
        assert service.asked == []
        assert log_in(node, "ana").status == raw.OK and "everybody" in users(node)


def test_a_refusal_has_the_reason_of_the_service(served):
    with MappingService(by_name) as service:
        node = served(service.url)
        for _ in range(3):
            answer = log_in(node, "eve")
            assert "the mapping service refuses the local user `eve`: eve left the site" in answer.text
        assert len(service.asked) == 1, "refusals are kept as well"
        assert "eve" not in users(node)


def test_answers_are_kept_for_a_time(served):
    with MappingService(by_name) as service:
        node = served(service.url, keep="2s")
        for _ in range(4):
            assert log_in(node, "ana").status == raw.OK
            assert "eve" in log_in(node, "eve").text
        assert len(service.asked) == 2
        # Other groups are another question.
        assert log_in(node, "ana", "atlas").status == raw.OK
        assert len(service.asked) == 3
        service.answer = lambda question: {"refused": "closed"}
        assert log_in(node, "ana").status == raw.OK
        time.sleep(2.2)
        assert "closed" in log_in(node, "ana").text
        assert len(service.asked) == 4


def test_a_service_that_is_away_lets_nobody_in(served):
    port = free_port()
    node = served(f"http://127.0.0.1:{port}/map", keep="1s")
    for _ in range(5):
        answer = log_in(node, "ana")
        assert answer.error == NOT_NOW and "mapping service gives no answer" in answer.text, answer
        assert str(port) not in answer.text, "a stranger does not learn where it is"
    assert log_in(node, "keeper").status == raw.OK
    log = node.log.read_text()
    assert log.count("the mapping service gives no answer; clients") == 1 and str(port) in log, log
    with MappingService(by_name, port=port):
        time.sleep(2.2)
        assert log_in(node, "ana").status == raw.OK
        assert node.log.read_text().count("answers again") == 1
    time.sleep(1.2)
    assert log_in(node, "ana").error == NOT_NOW
    figures = metrics(node)
    assert figures["mapped"] == 1 and figures["failed"] >= 6 and figures["refused"] == 0, figures


def metrics(node) -> dict[str, int]:
    port = re.findall(r"metrics on http://127\.0\.0\.1:(\d+)/metrics", node.log_text())[-1]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as page:
        found = re.findall(r'weir_mapping_service_logins_total\{result="(\w+)"\} (\d+)', page.read().decode())
    return {result: int(count) for result, count in found}


def test_a_slow_service_holds_up_nobody_else(served):
    release = threading.Event()

    def slowly(question):
        if question["subject"] == "slow":
            release.wait(30)
        return by_name(question)

    with MappingService(slowly) as service:
        node = served(service.url)
        began = time.monotonic()
        waiting = threading.Thread(target=lambda: answers.append((log_in(node, "slow"), time.monotonic() - began)))
        answers = []
        waiting.start()
        time.sleep(0.5)
        assert log_in(node, "ana").status == raw.OK and log_in(node, "keeper").status == raw.OK
        assert time.monotonic() - began < 4
        waiting.join()
        release.set()
        answer, took = answers[0]
        assert answer.error == NOT_NOW and 4 < took < 9, answers
        # What one client has shown does not keep others out.
        assert log_in(node, "ben").status == raw.OK


def test_questions_at_once_are_bounded(served):
    def answer(question):
        time.sleep(0.3)
        return by_name(question)

    with MappingService(answer) as service:
        node = served(service.url)
        answers = []
        ask = lambda number: answers.append(log_in(node, f"u{number}", machine=f"127.0.0.{number % 8 + 1}"))  # noqa: E731
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(48)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [answer for answer in answers if answer.status != raw.OK] == []
        assert service.most_at_once == 16
        # Clients with the same question wait for one answer to it, as far as there is no room for them.
        service.asked.clear()
        threads = [threading.Thread(target=lambda: answers.append(log_in(node, "same"))) for _ in range(48)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [answer for answer in answers if answer.status != raw.OK] == []
        assert len(service.asked) <= 16


def test_clients_at_one_address_keep_out_no_others(served):
    release = threading.Event()

    def answer(question):
        if question["client"] == "127.0.0.2":
            release.wait(30)
        return by_name(question)

    with MappingService(answer) as service:
        node = served(service.url)
        threads = [threading.Thread(target=log_in, args=(node, f"u{number}", "", "127.0.0.2")) for number in range(40)]
        for thread in threads:
            thread.start()
        time.sleep(1)
        assert service.most_at_once == 4
        began = time.monotonic()
        assert log_in(node, "ana").status == raw.OK
        assert time.monotonic() - began < 2
        release.set()
        for thread in threads:
            thread.join()


def test_a_service_that_hangs_before_it_is_asked_is_not_asked_again_at_once(served, tmp_path):
    (tmp_path / "site").mkdir()
    site = Authority(tmp_path / "site")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        node = served(f"https://localhost:{silent.getsockname()[1]}/map", f'authentication.ca = "{site.home / "ca.pem"}"\n')
        began = time.monotonic()
        assert log_in(node, "ana").error == NOT_NOW and time.monotonic() - began > 4
        began = time.monotonic()
        assert log_in(node, "ben").error == NOT_NOW and time.monotonic() - began < 1


def test_a_service_that_breaks_the_connection_when_it_is_asked_is_asked_by_others(served, tmp_path):
    (tmp_path / "site").mkdir()
    site = Authority(tmp_path / "site")

    def answer(question):
        if question["subject"] == "ana":
            raise ConnectionAbortedError
        return by_name(question)

    with MappingService(answer, tls=site.issue("service")) as service:
        node = served(service.url, f'authentication.ca = "{site.home / "ca.pem"}"\n')
        assert log_in(node, "ana").error == NOT_NOW
        assert log_in(node, "ben").status == raw.OK


@pytest.mark.parametrize(
    "said",
    [
        (500, {"principal": "ana"}),
        (404, b""),
        (201, {"principal": "ana"}),
        (302, b"http://localhost:1/other"),
        b"",
        b"principal: ana",
        b"[]",
        {},
        {"principal": "ana", "refused": "both"},
        {"principal": "admin"},
        {"principal": "ROOT"},
        {"principal": "ana", "groups": ["admin"]},
        {"principal": "a b"},
        {"principal": "1000"},
        {"principal": ["ana"]},
        {"principal": "ana", "groups": ["g"] * 300},
        {"principal": "ana", "more": "x" * 200_000},
    ],
    ids=lambda said: str(said)[:40],
)
def test_an_answer_that_is_none_lets_nobody_in(served, said):
    with MappingService(lambda _: said) as service:
        node = served(service.url)
        answer = log_in(node, "ana")
        assert answer.error == NOT_NOW, answer
        # It is not kept, and does not stop the next question.
        service.answer = by_name
        assert log_in(node, "ana").status == raw.OK
        assert len(service.asked) == 2
        assert "no answer" in node.log.read_text() and "admin" not in users(node).split("number")[-1]


def test_the_service_is_believed_over_https_only_with_a_certificate_of_the_site(served, tmp_path):
    for name in ("site", "other"):
        (tmp_path / name).mkdir()
    site, other = Authority(tmp_path / "site"), Authority(tmp_path / "other", "other")
    trust = f'authentication.ca = "{site.home / "ca.pem"}"\n'
    with MappingService(by_name, tls=site.issue("service")) as service:
        node = served(service.url, trust)
        assert log_in(node, "ana").status == raw.OK
    for wrong in (other.issue("service"), site.issue("elsewhere", "DNS:elsewhere.example")):
        with MappingService(by_name, tls=wrong) as service:
            node = served(service.url, trust)
            assert log_in(node, "ana").error == NOT_NOW
            assert service.asked == [] and "certificate" in node.log.read_text()


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ('authentication.mapping_service = "http://authz.example.org/"', "https"),
        ('authentication.mapping_service = "http://127.0.0.1.example.org/"', "https"),
        ('authentication.mapping_service = "authz.example.org"', "https"),
        ('authentication.mapping_service = "https://authz.example.org/"\nidentity_default = "guest"', "identity_default"),
        ('authentication.mapping_service = "https://authz.example.org/"\nauthentication.mapping_service_keep = "2d"', "1 d"),
    ],
)
def test_a_service_that_cannot_be_used_is_refused(tmp_path, more, why):
    config = tmp_path / "weir.toml"
    config.write_text(f'authentication.mechanisms = ["unix"]\n{more}\n')
    done = weir("serve", "--check", "--config", str(config), "--data", str(tmp_path / "data"))
    assert done.returncode != 0 and why in done.stderr, done


def test_weir_identity_test_asks_the_service(tmp_path):
    (tmp_path / "site").mkdir()
    site = Authority(tmp_path / "site")
    issuer = Issuer(tmp_path, site.issue("issuer"))
    certificate, key = site.issue("node")
    config, token = tmp_path / "weir.toml", tmp_path / "token"
    token.write_text(issuer.token("ana", **{"wlcg.groups": ["/atlas"]}))
    with MappingService(by_name) as service:
        config.write_text(
            f'tls.certificate = "{certificate}"\ntls.key = "{key}"\nauthentication.mechanisms = ["ztn"]\n'
            f'authentication.ca = "{site.home / "ca.pem"}"\nauthentication.mapping_service = "{service.url}"\n'
            f'[[issuer]]\nurl = "{issuer.url}"\nbase_paths = ["/"]\naudiences = ["{AUDIENCE}"]\ngroups = "always"\n'
            f'[[identity]]\nissuer = "{issuer.url}"\nsubject = "keeper"\nprincipal = "admin"\n'
        )
        ask = ("identity", "test", "--config", str(config), str(token))
        done = weir(*ask, "--from", "192.0.2.7")
        assert done.returncode == 0, done
        assert "ok    identity   no [[identity]] matches: the mapping service is asked" in done.stdout, done.stdout
        assert "ok    service    principal site-ana, groups site, atlas, by the mapping service" in done.stdout, done.stdout
        question = service.asked[0]
        assert (question["credential"], question["issuer"], question["client"]) == ("token", issuer.url, "192.0.2.7")
        token.write_text(issuer.token("eve"))
        done = weir(*ask)
        assert done.returncode != 0 and "FAIL  service    the mapping service refuses" in done.stdout, done
        assert service.asked[1]["client"] is None
        token.write_text(issuer.token("keeper"))
        assert "[[identity]] number 1" in weir(*ask).stdout and len(service.asked) == 2
    token.write_text(issuer.token("ana"))
    done = weir(*ask)
    assert done.returncode != 0 and "FAIL  service    the mapping service gives no answer: cannot connect" in done.stdout, done
    issuer.stop()
