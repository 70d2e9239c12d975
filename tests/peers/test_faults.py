"""What the real engine is seen to do wrong and this library does right: one test for each, named after it.

Where a peer is the real engine, the test shows that the fault is mended from our side; where it cannot be, the test
is between two engines of ours.
"""

from __future__ import annotations

import contextlib
import hashlib
import socket
from typing import Any, Dict, List

import wire
from peer_client import OURS, WHEEL, Peer
from support import KIB, MIB, MODES, NO_POOL, VERSION_1, PeerTestCase, checksum, data_port, eventually, ret

QUICK = {"TE_TCP_SILENCE_TIMEOUT_MS": "1000", "TE_HANDSHAKE_REPLY_TIMEOUT_MS": "1000"}
NOWHERE = 4096  # an address that nobody has registered


class Quiet(PeerTestCase):
    """Once a task has failed, nothing of it moves any more."""

    def stopped_target(self, length: int, env: Dict[str, str]) -> None:
        a, b, base = self.start_pair(OURS, OURS, 64 * MIB, {**QUICK, **env})
        self.assertEqual(ret(a, "write", peer=b.name, remote_addr=base, len=100), 0)
        a("fill", hex="5a")
        b("fill", hex="00", len=64 * MIB)
        b.stop()
        self.assertEqual(ret(a, "write", peer=b.name, remote_addr=base, len=length), -1)
        b.go_on()
        # Served after everything that was waiting: two round trips on the data port and one on the control port.
        with Peer(OURS) as other:
            other("register", size=4 * KIB, random=3)
            for _ in range(2):
                self.assertEqual(ret(other, "write", peer=b.name, remote_addr=base + 63 * MIB, len=4 * KIB), 0)
            before = checksum(b, len=63 * MIB)
            b("fill", hex="00", len=63 * MIB)
            self.assertEqual(before, checksum(b, len=63 * MIB), "bytes of a failed write have landed")
        self.assertEqual(ret(a, "write", peer=b.name, remote_addr=base, len=MIB), 0)
        self.assert_same_bytes(a, b, len=MIB)

    def test_failed_write_never_lands_in_a_stopped_target(self) -> None:
        self.stopped_target(100, {})

    def test_failed_write_of_64_kib_never_lands_in_a_stopped_target(self) -> None:
        self.stopped_target(64 * KIB, {})

    def test_failed_write_without_pool_never_lands_in_a_stopped_target(self) -> None:
        self.stopped_target(100, NO_POOL)

    def test_failed_version_1_write_never_lands_in_a_stopped_target(self) -> None:
        self.stopped_target(100, VERSION_1)

    def test_failed_long_write_lands_no_further_in_a_stopped_target(self) -> None:
        """Of a long write some may be there already; after the failure not a byte more arrives."""
        a, b, base = self.start_pair(OURS, OURS, 64 * MIB, QUICK)
        b("fill", hex="00")
        b.stop()
        batch = a("submit_write", peer=b.name, remote_addr=base, len=64 * MIB)["batch"]
        a("await", batch=batch)
        self.assertEqual(ret(a, "status", batch=batch), -1)
        a("fill", hex="5a")  # what is written to the source now must not turn up
        b.go_on()
        with Peer(OURS) as other:
            other("register", size=4 * KIB, random=3)
            self.assertEqual(ret(other, "write", peer=b.name, remote_addr=base, len=4 * KIB), 0)
        first = checksum(b, off=4 * KIB)
        self.assertEqual(ret(a, "probe", peer=b.name), 0)
        self.assertEqual(first, checksum(b, off=4 * KIB))
        self.assertNotIn("5a" * 64, b("peek", off=8 * KIB, len=MIB)["hex"])

    def test_failed_read_leaves_the_local_buffer_alone(self) -> None:
        for target in (OURS, WHEEL):
            with self.subTest(target=target):
                a, b, base = self.start_pair(OURS, target, MIB, QUICK)
                self.assertEqual(ret(a, "read", peer=b.name, remote_addr=base, len=100), 0)
                b.stop()
                before = checksum(a)
                self.assertEqual(ret(a, "read", peer=b.name, remote_addr=base, len=MIB), -1)
                self.assertEqual(checksum(a), before, "bytes have come from a stopped peer")
                a("fill", hex="5a")  # the buffer is the caller's again
                b.go_on()
                self.assertTrue(eventually(lambda: ret(a, "probe", peer=b.name) == 0))
                self.assertEqual(ret(a, "read", peer=b.name, remote_addr=base, off=MIB - 1, len=1), 0)
                self.assertEqual(checksum(a, len=MIB - 1), checksum_of("5a", MIB - 1), "bytes have come late")

    def test_stopped_peer_fails_in_bounded_time_and_delays_no_other(self) -> None:
        """While one peer is silent, another is served; without any setting changed."""
        a, b, base = self.start_pair(OURS, WHEEL)
        c = self.start(WHEEL)
        elsewhere = c("register", size=MIB)["addr"]
        for peer, address in ((b, base), (c, elsewhere)):
            self.assertEqual(ret(a, "write", peer=peer.name, remote_addr=address, len=100), 0)
        b.stop()
        batch = a("submit_write", peer=b.name, remote_addr=base, len=MIB)["batch"]
        for _ in range(100):
            self.assertEqual(ret(a, "write", peer=c.name, remote_addr=elsewhere, len=64 * KIB), 0)
        self.assertEqual(ret(a, "status", batch=batch), 0, "the write to a stopped peer has ended already")
        self.assertEqual(ret(a, "wait", batches=[batch], timeout=29), -1, "the write did not fail within 29 s")
        b.go_on()


