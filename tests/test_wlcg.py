"""The cases of the WLCG's compliance tests for tokens (https://github.com/indigo-iam/wlcg-jwt-compliance-tests: audience, basic, path),
with a local issuer and over `root://`. That suite speaks HTTP; its cases of third-party copies are switched off there.

The service trusts its issuer below `/wlcg`, so `storage.read:/` is about `/wlcg`. All tokens are those of one user, who owns nothing.
`/wlcg` is open to the group wlcg, `/wlcg/protected` to the group test and to all others for reading. `old` is a file that is there, `new`
one that is not.

`absent`: the token permits it, and the file is not there. `denied`: the token does not permit it, or lets nobody in.
"""

import itertools
import re
from pathlib import Path

import pytest
from content import write
from issuer import AUDIENCE
from tokenhost import start

NOT_FOUND = 3011
READ, MODIFY, BOTH = "storage.read:/", "storage.modify:/", "storage.read:/ storage.modify:/"
TOKENS = {
    # What the suite calls a minimum privileged token: nothing about storage.
    "minimum": {"scope": "openid"},
    "group": {"scope": None, "wlcg.groups": ["/wlcg"]},
    "test group": {"scope": None, "wlcg.groups": ["/wlcg/test", "/wlcg"]},
    "both": {"scope": BOTH},
    "read": {"scope": READ},
    "modify": {"scope": MODIFY},
    "create": {"scope": "storage.create:/"},
    "openid, read": {"scope": "openid storage.read:/"},
    "other audience": {"scope": READ, "aud": "https://somewhere.example"},
    "two audiences": {"scope": READ, "aud": [AUDIENCE, "https://somewhere.example"]},
    "other audiences": {"scope": READ, "aud": ["https://fake.example:8443", "https://somewhere.example"]},
    "any audience": {"scope": READ, "aud": "https://wlcg.cern.ch/jwt/v1/any"},
    "no audience": {"scope": READ, "aud": None},
    "read /area": {"scope": "storage.read:/area"},
    "modify /area": {"scope": "storage.modify:/area"},
    "read /foobar": {"scope": "storage.read:/area/foobar"},
    "read /foobar/": {"scope": "storage.read:/area/foobar/"},
    "read /foo": {"scope": "storage.read:/area/foo"},
    "read /foo/": {"scope": "storage.read:/area/foo/"},
    "create /foobar": {"scope": "storage.create:/area/foobar"},
    "create /foo": {"scope": "storage.create:/area/foo"},
    "read outside": {"scope": "storage.read:/foobar"},
    "read //..": {"scope": "storage.read:/area/../area/foobar"},
}
TABLE = """
case                                              token            does       path                        outcome

a random audience                                 other audience   read       /wlcg/new                   denied
the right audience                                read             read       /wlcg/new                   absent
the right audience among several                  two audiences    read       /wlcg/new                   absent
several wrong audiences                           other audiences  read       /wlcg/new                   denied
the audience that means any service               any audience     read       /wlcg/new                   absent
no audience                                       no audience      read       /wlcg/new                   denied

no scope of storage, to read                      minimum          read       /wlcg/new                   denied
no scope of storage, to write                     minimum          write      /wlcg/new                   denied
a group, to read                                  group            read       /wlcg/new                   absent
a group, to write                                 group            write      /wlcg/new                   done
modify, to write                                  both             write      /wlcg/new                   done
modify, to delete                                 both             delete     /wlcg/old                   done
modify, to make a directory                       both             mkdir      /wlcg/new                   done
read, to read                                     read             read       /wlcg/new                   absent
read, to write                                    read             write      /wlcg/new                   denied
another scope beside read                         openid, read     read       /wlcg/old                   done
modify does not imply read                        modify           read       /wlcg/old                   denied
create does not imply read                        create           read       /wlcg/old                   denied
create does not overwrite                         create           overwrite  /wlcg/old                   denied
create does not delete                            create           delete     /wlcg/old                   denied
create, to write                                  create           write      /wlcg/new                   done
a group does not write what is protected          group            write      /wlcg/protected/new         denied
a group reads what is protected                   group            read       /wlcg/protected/new         absent
the right group reads what is protected           test group       read       /wlcg/protected/new         absent
the right group writes what is protected          test group       write      /wlcg/protected/new         done
the right group deletes what is protected         test group       delete     /wlcg/protected/old         done

read of a path, outside                           read /area       read       /wlcg/new                   denied
read of a path, inside                            read /area       read       /wlcg/area/new              absent
modify of a path, outside                         modify /area     write      /wlcg/new                   denied
modify of a path, inside                          modify /area     write      /wlcg/area/new              done
read of a directory                               read /foobar     read       /wlcg/area/foobar/old       done
read of the beginning of its name                 read /foo        read       /wlcg/area/foobar/old       denied
create of a directory, to make one in it          create /foobar   mkdir      /wlcg/area/foobar/new       done
create of the beginning of its name               create /foo      mkdir      /wlcg/area/foobar/new       denied
a path that begins elsewhere                      read outside     read       /wlcg/area/foobar/old       denied
a path that is not normalized (RFC 3986)          read //..        read       /wlcg/area/foobar/old       denied
a slash at the end                                read /foobar/    read       /wlcg/area/foobar/old       done
a slash at the end of the beginning of a name     read /foo/       read       /wlcg/area/foobar/old       denied

outside of the issuer's part                      both             read       /elsewhere/old              denied
outside of the issuer's part, to write            both             write      /elsewhere/new              denied
"""
WIDTHS = (50, 17, 11, 28, 10)
ROWS = [
    tuple(line[at : at + width].strip() for at, width in zip(itertools.accumulate((0, *WIDTHS)), WIDTHS, strict=False))
    for line in TABLE.strip().splitlines()[1:]
    if line
]
RULES = """
[[identity]]
ISSUER
group = "/wlcg/test"
principal = "user-{subject}"
groups = ["wlcgtest", "wlcg"]
[[identity]]
ISSUER
principal = "user-{subject}"
groups = ["wlcg"]
"""


