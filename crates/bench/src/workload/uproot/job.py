"""One analysis job with uproot, or the writer of a file for such jobs. `weir bench` runs it.

The first line of standard input is a JSON object. Each line of standard output is one, too, with a single key. A job says `ready` after
its imports, and begins with a second line on standard input.
"""

import sys

# A file of the current directory could have the name of a package.
sys.path[:] = [entry for entry in sys.path if entry]

import json  # noqa: E402
import os  # noqa: E402
import socket  # noqa: E402
import stat  # noqa: E402
import struct  # noqa: E402
import time  # noqa: E402

# What libraries print must not be taken for ours.
OUT = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
# Bytes received, in Linux's `struct tcp_info`.
RECEIVED_AT = 128


def say(word, value):
    print(json.dumps({word: value}), file=OUT, flush=True)


def missing(package, error):
    say("missing", {"package": package, "why": str(error)})
    sys.exit(0)


def check_uproot():
    try:
        import awkward  # noqa: F401
        import numpy  # noqa: F401
        import uproot  # noqa: F401
    except ImportError as error:
        missing("uproot", error)


def opener(wanted):
    """Imports the package that opens root:// addresses, and returns its name."""
    if wanted != "fsspec-xrootd":
        try:
            from weir import WeirFileSystem  # noqa: F401

            return "weir"
        except ImportError as error:
            if wanted == "weir":
                missing("weir", error)
    try:
        import fsspec_xrootd  # noqa: F401
        from XRootD import client  # noqa: F401
    except ImportError as error:
        missing("fsspec-xrootd", error)
    return "fsspec-xrootd"


def received():
    """The bytes that all connections of this process have received; 0 if the kernel does not say."""
    total = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as link:
                if link.family in (socket.AF_INET, socket.AF_INET6) and link.type & socket.SOCK_STREAM:
                    info = link.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, RECEIVED_AT + 8)
                    total += struct.unpack_from("=Q", info, RECEIVED_AT)[0]
        except (OSError, struct.error):
            continue
    return total


def find(file, name):
    """The tree of this name, in whatever directory of the file."""
    import uproot

    try:
        return file[name]
    except uproot.KeyInFileError:
        for key in file.keys(recursive=True, cycle=False):
            if key.rsplit("/", 1)[-1] == name:
                return file[key]
        raise


def is_unknown(branch):
    from uproot.interpretation.identify import UnknownInterpretation

    return isinstance(branch.interpretation, UnknownInterpretation)


def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def read(asked, location):
    import uproot

    wanted = set(asked["branches"])
    events = 0
    begin, cpu = time.perf_counter(), time.process_time()
    with uproot.open(location) as file:
        tree = find(file, asked["tree"])
        chosen = [branch for branch in tree.itervalues(recursive=True) if branch.name in wanted]
        unknown = [branch.name for branch in chosen if is_unknown(branch)]
        if unknown or not chosen:
            raise ValueError(f"uproot cannot interpret the branches {', '.join(unknown[:5]) or asked['branches'][:5]}")
        unpacked = sum(branch.uncompressed_bytes for branch in chosen)
        # For a step in bytes, uproot would first read the keys of single baskets.
        step = max(1, int(asked["step_bytes"] * tree.num_entries / max(1, unpacked)))
        for arrays in tree.iterate(filter_branch=lambda branch: branch.name in wanted, step_size=step):
            events += len(arrays)
            if asked["compute_us_per_mb"]:
                burn(asked["compute_us_per_mb"] * arrays.nbytes / 1e12)
        pause, pause_cpu = time.perf_counter(), time.process_time()
        source, moved = file.file.source, received()
        requested, requests = source.num_requested_bytes, source.num_requests
        paused, paused_cpu = time.perf_counter() - pause, time.process_time() - pause_cpu
    return {
        "wall_s": time.perf_counter() - begin - paused,
        "cpu_s": time.process_time() - cpu - paused_cpu,
        "events": events,
        # Some of these are numbers of NumPy.
        "asked": int(requested),
        "moved": moved,
        "requests": int(requests),
        "unpacked": int(unpacked),
    }


def write(asked):
    """Writes a tree whose baskets differ in size from branch to branch, and a little from cluster to cluster."""
    import numpy as np
    import uproot

    numbers = np.random.default_rng(asked["seed"])
    names = [f"b{number:03}" for number in range(asked["branches"])]
    with uproot.recreate(asked["path"], compression=uproot.LZ4(1)) as file:
        tree = file.mktree("Events", {name: np.float32 for name in names})
        for _ in range(asked["clusters"]):
            columns = ((name, np.round(numbers.normal(size=asked["events"]), 1 + n % 3)) for n, name in enumerate(names))
            tree.extend({name: values.astype(np.float32) for name, values in columns})
    return {}


def main():
    asked = json.loads(sys.stdin.readline())
    check_uproot()
    location, with_package = asked.get("location", ""), "path"
    # uproot opens a path itself. A probe has no location, and tries the package that was asked for.
    if location.startswith("root://") or (not location and asked["with"] != "auto"):
        with_package = opener(asked["with"])
    if with_package == "weir" and location.startswith("root://"):
        location = "weir" + location[len("root") :]
    say("ready", with_package)
    if asked["task"] == "probe" or not sys.stdin.readline():
        return
    try:
        say("done", write(asked) if asked["task"] == "write" else read(asked, location))
    except Exception as error:  # all of them end here, as text for the report
        say("error", f"{type(error).__name__}: {error}"[:2000])


main()