def checksum_of(unit: str, length: int) -> str:
    return hashlib.sha256((bytes.fromhex(unit) * length)[:length]).hexdigest()


class Innocent(PeerTestCase):
    """No good request fails because of an earlier bad one."""

    def forty_failures(self, target: str, env: Dict[str, str], cmd: str, fields: Dict[str, Any]) -> None:
        a, b, base = self.start_pair(OURS, target, env=env)
        for number in range(40):
            self.assertEqual(ret(a, cmd, peer=b.name, **fields), -1, f"bad request {number} was not refused")
            a("fill", counter=number, len=100)
            reply = a("write", peer=b.name, remote_addr=base, len=100)
            self.assertEqual(reply["ret"], 0, f"good request {number}: {reply}")
            self.assert_same_bytes(a, b, len=100)
            self.assertEqual(ret(a, "read", peer=b.name, remote_addr=base, len=100), 0)

    def test_good_and_bad_requests_of_one_batch_end_each_on_its_own(self) -> None:
        for target in (OURS, WHEEL):
            with self.subTest(target=target):
                a, b, base = self.start_pair(OURS, target)
                items = [
                    {"off": i * 100, "remote_addr": NOWHERE if i % 3 == 0 else base + i * 100, "len": 100}
                    for i in range(300)
                ]
                batch = a("submit_batch", peer=b.name, op="write", items=items)["batch"]
                a("await", batch=batch)
                states = [a("task", batch=batch, task=i)["status"] for i in range(300)]
                self.assertEqual(states, [6 if i % 3 == 0 else 4 for i in range(300)])
                self.assertEqual(ret(a, "free", batch=batch), 0)
                for i in range(300):
                    if i % 3 != 0:
                        self.assert_same_bytes(a, b, off=i * 100, len=100)

    def test_what_a_target_refuses_it_refuses_alone(self) -> None:
        """The real engine's initiator without its pool, which has no part in the fault, against our target."""
        a, b, base = self.start_pair(WHEEL, OURS, env=NO_POOL)
        for _ in range(40):
            self.assertEqual(ret(a, "write", peer=b.name, remote_addr=NOWHERE, len=100), -1)
            self.assertEqual(ret(a, "read", peer=b.name, remote_addr=NOWHERE, len=100), -1)
            self.assertEqual(ret(a, "write", peer=b.name, remote_addr=base, len=100), 0)
            self.assert_same_bytes(a, b, len=100)


