#!/usr/bin/env python3
"""Shows this library and the real Mooncake engine with each other's memory: a write and a read each way, a
notification each way, checksums on both sides. For people; the tests are in test_*.py.

Run it with the interpreter of the environment that install.sh makes; TE_PEER names the program te_peer.
"""

from __future__ import annotations

import sys
from typing import List, Tuple

from peer_client import OURS, WHEEL, Peer
from support import checksum, eventually

SIZE = 32 << 20
NAMES = {OURS: "this library", WHEEL: "Mooncake"}


def step(what: str, works: bool) -> bool:
    print(f"  {what:76} {'ok' if works else 'FAILED'}", flush=True)
    return works


def transfer(initiator: Peer, target: Peer, op: str, seed: int, speeds: List[Tuple[str, float]]) -> bool:
    who = f"{NAMES[initiator.kind]} {op}s memory of {NAMES[target.kind]}"
    source, sink = (initiator, target) if op == "write" else (target, initiator)
    source("fill", random=seed)
    sink("fill", hex="00")
    note = {"name": "demo", "msg": f"{op} {seed} is done"}
    request = {"peer": target.name, "remote_addr": target("info")["buffers"][0]["addr"], "len": SIZE}
    reply = initiator(op, notify=note, **request)
    here, there = checksum(initiator), checksum(target)
    print(f"     SHA-256 here {here[:16]}..., there {there[:16]}...")
    good = step(f"{who}, {SIZE >> 20} MiB, same bytes on both sides", reply["ret"] == 0 and here == there)
    arrived: List[object] = []
    eventually(lambda: arrived.extend(target("notifies")["notifies"]) or arrived, 10)
    good = step("the notification that was sent with it has arrived, once", arrived == [note]) and good
    best = min(initiator(op, **request)["seconds"] for _ in range(3))
    speeds.append((who, SIZE / best / 1e9))
    return good


def main() -> int:
    speeds: List[Tuple[str, float]] = []
    with Peer(WHEEL) as mooncake, Peer(OURS) as ours:
        print(f"Mooncake {mooncake.version} is {mooncake.name}, this library {ours.version} is {ours.name}")
        for peer in (mooncake, ours):
            peer("register", size=SIZE)
        probes = [a("probe", peer=b.name)["ret"] for a, b in ((ours, mooncake), (mooncake, ours))]
        good = step("each answers a probe of the other", probes == [0, 0])
        for number, (a, b) in enumerate(((ours, mooncake), (mooncake, ours))):
            for op in ("write", "read"):
                good = transfer(a, b, op, 2 * number + len(op), speeds) and good
    print(f"\n  one request of {SIZE >> 20} MiB, best of three{'GB/s':>50}")
    for who, speed in speeds:
        print(f"  {who:76} {speed:9.2f}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
