"""Bytes from one engine to the other: pairings x modes x sizes x batches, every transfer checked by SHA-256.

For each pairing of support.PAIRINGS and each mode of support.MODES there is a class, named after them, with one pair of
engines that lives for the whole class.
"""

from __future__ import annotations

import itertools
import os
import unittest
from typing import Any, Callable, Dict, List

from peer_client import OURS, WHEEL, Peer
from support import KIB, MIB, MODES, PAIRINGS, Mode, PeerTestCase, checksum, eventually, ret

SIZES = [0, 1, 7, 4 * KIB - 1, 4 * KIB, 64 * KIB, 64 * KIB + 1, MIB, MIB + 13, 5 * MIB - 3, 64 * MIB]
BATCHES = [
    (1, 4 * KIB),
    (16, 1),
    (16, 4 * KIB),
    (16, 64 * KIB + 1),
    (16, MIB + 13),
    (1024, 1),
    (1024, 7),
    (1024, 4 * KIB),
    (1024, 64 * KIB),
]
MIXED = [0, 1, 7, 0, 4 * KIB, 64 * KIB - 1, 3, MIB, 129]
LOCAL, REMOTE = 3, 4 * KIB + 5  # where transfers begin: not aligned, and not alike
GUARD = 64  # bytes on both sides that must stay as they are
SIZE = 64 * MIB + 2 * REMOTE
seeds = itertools.count(1)


def pattern(length: int) -> Dict[str, Any]:
    """Random bytes; for much memory a random piece of prime length over and over, which is quicker to make."""
    return {"random": next(seeds)} if length <= MIB else {"hex": os.urandom(4099).hex()}