def add_innocent_cases() -> None:
    bad = {"remote_addr": NOWHERE, "len": 10}
    cases = {
        "write": ("write", bad),
        "read": ("read", bad),
        "batch_of_8_writes": ("batch_write", {"items": [bad] * 8}),
        "batch_of_8_reads": ("batch_read", {"items": [bad] * 8}),
    }
    for target in (OURS, WHEEL):
        for mode in MODES:
            for title, (cmd, fields) in cases.items():

                def test(self: Innocent, arguments: Any = (target, mode.env, cmd, fields)) -> None:
                    self.forty_failures(*arguments)

                name = f"test_good_requests_after_failing_{title}_to_{target}_{mode.title}"
                test.__name__ = name
                setattr(Innocent, name, test)


add_innocent_cases()


class Ranges(PeerTestCase):
    """A peer reaches registered memory and nothing else."""

    def refused(self, initiator: str, target: str, env: Dict[str, str]) -> None:
        a = self.start(initiator, env=env)
        b = self.start(target)
        a("register", size=MIB, random=1)
        first, second = b("register_batch", sizes=[64 * KIB, 64 * KIB], random=2)["addrs"]
        outside = b("allocate", size=64 * KIB, random=3)["addr"]
        before = [checksum(b, buf=i) for i in range(3)]
        good = {"remote_addr": first, "len": 100}
        for title, address, length in (
            ("nowhere", NOWHERE, 10),
            ("memory that is not registered", outside, 10),
            ("one byte past the end", second + 64 * KIB - 9, 10),
            ("from one byte before", first - 1, 10),
            ("a range that wraps around", 2**64 - 8, 16),
        ):
            for op in ("write", "read"):
                with self.subTest(title, op=op):
                    self.assertEqual(ret(a, op, peer=b.name, remote_addr=address, len=length), -1)
                    if initiator == WHEEL:  # a good request may fail after a bad one there
                        self.assertTrue(eventually(lambda: ret(a, "read", peer=b.name, **good) == 0))
        self.assertEqual([checksum(b, buf=i) for i in range(3)], before)
        self.assertEqual(ret(a, "write", peer=b.name, remote_addr=second + 64 * KIB - 10, len=10), 0)
        self.assertEqual(ret(a, "write", peer=b.name, remote_addr=outside, len=0), 0)

    def test_unregistered_ranges_are_refused_by_the_real_target(self) -> None:
        for mode in MODES:
            with self.subTest(mode.title):
                self.refused(OURS, WHEEL, mode.env)

    def test_unregistered_ranges_are_refused_by_our_target(self) -> None:
        for mode in MODES:
            with self.subTest(mode.title):
                self.refused(OURS, OURS, mode.env)

    def test_unregistered_ranges_are_refused_by_our_target_to_the_real_engine(self) -> None:
        for mode in MODES[:2]:  # with version 1 the real initiator does not learn that it was refused
            with self.subTest(mode.title):
                self.refused(WHEEL, OURS, mode.env)

    def test_memory_that_is_not_remotely_accessible(self) -> None:
        for initiator in (OURS, WHEEL):
            with self.subTest(initiator=initiator):
                a, b, base = self.start_pair(initiator, OURS, env=NO_POOL)
                private = b("register", size=4 * KIB, random=9, remote_accessible=0)
                before = checksum(b, buf=private["buf"])
                for op in ("write", "read"):
                    self.assertEqual(ret(a, op, peer=b.name, remote_addr=private["addr"], len=100), -1)
                self.assertEqual(checksum(b, buf=private["buf"]), before)
                self.assertNotIn(private["addr"], [buffer["addr"] for buffer in wire.describe(b.name)["buffers"]])
                self.assertEqual(ret(a, "write", peer=b.name, remote_addr=base, len=100), 0)

    def test_unregistered_target_and_registered_again(self) -> None:
        for initiator, target in ((OURS, WHEEL), (WHEEL, OURS), (OURS, OURS)):
            with self.subTest(initiator=initiator, target=target):
                a, b, base = self.start_pair(initiator, target, env=NO_POOL)
                write = {"peer": b.name, "remote_addr": base, "len": 100}
                self.assertEqual(ret(a, "write", **write), 0)
                self.assertEqual(ret(b, "unregister", buf=0), 0)
                self.assertEqual(ret(a, "write", **write), -1)
                self.assertEqual(ret(a, "read", **write), -1)
                self.assertEqual(ret(b, "register", addr=base, size=MIB), 0)
                self.assertEqual(ret(a, "write", **write), 0)

    def test_memory_registered_after_the_segment_was_opened(self) -> None:
        for initiator, target in ((OURS, WHEEL), (WHEEL, OURS), (OURS, OURS)):
            with self.subTest(initiator=initiator, target=target):
                a, b, base = self.start_pair(initiator, target)
                self.assertEqual(ret(a, "write", peer=b.name, remote_addr=base, len=100), 0)
                later = b("register", size=MIB)
                self.assertEqual(ret(a, "write", peer=b.name, remote_addr=later["addr"], len=MIB), 0)
                self.assertEqual(checksum(a), checksum(b, buf=later["buf"]))

    def test_address_zero_is_not_registered(self) -> None:
        """The real engine registers it, and can then be opened by no one."""
        for initiator in (OURS, WHEEL):
            with self.subTest(initiator=initiator):
                a, b, base = self.start_pair(initiator, OURS)
                self.assertEqual(ret(b, "register", addr=0, size=4 * KIB), -1)
                self.assertEqual([buffer["addr"] for buffer in wire.describe(b.name)["buffers"]], [base])
                self.assertEqual(ret(a, "write", peer=b.name, remote_addr=base, len=100), 0)

    def test_address_zero_registered_by_a_peer(self) -> None:
        """The real peer that has registered it can be opened all the same, and its other memory reached."""
        a, b, base = self.start_pair(OURS, WHEEL)
        self.assertEqual(ret(b, "register", addr=0, size=4 * KIB), 0)
        reply = a("write", peer=b.name, remote_addr=base, len=100)
        self.assertEqual(reply["ret"], 0, reply)
        self.assert_same_bytes(a, b, len=100)