class Site:
    """The directories of the table. `/wlcg` and all in it belong to the group wlcg, but `/wlcg/protected`."""

    def __init__(self, host, source: Path):
        self.host, self.source = host, source
        # A group gets its number when somebody who is in it logs in.
        for token in ("group", "test group"):
            self.fs(token, "stat", "/")
        for path, owner, mode in (
            ("/wlcg", "admin:wlcg", "rwxrwxr-x"),
            ("/wlcg/area", "admin:wlcg", "rwxrwxr-x"),
            ("/wlcg/area/foobar", "admin:wlcg", "rwxrwxr-x"),
            ("/wlcg/protected", "admin:wlcgtest", "rwxrwxr-x"),
            ("/elsewhere", "admin:wlcg", "rwxrwxrwx"),
        ):
            host.keeper("xrdfs", host.url, "mkdir", path).ok()
            host.chown(owner, path)
            host.keeper("xrdfs", host.url, "chmod", path, mode).ok()

    def token(self, name: str) -> str:
        claims = dict(TOKENS[name])
        return self.host.issuer.token("somebody", claims.pop("scope"), **claims)

    def fs(self, token: str, *arguments: str):
        return self.host.does(self.token(token), "xrdfs", self.host.url, *arguments)

    def fresh(self, path: str) -> None:
        host = self.host
        host.keeper("xrdfs", host.url, "rm", path)
        host.keeper("xrdfs", host.url, "rmdir", path)
        if path.endswith("/old"):
            host.keeper("xrdcp", "-f", self.source, f"{host.url}/{path}").ok()
            host.chown("admin:wlcg", path)
            host.keeper("xrdfs", host.url, "chmod", path, "rw-rw-r--").ok()

    def does(self, token: str, operation: str, path: str, back: Path):
        there = f"{self.host.url}/{path}"
        match operation:
            case "read":
                return self.host.does(self.token(token), "xrdcp", "-f", there, back)
            case "write":
                return self.host.does(self.token(token), "xrdcp", self.source, there)
            case "overwrite":
                return self.host.does(self.token(token), "xrdcp", "-f", self.source, there)
            case "delete":
                return self.fs(token, "rm", path)
            case "mkdir":
                return self.fs(token, "mkdir", path)
        raise AssertionError(operation)

    def state(self, path: str) -> tuple[int, str]:
        shown = self.host.keeper("xrdfs", self.host.url, "stat", path)
        return shown.code, re.sub(r"(?m)^(Id|ATime).*\n", "", shown.out)


@pytest.fixture(scope="module")
def site(request, base, tmp_path_factory):
    source = write(tmp_path_factory.mktemp("wlcg") / "source", "wlcg", 5000)
    for host in start(request.param, base, 'base_paths = ["/wlcg"]', RULES):
        yield Site(host, source)


def outcome(done) -> str:
    if done.code == 0:
        return "done"
    return "absent" if done.error == NOT_FOUND else "denied"


@pytest.mark.parametrize("site", ["node", "cluster"], indirect=True)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].replace(" ", "-"))
def test_the_table_is_what_happens(site, row, tmp_path):
    _, token, operation, path, expected = row
    site.fresh(path)
    before = site.state(path)
    done = site.does(token, operation, path, tmp_path / "back")
    assert outcome(done) == expected, done
    if expected != "done" or operation == "read":
        assert site.state(path) == before
    if expected == "done" and operation == "read":
        assert (tmp_path / "back").read_bytes() == site.source.read_bytes()
    if expected == "denied":
        assert not (tmp_path / "back").exists()


def test_the_table_is_read_as_it_is_written():
    assert len(ROWS) == 40 and {row[4] for row in ROWS} == {"done", "absent", "denied"}
    assert {row[1] for row in ROWS} == set(TOKENS)
