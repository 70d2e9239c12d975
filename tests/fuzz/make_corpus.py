#!/usr/bin/env python3
"""Makes the seeds in corpus/ from the recorded exchanges in ../vectors. Run it again when vectors are added.

A seed is named after the vector it comes from; one that equals another is left out. Files that a fuzzer has found and
that were kept by hand (found-*) stay.
"""

import json
import pathlib

HERE = pathlib.Path(__file__).resolve().parent
HEAD = 9  # bytes before the text of a frame
LARGEST = 8192


def streams(vector):
    """(protocol, direction, bytes) of each connection of a vector."""
    for connection in vector.get("connections", []):
        for direction in ("c2s", "s2c"):
            pieces = [
                bytes.fromhex(entry["hex"])
                for entry in vector["sequence"]
                if entry["dir"] == direction and entry.get("conn", 0) == connection["conn"] and "hex" in entry
            ]
            if pieces:
                yield connection["protocol"], direction, b"".join(pieces)


def seeds(name, vector):
    """(target, seed) for all that a vector is good for."""
    if "text" in vector and name.startswith("classic-descriptor"):
        yield "descriptor", vector["text"].encode()
    for protocol, direction, data in streams(vector):
        if protocol == "classic-data":
            yield "tcp_stream", data
        if protocol != "classic-handshake":
            continue
        if direction == "c2s":
            yield "frame", b"\0" + data
        if len(data) > HEAD and data[8] == 1:
            yield "descriptor", data[HEAD:]
        if len(data) > HEAD and data[8] in (0, 2):
            yield "message", b"%d" % data[8] + data[HEAD:]
        if len(data) > HEAD and direction == "s2c" and data[8] in (2, 3):
            yield "message", b"3" + data[HEAD:]


SETTINGS = {
    "empty": b"",
    "comment": b"# nothing\n",
    "yaml": b"MC_FORCE_TCP: 1\nmin_rpc_port: 20000\nmax_rpc_port: 20010\ntcp_lanes_per_peer: '8'\nlog_level: INFO\n",
    "json": b'{"MC_TCP_ENABLE_CONNECTION_POOL": false, "MC_SLICE_TIMEOUT": -1, "MC_LOG_DIR": "/tmp"}',
    "malformed-values": b"MC_TCP_LANES_PER_PEER: many\nMC_MIN_RPC_PORT: 80\nMC_HANDSHAKE_MAX_LENGTH: 1e9\n",
    "unknown-names": b"MC_NO_SUCH_THING: 1\nother: {a: [b, c]}\n",
    "aliases": b"a: &x 1\nb: *x\n",
    "not-a-mapping": b"- 1\n- 2\n",
    "two-documents": b"a: 1\n---\nb: 2\n",
    "open": b"{a: [",
    "utf-16": "a: 1\n".encode("utf-16"),
    "nested": b"a: " + b"[" * 40 + b"]" * 40,
}


def main():
    known = set()
    for path in sorted((HERE / "corpus").glob("*/*")):
        if not path.name.startswith("found-"):
            path.unlink()
    made = [("settings", name, seed) for name, seed in SETTINGS.items()]
    for path in sorted((HERE.parent / "vectors").glob("classic-*.json")):
        vector = json.loads(path.read_text())
        for target, seed in seeds(path.stem, vector):
            made.append((target, path.stem.removeprefix("classic-"), seed))
    made.append(("message", "contents", b"x\xff\xed\xa0\x80\x00\x1f\"\\\xf0\xbd\xb1\xa0"))
    for target, name, seed in made:
        if len(seed) > LARGEST or (target, seed) in known:
            continue
        known.add((target, seed))
        folder = HERE / "corpus" / target
        folder.mkdir(parents=True, exist_ok=True)
        path, number = folder / name, 2
        while path.exists():
            path, number = folder / f"{name}-{number}", number + 1
        path.write_bytes(seed)


if __name__ == "__main__":
    main()