class Crowds(PeerTestCase):
    """Many requests, many engines, and clients that say nothing."""

    def many(self, initiator: str, target: str, env: Dict[str, str], count: int) -> None:
        a, b, base = self.start_pair(initiator, target, 2 * MIB, env)
        for op in ("write", "read"):
            a("fill", random=11)
            b("fill", random=12)
            items = [{"off": i * 128, "remote_addr": base + i * 128, "len": 128} for i in range(count)]
            reply = a(f"batch_{op}", peer=b.name, items=items)
            self.assertEqual(reply["ret"], 0, reply)
            self.assert_same_bytes(a, b, len=count * 128)

    def test_batch_of_10000_to_the_real_engine(self) -> None:
        self.many(OURS, WHEEL, {}, 10000)

    def test_batch_of_10000_to_our_engine(self) -> None:
        self.many(OURS, OURS, {}, 10000)

    def test_batch_of_10000_version_1(self) -> None:
        self.many(OURS, WHEEL, VERSION_1, 10000)

    def test_batch_of_2000_from_the_real_engine(self) -> None:
        self.many(WHEEL, OURS, {}, 2000)

    def test_batch_of_10000_without_pool(self) -> None:
        self.many(OURS, OURS, NO_POOL, 10000)

    def test_silent_clients_delay_nobody(self) -> None:
        """The real engine serves one control connection at a time: three silent ones delay a probe by 15 s."""
        a, b, base = self.start_pair(OURS, OURS)
        w = self.start(WHEEL)
        with contextlib.ExitStack() as stack:
            for name in (b.name, a.name):
                for _ in range(130):
                    stack.enter_context(socket.create_connection(wire.address_of(name)))
                    half = stack.enter_context(socket.create_connection(wire.address_of(name)))
                    half.sendall(wire.frame(wire.METADATA, b"{}")[:9])
            for prober in (a, w):
                for _ in range(10):
                    reply = prober("probe", peer=b.name)
                    self.assertEqual(reply["ret"], 0)
                    self.assertLess(reply["seconds"], 4.0, "a probe waited for a silent client")
            self.assertEqual(ret(a, "write", peer=b.name, remote_addr=base, len=MIB), 0)

    def test_second_engine_of_the_same_name(self) -> None:
        """Both work, and the first one stays what it was when the second one ends."""
        first = self.start(OURS, local="127.0.0.1:12345")
        base = first("register", size=MIB, random=1)["addr"]
        second = self.start(OURS, local="127.0.0.1:12345")
        second("register", size=MIB, random=2)
        self.assertNotEqual(first.name, second.name)
        self.assertNotEqual(data_port(first.name), data_port(second.name))
        w = self.start(WHEEL)
        w("register", size=MIB)
        for engine in (second, w):
            self.assertEqual(ret(engine, "read", peer=first.name, remote_addr=base, len=MIB), 0)
            self.assert_same_bytes(engine, first, len=MIB)
        second.close()
        self.assertEqual(ret(w, "read", peer=first.name, remote_addr=base, len=100), 0)
        self.assertEqual(ret(w, "probe", peer=first.name), 0)


