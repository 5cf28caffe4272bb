#!/usr/bin/env python3
"""Makes a first corpus, of the recorded frames where it is about frames: seeds.py TARGET FOLDER."""

import base64
import hashlib
import pathlib
import random
import sys

frames = pathlib.Path(__file__).parent.parent / "crates/wire/tests/frames"
target, folder = sys.argv[1], pathlib.Path(sys.argv[2])
folder.mkdir(parents=True, exist_ok=True)


def keep(seed):
    if seed:
        (folder / hashlib.sha1(seed).hexdigest()).write_bytes(seed)


for file in frames.glob("*.frames"):
    stream = b""
    for line in file.read_text().splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "connection":
            keep(stream and target == "stream" and b"\x07" + stream)
            stream = b""
        if kind in "CS" and len(rest) > 40:
            frame = bytes.fromhex(rest)
            if kind == "C" and target == "requests":
                keep(frame)
            if kind == "S" and target == "responses":
                keep(frame)
                keep(frame[8:])
            if kind == "C" and target == "opaque":
                keep(frame[24:])
            if kind == "C" and target == "stream":
                stream += frame
if target == "pages":
    for offset, length in [(0, 4096), (100, 10240), (4095, 2), (1 << 62, 5000), (8191, 0)]:
        keep(offset.to_bytes(8, "big") + length.to_bytes(8, "big") + bytes(range(256)) * (length // 256))
if target == "sessions":  # each byte is a choice: any bytes are a good beginning; few, as each takes up to 2 s of the time that there is
    for number in range(20):
        keep(random.Random(number).randbytes(1500))
if target == "node_frames":
    shapes = [(1, 7, 5, 4096, 77), (2, 7, 5, 1, 0), (3, 0, 1, 0, 0), (4, 0, 0, 0, 0), (5, 0, 9, 0, 0), (6, 7, 0, 0, 0)]
    for kind, request, message, bulk, answer in shapes:
        numbers = b"".join(number.to_bytes(4, "little") for number in (message, bulk, answer, 0))
        keep(b"WEIR" + bytes([kind, 0, 0, 0]) + request.to_bytes(8, "little") + numbers)
    keep((b"weirnode" + bytes([1, 0, 1, 0]) + bytes(24) + bytes([2, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4])).ljust(88, b"\0"))
if target == "capability":
    for length in (2, 40, 352, 353):
        keep((bytes(range(256)) * 2)[:length])
if target == "token":
    head = b'{"iss": "https://a.example", "sub": "ana", "aud": "https://se.example", "exp": 2000000000, "iat": 1700000000, '
    keep(head + b'"wlcg.ver": "1.0", "scope": "openid storage.read:/a storage.create:/b/", "wlcg.groups": ["/wlcg"]}')
    keep(head + b'"ver": "scitoken:2.0", "scope": "read:/a write:/b"}')
    keep(b"eyJhbGciOiJFUzI1NiIsImtpZCI6ImEifQ.eyJpc3MiOiJodHRwczovL2EuZXhhbXBsZSJ9.AAAA")
    ec = b'{"kty": "EC", "crv": "P-256", "kid": "a", "x": "AAAA", "y": "AAAA"}'
    rsa = b'{"kty": "RSA", "kid": "b", "n": "AAAA", "e": "AQAB"}'
    keep(b'{"keys": [' + ec + b", " + rsa + b"]}")
    keep(b'{"issuer": "https://a.example", "jwks_uri": "https://a.example/jwks"}')
if target == "scopes":
    for scope in (b"storage.read:/foo//bar/", b"storage.create:/a%20b/%2e storage.modify:/c", b"storage.stage:/ compute.create"):
        keep(b"/base/foo/bar\0" + scope)
if target == "acl":
    keep(b"muser:7:rw-,group:ana:r-x,default:user:8:rwx\0xuser:7\0ru::rwx,g::5,o::-,m:x,d:o:r # all\0c\0m\nd:g:atlas:rx\n")
if target == "secret":
    secret = b"00112233445566778899aabbccddeeff"
    keep(b"0 u:ana g:atlas n:fts N:7713673796607016962 c:1795979635 e:1795979700 f:0 k:" + secret + b"\n1 N:1 e:0 k:" + secret)
    keep(b"sss\0\0\0\x080" + (1).to_bytes(8, "big") + b"a".ljust(8, b"\0") + bytes(range(128)))
    keep(b"ana\natlas cms")
    keep(b"0.+13:/etc/keytab")
    keep(b'{"principal": "ana", "groups": ["atlas/prod"]}')
    keep(b'{"refused": "eve left the site"}')
if target == "ticket":

    def tlv(tag: int, *parts: bytes) -> bytes:
        content = b"".join(parts)
        long = len(content).to_bytes(2, "big").lstrip(b"\0")
        return bytes([tag]) + (bytes([len(content)]) if len(content) < 128 else bytes([0x80 | len(long)]) + long) + content

    field = lambda place, *parts: tlv(0xA0 | place, *parts)  # noqa: E731
    fields = lambda **parts: tlv(0x30, *(field(int(place[1:]), part) for place, part in parts.items()))  # noqa: E731
    number = lambda value: tlv(2, bytes([value]))  # noqa: E731
    realm, flags, when = tlv(27, b"A"), tlv(3, bytes(5)), tlv(24, b"20261129233000Z")
    name = fields(_0=number(1), _1=tlv(0x30, tlv(27, b"xrootd"), tlv(27, b"a")))
    sealed = fields(_0=number(18), _1=number(1), _2=tlv(4, bytes(range(60))))
    ticket = tlv(0x61, fields(_0=number(5), _1=realm, _2=name, _3=sealed))
    keep(tlv(0x6E, fields(_0=number(5), _1=number(14), _2=flags, _3=ticket, _4=sealed)))
    keep(tlv(0x62, fields(_0=number(5), _1=realm, _2=name, _4=number(7), _5=when, _7=number(9))))
    key = fields(_0=number(18), _1=tlv(4, bytes(32)))
    addresses = tlv(0x30, fields(_0=number(2), _1=tlv(4, bytes(4))))
    times = {"_5": when, "_6": when, "_7": when, "_8": when}
    transited = fields(_0=number(1), _1=tlv(4, b"B"))
    restrictions = tlv(0x30, fields(_0=number(1), _1=tlv(4, b"x")))
    keep(tlv(0x63, fields(_0=flags, _1=key, _2=realm, _3=name, _4=transited, **times, _9=addresses, _10=restrictions)))
    keep(b"\5\2\0\0\0\x3d\0\2\0\1A\0\6xrootd\0\1a\0\0\0\1\0\0\0\0\1\0\x12\0\x20" + b"0" * 32)
    keep(b"host/a.example.org@EXAMPLE.ORG")
if target == "grid_map":
    keep(b'# accounts\n"/DC=ch/CN=Ana Lee" ana,other # why\n/CN=b b\n"/CN=say \\"hi\\" \\x41" c\n')
    keep(b"/atlas/us/Role=production/Capability=NULL")
    keep(b"host/a.example.org@EXAMPLE.ORG")
if target == "audit_line":
    keep(b'{"time":"2026-11-21T09:45:00.123Z","event":"change","operation":"rename","result":"denied","path":"/a","to":"/b","number":7}')
    keep(b'{"event":"lost","operation":"audit","result":"failed","lines":3,"reason":"x","session":1,"code":"Denied"}')
if target == "administration":
    for ask in (
        b'{"ask":"stores"}',
        b'{"ask":"policy-set","path":"/a","words":"replica(2)"}',
        b'{"ask":"quota-set","path":"/t","user":"ana","group":null,"hard_bytes":{"at":5},"soft_files":"none","grace_secs":9}',
        b'{"ask":"quotas","path":null,"after":{"tree":1,"kind":2,"id":3}}',
        b'{"ask":"make-token","role":"disk","valid_millis":1000,"uses":1}',
        b'{"ask":"admin-invite","name":"ana","role":"viewer","valid_millis":1000,"access_millis":null}',
        b'{"ask":"store-remove-lost","stores":[1,2],"confirmed":false,"force":false}',
        b'{"ask":"backup","since":[1,2]}',
    ):
        keep(ask + b"\n")
        keep(b'{"token":"a.b.c","request":' + ask + b"}\n")
        keep(b'{"certificates":["MAA="],"signature":"AAAA","request":' + ask + b"}\n")
if target == "gsi_frames":
    number = lambda value: value.to_bytes(4, "big")  # noqa: E731
    bucket = lambda kind, content: number(kind) + number(len(content)) + content  # noqa: E731
    tag = b"gsi\0" + number(1000) + bucket(3006, b"01234567") + number(0)
    for version in (10600, 10700):
        first = [(3000, b"ssl"), (3014, number(version)), (3023, b"5168735f.0"), (3019, number(0)), (3001, tag)]
        keep(b"gsi\0" + number(1000) + b"".join(bucket(*part) for part in first) + number(0))
    second = [(3000, b"ssl"), (3025, b"aes-256-cbc#16"), (3026, b"sha256"), (3005, bytes(256)), (3004, b"-----BEGIN"), (3001, bytes(64))]
    for step in (1001, 2001):
        keep(b"gsi\0" + number(step) + b"".join(bucket(*part) for part in second) + number(0))
    keep(b"v:10700,c:ssl,ca:5168735f.0")
if target == "certificates":
    stock = frames.parent.parent.parent / "grid/tests/stock"
    for file in stock.glob("*.pem"):
        keep(file.read_bytes())
        sections = file.read_text().split("-----BEGIN ")[1:]
        ders = [base64.b64decode("".join(section.splitlines()[1:-1])) for section in sections]
        keep(b"".join(len(der).to_bytes(3, "big") + der for der in ders))
        for der in ders:
            keep(der)
            voms = der.find(bytes.fromhex("060a2b06010401be45646405"))
            if voms >= 0:  # what is in the OCTET STRING of this extension, whose length has two bytes
                keep(der[voms + 16 : voms + 16 + int.from_bytes(der[voms + 14 : voms + 16], "big")])
    keep(b"access_id_CA X509 '/CN=root'\npos_rights globus CA:sign\ncond_subjects globus '\"/CN=ana\" \"/O=*\"'\n")
    keep(b"/CN=ana\n/CN=root\n--- NEXT CHAIN ---\n/CN=a\n/CN=b\n")
    for info in ("300c300a06082b06010505071501", "300f020101300a06082b06010505071501", "300f300d060b2b060104019b5001010109"):
        keep(bytes.fromhex(info))
