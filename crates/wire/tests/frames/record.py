#!/usr/bin/env python3
"""Records what an XRootD client and server say to each other, and can cut the connection in the middle.

record.py proxy LISTEN SERVER FOLDER [--cut BYTES [--connection N] [--gap SECONDS]]
    a TCP proxy on loopback; each connection's two directions go to FOLDER/N.c and FOLDER/N.s. With --cut, connection N
    (0 is the first) breaks after so many bytes from the client: the server's side at once, the client's after the gap.
record.py text FOLDER FILE TITLE
    makes a .frames file of a recording (README.md says what stands in it).
"""
import argparse
import glob
import os
import socket
import struct
import sys
import threading
import time

WRITE, PGWRITE, WRITEV = 3019, 3026, 3031


def proxy(args):
    os.makedirs(args.folder, exist_ok=True)
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", args.listen))
    listener.listen(50)
    cutting = set()

    def pump(source, sink, file, number, from_client):
        total = 0
        try:
            while data := source.recv(65536):
                if from_client and args.cut is not None and number == args.connection and total + len(data) >= args.cut:
                    data = data[: args.cut - total]
                    sink.sendall(data)
                    file.write(data)
                    file.flush()
                    cutting.add(number)
                    sink.shutdown(socket.SHUT_RDWR)
                    time.sleep(args.gap)
                    source.shutdown(socket.SHUT_RDWR)
                    return
                sink.sendall(data)
                file.write(data)
                file.flush()
                total += len(data)
            if number not in cutting:
                sink.shutdown(socket.SHUT_WR)
        except OSError:
            if number not in cutting:
                for end in (source, sink):
                    try:
                        end.shutdown(socket.SHUT_RDWR)
                    except OSError:
                        pass

    number = 0
    while True:
        client, _ = listener.accept()
        server = socket.create_connection(("127.0.0.1", args.server))
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        said = open(f"{args.folder}/{number}.c", "wb")
        heard = open(f"{args.folder}/{number}.s", "wb")
        threading.Thread(target=pump, args=(client, server, said, number, True), daemon=True).start()
        threading.Thread(target=pump, args=(server, client, heard, number, False), daemon=True).start()
        number += 1


def data_line(data):
    return f"D {len(data)}" + (f" {data.hex()}" if len(data) <= 256 else "")


def client_frames(said):
    """(stream id, lines or None for a frame that is too long to keep)"""
    frames, at = [(b"greeting", ["C " + said[:20].hex()])], 20
    while at + 24 <= len(said):
        stream, code = said[at : at + 2], struct.unpack(">H", said[at + 2 : at + 4])[0]
        header, length = said[at : at + 24], struct.unpack(">i", said[at + 20 : at + 24])[0]
        if length < 0:
            frames.append((stream, ["C " + header.hex()]))
            at += 24
            continue
        payload, more = said[at + 24 : at + 24 + length], 0
        if code == WRITEV:
            more = sum(struct.unpack(">i", payload[i + 4 : i + 8])[0] for i in range(0, length, 16))
        if code in (WRITE, PGWRITE):
            frames.append((stream, ["C " + header.hex()] + ([data_line(payload)] if length else [])))
        elif length > 1000:
            frames.append((stream, None))
        else:
            tail = said[at + 24 + length : at + 24 + length + more]
            frames.append((stream, ["C " + (header + payload).hex()] + ([data_line(tail)] if more else [])))
        at += 24 + length + more
    if at != len(said):
        frames.append((None, ["# the connection was cut here"]))
    return frames


def server_frames(heard):
    """(stream id of the request that is answered to the end or None, lines)"""
    frames, at = [(b"greeting", ["S " + heard[:16].hex()])], 16
    while at + 8 <= len(heard):
        stream, status, length = heard[at : at + 2], *struct.unpack(">Hi", heard[at + 2 : at + 8])
        body, data = heard[at + 8 : at + 8 + length], b""
        if len(body) < length:
            frames.append((None, ["# the connection was cut here"]))
            break
        ends = None if status in (4000, 4006) else body[8:10] if status == 4001 else stream
        lines = ["S " + heard[at : at + 8 + length].hex()]
        if status == 4007:
            ends = None if body[7] == 1 else stream
            more = struct.unpack(">i", body[12:16])[0]
            data = heard[at + 8 + length : at + 8 + length + more]
            lines += [data_line(data)] if more else []
        elif length > 1000:
            lines = [f"# an answer of {length} bytes is left out"]
        frames.append((ends, lines))
        at += 8 + length + len(data)
    return frames


def in_turn(asks, answers):
    """The two directions were recorded without times; a stream id is used again only when its answer is there."""
    lines, waiting, dropped = [], set(), set()

    def answer():
        ends, frame = answers.pop(0)
        if ends in dropped:
            dropped.discard(ends)
        else:
            lines.extend(frame)
        waiting.discard(ends)

    for stream, frame in asks:
        while stream in waiting and answers:
            answer()
        if frame is None:
            dropped.add(stream)
        else:
            lines.extend(frame)
        if stream is not None:
            waiting.add(stream)
    while answers:
        answer()
    return lines


def text(args):
    lines = ["# " + args.title]
    for path in sorted(glob.glob(args.folder + "/*.c"), key=lambda path: int(os.path.basename(path)[:-2])):
        with open(path, "rb") as said, open(path[:-2] + ".s", "rb") as heard:
            asks, answers = client_frames(said.read()), server_frames(heard.read())
        lines.append(f"connection {os.path.basename(path)[:-2]}")
        lines += in_turn(asks, answers)
    with open(args.file, "w") as file:
        file.write("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("proxy")
    one.add_argument("listen", type=int)
    one.add_argument("server", type=int)
    one.add_argument("folder")
    one.add_argument("--cut", type=int)
    one.add_argument("--connection", type=int, default=0)
    one.add_argument("--gap", type=float, default=0.3)
    one.set_defaults(run=proxy)
    two = commands.add_parser("text")
    two.add_argument("folder")
    two.add_argument("file")
    two.add_argument("title")
    two.set_defaults(run=text)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    sys.exit(main())