class Version1(PeerTestCase):
    """A version-1 target says nothing about a write; our initiator finds out all the same."""

    def test_silence_of_a_real_target(self) -> None:
        """The real initiator reports these writes as completed."""
        a, b, base = self.start_pair(OURS, WHEEL, env=VERSION_1)
        for length in (1, 100, 64 * KIB, MIB):
            self.assertEqual(ret(a, "write", peer=b.name, remote_addr=NOWHERE, len=length), -1)
            self.assertEqual(ret(a, "write", peer=b.name, remote_addr=base, len=length), 0)
            self.assert_same_bytes(a, b, len=length)  # there when it is reported as completed

    def test_target_that_advertises_no_version(self) -> None:
        for version in (None, 1):
            with self.subTest(version=version):
                target = wire.Target(size=MIB, version=version)
                self.addCleanup(target.close)
                a = self.start(OURS)
                a("register", size=MIB, random=1)
                self.assertEqual(ret(a, "write", peer=target.name, remote_addr=target.base, len=5000), 0)
                self.assertEqual(bytes(target.memory[:5000]).hex(), a("peek", len=5000)["hex"])
                self.assertEqual({seen.opcode & wire.ACKNOWLEDGED for seen in target.seen}, {0})
                self.assertEqual(ret(a, "write", peer=target.name, remote_addr=NOWHERE, len=5000), -1)
                self.assertEqual(ret(a, "read", peer=target.name, remote_addr=target.base, off=9, len=500), 0)
                self.assertEqual(bytes(target.memory[:500]).hex(), a("peek", off=9, len=500)["hex"])

    def test_target_that_closes_at_once(self) -> None:
        """The real initiator reports such a version-1 write of 4 KiB as completed."""

        class Closing(wire.Target):
            def _serve_data(self, connection: socket.socket) -> None:
                return

        target = Closing(size=MIB, version=1)
        self.addCleanup(target.close)
        a = self.start(OURS)
        a("register", size=MIB)
        self.assertEqual(ret(a, "write", peer=target.name, remote_addr=target.base, len=4 * KIB), -1)