class Transfers:
    """The cases; mixed into one class for each pairing and mode."""

    initiator_kind: str
    target_kind: str
    mode: Mode
    a: Peer  # the initiator
    b: Peer  # the target
    base: int  # of the target's first buffer

    @classmethod
    def setUpClass(cls) -> None:
        cls.a = Peer(cls.initiator_kind, env=cls.mode.env)
        cls.addClassCleanup(cls.a.close)
        cls.b = Peer(cls.target_kind)
        cls.addClassCleanup(cls.b.close)
        cls.a("register", size=SIZE)
        cls.base = cls.b("register", size=SIZE)["addr"]

    def setUp(self) -> None:
        super().setUp()
        self.peers = [self.a, self.b]

    # How transfers are checked

    def prepare(self, op: str, length: int) -> None:
        """Random bytes at the source, others at the sink, all of it and what lies around it."""
        source, sink = (self.a, self.b) if op == "write" else (self.b, self.a)
        self.source, self.source_at = source, LOCAL if op == "write" else REMOTE
        self.sink, self.sink_at = sink, REMOTE if op == "write" else LOCAL
        source("fill", off=self.source_at, len=length, **pattern(length))
        sink("fill", hex="a55a", off=0, len=self.sink_at + length + GUARD)
        self.around = self.guards(length)
        self.sent = checksum(source, off=self.source_at, len=length)

    def guards(self, length: int) -> List[str]:
        return [checksum(self.sink, off=0, len=self.sink_at)] + [
            checksum(self.sink, off=self.sink_at + length, len=GUARD)
        ]

    def arrives(self, condition: Callable[[], bool]) -> None:
        """At once; but a version-1 write of the real engine is complete before the target has it."""
        if self.initiator_kind == WHEEL and self.mode.version == 1:
            self.assertTrue(eventually(condition), "what was sent did not arrive")
        else:
            self.assertTrue(condition(), "what was sent is not there")

    def check(self, length: int) -> None:
        self.arrives(lambda: checksum(self.sink, off=self.sink_at, len=length) == self.sent)
        self.assertEqual(checksum(self.source, off=self.source_at, len=length), self.sent, "the source has changed")
        self.assertEqual(self.guards(length), self.around, "bytes beside the range have changed")

    def one(self, op: str, length: int) -> None:
        self.prepare(op, length)
        reply = self.a(op, peer=self.b.name, off=LOCAL, remote_addr=self.base + REMOTE, len=length)
        self.assertEqual(reply["ret"], 0, reply)
        self.check(length)

    def batch(self, op: str, count: int, length: int, command: str = "batch") -> None:
        """Request i goes to place i + 1, the last one to place 0, so that every request must find its own way."""
        total = count * length
        self.prepare(op, total)
        items = [
            {
                "off": LOCAL + i * length,
                "remote_addr": self.base + REMOTE + (i + 1) % count * length,
                "len": length,
            }
            for i in range(count)
        ]
        self.run_items(op, items, command)
        # From the initiator's place i to the target's i + 1: a write shifts up, a read shifts down.
        shift = length if op == "write" else total - length
        source, sink = self.source_at, self.sink_at

        def shifted() -> bool:
            return all(
                checksum(self.source, off=source + at, len=n) == checksum(self.sink, off=sink + to, len=n)
                for at, to, n in ((0, shift, total - shift), (total - shift, 0, shift))
            )

        self.arrives(shifted)
        self.assertEqual(self.guards(total), self.around, "bytes beside the range have changed")

    def run_items(self, op: str, items: List[Dict[str, int]], command: str) -> None:
        if command == "batch":
            reply = self.a(f"batch_{op}", peer=self.b.name, items=items)
        else:
            batch = self.a("submit_batch", peer=self.b.name, op=op, items=items)["batch"]
            self.assertNotEqual(batch, 0)
            reply = self.a("wait", batches=[batch])
        self.assertEqual(reply["ret"], 0, reply)

    # The cases that are not made from a table

    def test_mixed_sizes_in_one_batch(self) -> None:
        for op in ("write", "read"):
            self.prepare(op, sum(MIXED))
            items, at = [], 0
            for length in MIXED:
                items.append({"off": LOCAL + at, "remote_addr": self.base + REMOTE + at, "len": length})
                at += length
            self.run_items(op, items, "batch")
            self.check(sum(MIXED))

    def test_write_submitted_and_polled(self) -> None:
        self.prepare("write", MIB)
        batch = self.a("submit_write", peer=self.b.name, off=LOCAL, remote_addr=self.base + REMOTE, len=MIB)["batch"]
        state = 0

        def ended() -> bool:
            nonlocal state
            state = ret(self.a, "status", batch=batch)
            return state != 0

        self.assertTrue(eventually(ended))
        self.assertEqual(state, 1)
        self.check(MIB)

    def test_batches_submitted_and_waited_for(self) -> None:
        for op in ("write", "read"):
            self.batch(op, 16, 64 * KIB, "submit")

    def test_first_buffer(self) -> None:
        self.assertEqual(self.a("first_buffer", peer=self.b.name)["addr"], self.base)

    def test_probe(self) -> None:
        self.assertEqual(ret(self.a, "probe", peer=self.b.name), 0)

    def test_notification_after_a_write(self) -> None:
        text = {"name": "weights", "msg": "layer 7 \u2713 \"quoted\" \\ \u00e9\n"}
        self.prepare("write", 4 * KIB)
        reply = self.a("write", peer=self.b.name, off=LOCAL, remote_addr=self.base + REMOTE, len=4 * KIB, notify=text)
        self.assertEqual(reply["ret"], 0, reply)
        self.assertEqual(self.taken(1), [text])
        self.check(4 * KIB)

    def test_notification_after_a_batch(self) -> None:
        text = {"name": "", "msg": "after sixteen"}
        items = [{"off": i * 100, "remote_addr": self.base + i * 100, "len": 100} for i in range(16)]
        reply = self.a("batch_write", peer=self.b.name, items=items, notify=text)
        self.assertEqual(reply["ret"], 0, reply)
        self.assertEqual(self.taken(1), [text])

    def taken(self, count: int) -> List[Dict[str, str]]:
        """The notifications that arrive: waits for count of them."""
        messages: List[Dict[str, str]] = []

        def enough() -> bool:
            messages.extend(self.b("notifies")["notifies"])
            return len(messages) >= count

        eventually(enough)
        return messages


def add_case(name: str, run: Callable[[Any], None]) -> None:
    run.__name__ = f"test_{name}"
    setattr(Transfers, run.__name__, run)


for _op in ("write", "read"):
    for _size in SIZES:
        add_case(f"{_op}_of_{_size:08}", lambda self, op=_op, size=_size: self.one(op, size))
    for _count, _size in BATCHES:
        add_case(
            f"{_op}_batch_{_count:04}_of_{_size:08}",
            lambda self, op=_op, count=_count, size=_size: self.batch(op, count, size),
        )

for _initiator, _target in PAIRINGS:
    for _mode in MODES:
        _name = f"{_initiator}_to_{_target}_{_mode.title}"
        _members = {"initiator_kind": _initiator, "target_kind": _target, "mode": _mode}
        globals()[_name] = type(_name, (Transfers, PeerTestCase), {**_members, "__module__": __name__})


if __name__ == "__main__":
    unittest.main()