class Notifications(PeerTestCase):
    def pairs(self) -> List[Any]:
        return [(OURS, WHEEL), (WHEEL, OURS), (OURS, OURS)]

    def test_over_1_mib_is_refused_with_an_error(self) -> None:
        """The real engine answers 0 and loses it."""
        for target in (OURS, WHEEL):
            with self.subTest(target=target):
                a, b, base = self.start_pair(OURS, target)
                huge = {"name": "n", "msg": "x" * (MIB + 1)}
                before = checksum(b)
                reply = a("write", peer=b.name, remote_addr=base, len=100, notify=huge)
                self.assertEqual((reply["ret"], reply.get("submit")), (-1, 1), reply)
                self.assertEqual(checksum(b), before, "the transfer of a refused submit was carried out")
                self.assertEqual(ret(a, "notify", peer=b.name, notify=huge), -1)
                # What is below the limit once encoded arrives.
                large = {"name": "n", "msg": "y" * (MIB - 1000)}
                self.assertEqual(ret(a, "write", peer=b.name, remote_addr=base, len=100, notify=large), 0)
                arrived: List[Any] = []
                self.assertTrue(eventually(lambda: arrived.extend(b("notifies")["notifies"]) or arrived))
                self.assertEqual(arrived, [large])

    def test_only_on_success(self) -> None:
        text = {"name": "n", "msg": "must not arrive"}
        for initiator, target in self.pairs():
            with self.subTest(initiator=initiator, target=target):
                a, b, base = self.start_pair(initiator, target, env=NO_POOL)
                bad, good = {"remote_addr": NOWHERE, "len": 10}, {"remote_addr": base, "len": 10}
                self.assertEqual(ret(a, "write", peer=b.name, notify=text, **bad), -1)
                self.assertEqual(ret(a, "batch_write", peer=b.name, items=[good, bad, good], notify=text), -1)
                last = {"name": "n", "msg": "the only one"}
                self.assertEqual(ret(a, "write", peer=b.name, notify=last, **good), 0)
                arrived: List[Any] = []
                self.assertTrue(eventually(lambda: arrived.extend(b("notifies")["notifies"]) or arrived))
                self.assertEqual(arrived, [last])

    def test_each_exactly_once(self) -> None:
        for initiator, target in self.pairs():
            with self.subTest(initiator=initiator, target=target):
                a, b, base = self.start_pair(initiator, target)
                sent = [{"name": f"n{i}", "msg": f"message {i}"} for i in range(100)]
                for text in sent:
                    self.assertEqual(ret(a, "write", peer=b.name, remote_addr=base, len=1, notify=text), 0)
                arrived: List[Any] = []
                self.assertTrue(eventually(lambda: arrived.extend(b("notifies")["notifies"]) or len(arrived) >= 100))
                self.assertEqual(sorted(a["msg"] for a in arrived), sorted(s["msg"] for s in sent))
                self.assertEqual(b("notifies")["notifies"], [])

    def test_of_a_length_0_transfer(self) -> None:
        for initiator, target in self.pairs():
            with self.subTest(initiator=initiator, target=target):
                a, b, base = self.start_pair(initiator, target)
                text = {"name": "zero", "msg": "bytes"}
                self.assertEqual(ret(a, "write", peer=b.name, remote_addr=base, len=0, notify=text), 0)
                arrived: List[Any] = []
                self.assertTrue(eventually(lambda: arrived.extend(b("notifies")["notifies"]) or arrived))
                self.assertEqual(arrived, [text])

    def test_without_a_transfer(self) -> None:
        for target in (OURS, WHEEL):
            with self.subTest(target=target):
                a, b = self.start(OURS), self.start(target)
                texts = [
                    {"name": "first", "msg": "contact"},
                    {"name": "", "msg": ""},
                    {"name": "control", "msg": "\x01\x7f\t\r\n"},
                    {"name": "astral", "msg": "\U0001f600 \u20ac"},
                ]
                for text in texts:
                    self.assertEqual(ret(a, "notify", peer=b.name, notify=text), 0)
                self.assertEqual(b("notifies")["notifies"], texts)

    def test_to_a_dead_peer_is_an_error(self) -> None:
        a, b, _ = self.start_pair(OURS, WHEEL)
        self.assertEqual(ret(a, "notify", peer=b.name, notify={"name": "n", "msg": "m"}), 0)
        b.kill()
        self.assertLess(ret(a, "notify", peer=b.name, notify={"name": "n", "msg": "m"}), 0)
