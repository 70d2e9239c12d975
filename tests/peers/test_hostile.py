"""Raw sockets against our engine's control port and data port: nothing a stranger sends harms anybody else.

After each attack the engine serves a good client, memory and descriptors are as before, and the log says in a few lines
who it was and why.
"""

from __future__ import annotations

import contextlib
import json
import re
import select
import socket
import struct
import time
from typing import Callable, Dict, List, Optional

import wire
from peer_client import OURS, Peer
from support import KIB, MIB, PATIENCE, PeerTestCase, checksum, data_port, eventually, ret

NOISE = bytes(range(100, 164))
NOWHERE = 4096
REJECTED = struct.pack("<II", 1, wire.STATUS_MAGIC)
ACCEPTED = struct.pack("<II", 0, wire.STATUS_MAGIC)
LINES = 60  # as many lines may one kind of attack leave in the log, however often it is repeated
GROWTH = 192 * MIB  # as much may the process grow by ten thousand connections


def deep(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


def exchange(address: wire.Address, data: bytes, finish: bool = False, wait: float = PATIENCE) -> Optional[bytes]:
    """Sends data on a new connection; what comes back until the other side closes, or None if it does not close."""
    answer = bytearray()
    with socket.create_connection(address, PATIENCE) as connection:
        connection.settimeout(wait)
        try:
            connection.sendall(data)
            if finish:
                connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(65536):
                answer += piece
        except TimeoutError:
            return None
        except OSError:
            pass
    return bytes(answer)


class Hostile(PeerTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.b = self.start(OURS)
        self.base = self.b("register", size=MIB, random=2)["addr"]
        self.secret = self.b("register", size=64 * KIB, random=3, remote_accessible=0)
        self.free = self.b("allocate", size=64 * KIB, random=4)
        self.rpc = wire.address_of(self.b.name)
        self.data = (self.rpc[0], data_port(self.b.name))
        self.sums = [checksum(self.b, buf=i) for i in range(3)]
        self.good = self.start(OURS)
        self.good("register", size=MIB, random=1)
        self.serves()
        self.b("fill", random=2)
        self.descriptors = self.b.descriptors()

    def serves(self) -> None:
        """A good client is served."""
        self.assertEqual(ret(self.good, "probe", peer=self.b.name), 0)
        for op in ("write", "read"):
            reply = self.good(op, peer=self.b.name, remote_addr=self.base, len=64 * KIB)
            self.assertEqual(reply["ret"], 0, reply)
        self.assert_same_bytes(self.good, self.b, len=64 * KIB)

    def unharmed(self) -> None:
        self.serves()
        self.assertEqual([checksum(self.b, buf=i) for i in (1, 2)], self.sums[1:])
        self.assertTrue(
            eventually(lambda: self.b.descriptors() <= self.descriptors + 2), "descriptors of strangers are kept"
        )

    def leaves_few_lines(self, attack: Callable[[wire.Address, wire.Address], None], times: int) -> None:
        """A fresh engine's log says who it was, and the why in words; a few lines, however often it happens."""
        b = self.start(OURS)
        address = wire.address_of(b.name)
        data = (address[0], data_port(b.name))
        for _ in range(times):
            attack(address, data)
        self.assertEqual(ret(self.good, "probe", peer=b.name), 0)
        lines = [line for line in b.log_text().splitlines() if re.search(r"127\.0\.0\.1:\d+", line)]
        self.assertNotEqual(lines, [], f"no line says who:\n{b.log_text()}")
        self.assertLess(len(b.log_text().splitlines()), LINES, "the log is flooded")

    # The control port

    def control_cases(self) -> Dict[str, bytes]:
        cases = {
            "noise": NOISE,
            "an HTTP request": b"GET / HTTP/1.0\r\n\r\n",
            "length 0": struct.pack("<Q", 0),
            "length 2^63": struct.pack("<QB", 1 << 63, 1) + b"{}",
            "length 2^64-1": struct.pack("<QB", (1 << 64) - 1, 1) + b"{}",
            "length 1 MiB + 1": struct.pack("<QB", MIB + 1, 1) + b"{}",
            "type 1, empty text": wire.frame(1, b""),
            "type 1, no JSON": wire.frame(1, b"hello"),
            "type 200": wire.frame(200, b"{}"),
            "type 4": wire.frame(4, b"{}"),
            "NUL bytes": wire.frame(2, b'{"name":"a\0b","notify_msg":"c\0d"}'),
            "only NUL bytes": bytes(4096),
            "invalid UTF-8": wire.frame(2, b'{"name":"\xff\xfe","notify_msg":"\xc3"}'),
            "half an escape": wire.frame(2, b'{"name":"\\ud800","notify_msg":"\\u00'),
            "a frame in old framing, not JSON": struct.pack("<Q", 3) + b"{x}",
        }
        for kind in range(4):
            for title, body in {
                "[1]": b"[1]",
                "a number": b"5",
                "a text": b'"s"',
                "null": b"null",
                "1100 deep": deep(1100),
                "500 000 deep": deep(500_000),
                "unclosed, 500 000 deep": b"[" * 500_000,
                "a long number": b"9" * 100_000,
                "a long text": b'"' + b"x" * (MIB - 10) + b'"',
                "many keys": json.dumps({f"k{i}": i for i in range(50_000)}).encode(),
            }.items():
                cases[f"type {kind}, {title}"] = wire.frame(kind, body)
        for kind, text in (
            (0, '{"local_nic_path":{}}'),
            (0, '{"local_nic_path":5}'),
            (0, '{"qp_num":[-1]}'),
            (0, '{"qp_num":["x"]}'),
            (0, '{"reply_msg":[1]}'),
            (1, '{"buffers":{"a":1}}'),
            (1, '{"buffers":[{"addr":"x","length":-1}]}'),
            (1, '{"tcp_data_port":"5","protocol":["tcp"]}'),
            (2, '{"name":{}}'),
            (2, '{"name":1,"notify_msg":[]}'),
            (2, "{}"),
        ):
            cases[f"type {kind}, {text}"] = wire.frame(kind, text.encode())
        return cases

    def test_malformed_frames_on_the_control_port(self) -> None:
        for title, data in self.control_cases().items():
            with self.subTest(title):
                exchange(self.rpc, data, finish=True)
                self.assertTrue(self.b.alive())
                self.assertEqual(ret(self.good, "probe", peer=self.b.name), 0)
        self.b("notifies")  # some of those were messages
        self.unharmed()

    def test_malformed_frames_are_logged_in_a_few_lines(self) -> None:
        for title, data in (
            ("noise", NOISE),
            ("no JSON", wire.frame(1, b"hello")),
            ("wrong type", wire.frame(0, b'{"qp_num":[-1]}')),
            ("length", struct.pack("<QB", MIB + 1, 1) + b"{}"),
        ):
            with self.subTest(title):
                self.leaves_few_lines(lambda rpc, _, data=data: exchange(rpc, data, finish=True), 500)

    def test_half_a_frame_then_close(self) -> None:
        whole = wire.frame(1, b'{"name":"x"}')
        for length in range(len(whole)):
            exchange(self.rpc, whole[:length], finish=True)
        self.unharmed()

    def test_a_frame_in_single_bytes_is_answered(self) -> None:
        with socket.create_connection(self.rpc, PATIENCE) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in wire.frame(wire.PROBE, b"{}"):
                connection.sendall(bytes([byte]))
            head = wire.receive_exactly(connection, 8)
            answer = wire.receive_exactly(connection, struct.unpack("<Q", head)[0])
        self.assertEqual(json.loads(answer[1:]), {"status": "success"})

    def test_requests_closed_before_the_reply(self) -> None:
        for _ in range(500):
            with socket.create_connection(self.rpc, PATIENCE) as connection:
                connection.sendall(wire.frame(wire.METADATA, b"{}"))
        self.unharmed()

    def test_reply_that_nobody_reads(self) -> None:
        """Descriptors larger than socket buffers, asked for by clients that read nothing."""
        self.b("register_batch", sizes=[4096] * 5000)
        with contextlib.ExitStack() as stack:
            for _ in range(50):
                connection = stack.enter_context(socket.socket())
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                connection.connect(self.rpc)
                connection.sendall(wire.frame(wire.METADATA, b"{}"))
            self.serves()
        self.unharmed()

    def test_silent_and_slow_clients_are_closed(self) -> None:
        """Slow-loris: a byte every now and then keeps no connection for ever, and none delays a good client."""
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(socket.create_connection(self.rpc, PATIENCE)) for _ in range(200)]
            waiting = {connection: wire.frame(1, b" " * 2000 + b"{}") for connection in connections}
            deadline = time.monotonic() + 2 * PATIENCE
            while waiting and time.monotonic() < deadline:
                for connection in list(waiting):
                    try:
                        connection.sendall(waiting[connection][:1])
                        waiting[connection] = waiting[connection][1:]
                    except OSError:
                        del waiting[connection]
                self.assertEqual(ret(self.good, "probe", peer=self.b.name), 0)
                readable, _, _ = select.select(list(waiting), [], [], 0.5) if waiting else ([], [], [])
                for connection in readable:
                    with contextlib.suppress(OSError):
                        self.assertEqual(connection.recv(1), b"")
                    waiting.pop(connection, None)
            self.assertEqual(len(waiting), 0, "slow clients are still connected")
        self.unharmed()

    # The data port

    def test_malformed_requests_on_the_data_port(self) -> None:
        end = self.base + MIB
        cases = {
            "noise": NOISE,
            "an HTTP request": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            "v2 write, unregistered": wire.request(0x81, NOWHERE, 5) + b"hello",
            "v1 write, unregistered": wire.request(0x01, NOWHERE, 5) + b"hello",
            "v2 read, unregistered": wire.request(0x80, NOWHERE, 5),
            "v1 read, unregistered": wire.request(0x00, NOWHERE, 5),
            "v2 write over the end": wire.request(0x81, end - 4, 5) + b"hello",
            "v2 write from before the start": wire.request(0x81, self.base - 1, 5) + b"hello",
            "v2 write, length 0": wire.request(0x81, self.base, 0),
            "v1 read, length 0": wire.request(0x00, self.base, 0),
            "v2 read, length 2^64-1": wire.request(0x80, self.base, (1 << 64) - 1),
            "v2 read, wraps": wire.request(0x80, (1 << 64) - 8, 16),
            "v2 write, length 2^63": wire.request(0x81, self.base, 1 << 63) + b"x" * 1000,
            "v2 write, not remotely accessible": wire.request(0x81, self.secret["addr"], 64) + b"x" * 64,
            "v2 read, not remotely accessible": wire.request(0x80, self.secret["addr"], 64),
            "v2 read, allocated and not registered": wire.request(0x80, self.free["addr"], 64),
            "v1 read, allocated and not registered": wire.request(0x00, self.free["addr"], 64),
        }
        for title, data in cases.items():
            with self.subTest(title):
                answer = exchange(self.data, data)
                self.assertIsNotNone(answer, "still open")
                wanted = REJECTED if title.startswith("v2") else b""
                if len(data) > 24 and not answer:
                    continue  # closed with unread bytes: a reset may overtake the answer
                if title != "noise" and "HTTP" not in title:
                    self.assertEqual(answer, wanted)
        self.unharmed()
        self.assertEqual(checksum(self.b, off=64 * KIB), checksum_after(self, 64 * KIB))

    def test_rejections_are_logged_in_a_few_lines(self) -> None:
        for title, request in (
            ("v2 read", wire.request(0x80, NOWHERE, 5)),
            ("v1 write", wire.request(0x01, NOWHERE, 5) + b"hello"),
            ("noise", NOISE),
        ):
            with self.subTest(title):
                self.leaves_few_lines(lambda _, data, request=request: exchange(data, request, finish=True), 500)

    def test_a_peer_reaches_only_what_is_registered_for_it(self) -> None:
        """Every byte around and between regions, by both versions and in both directions."""
        for address in (self.secret["addr"], self.free["addr"], self.base + MIB, self.base - 1, NOWHERE, 0):
            for opcode in (0x00, 0x80, 0x82, 0x02, 0x7F, 0xFF):
                with self.subTest(address=address, opcode=opcode):
                    self.assertIn(exchange(self.data, wire.request(opcode, address, 1)), (b"", REJECTED))
            for opcode in (0x01, 0x81):
                with self.subTest(address=address, opcode=opcode):
                    self.assertIn(exchange(self.data, wire.request(opcode, address, 1) + b"!"), (b"", REJECTED))
        self.unharmed()

    def test_unknown_opcodes_read(self) -> None:
        """As the real engine does: the low seven bits are 1 for a write, anything else for a read."""
        expected = bytes.fromhex(self.b("peek", len=4)["hex"])
        for opcode, head in ((0x82, ACCEPTED), (0xFE, ACCEPTED), (0x02, b""), (0x7F, b"")):
            with self.subTest(opcode=opcode):
                answer = exchange(self.data, wire.request(opcode, self.base, 4), finish=True)
                self.assertEqual(answer, head + expected)

    def test_requests_of_both_versions_on_one_connection(self) -> None:
        data = (
            wire.request(0x01, self.base, 4)
            + b"abcd"
            + wire.request(0x80, self.base, 4)
            + wire.request(0x81, self.base + 1, 2)
            + b"XY"
            + wire.request(0x00, self.base, 4)
        )
        for piece in (len(data), 1, 7):
            with self.subTest(piece=piece), socket.create_connection(self.data, PATIENCE) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for at in range(0, len(data), piece):
                    connection.sendall(data[at : at + piece])
                answer = wire.receive_exactly(connection, 8 + 4 + 8 + 4)
                self.assertEqual(answer, ACCEPTED + b"abcd" + ACCEPTED + b"aXYd")

    def test_half_a_request_then_close(self) -> None:
        whole = wire.request(0x81, self.base, 1000) + b"h" * 1000
        for length in (1, 8, 16, 23, 24, 25, 500, 1023):
            for _ in range(20):
                exchange(self.data, whole[:length], finish=True)
        self.unharmed()

    def test_half_a_request_then_silence(self) -> None:
        """Two hundred of them hold nobody up; what they hold is given back when they close."""
        with contextlib.ExitStack() as stack:
            for number in range(200):
                connection = stack.enter_context(socket.create_connection(self.data, PATIENCE))
                connection.sendall((wire.request(0x81, self.base, 1000) + b"h" * 10)[: 5 + number % 30])
            self.serves()
        self.unharmed()

    def test_answers_that_nobody_reads(self) -> None:
        """Fifty clients ask for a mebibyte each, a hundred times, and read nothing."""
        with contextlib.ExitStack() as stack:
            before = self.b.resident_bytes()
            for _ in range(50):
                connection = stack.enter_context(socket.create_connection(self.data, PATIENCE))
                connection.sendall(wire.request(0x80, self.base, MIB) * 100)
            self.serves()
            self.assertLess(self.b.resident_bytes() - before, 32 * MIB)
        self.unharmed()

    def test_unregister_is_not_held_up_for_ever_by_a_stalled_client(self) -> None:
        """Half a body in flight: unregister comes back, and what arrives later lands nowhere."""
        with socket.create_connection(self.data, PATIENCE) as connection:
            connection.sendall(wire.request(0x81, self.base, 1000) + b"h" * 10)
            self.assertTrue(eventually(lambda: self.b("peek", len=10)["hex"] == b"h".hex() * 10))
            self.assertEqual(ret(self.b, "unregister", buf=0), 0)
            self.b("fill", hex="00")
            with contextlib.suppress(OSError):
                connection.sendall(b"h" * 990)
                connection.recv(8)
            self.assertEqual(self.b("peek", len=1000)["hex"], "00" * 1000)
        self.assertEqual(ret(self.b, "register", addr=self.base, size=MIB), 0)
        self.unharmed()

    # Many at once

    def crowd(self, address: wire.Address, count: int, first: bytes = b"") -> None:
        before = self.b.resident_bytes()
        with contextlib.ExitStack() as stack:
            for number in range(count):
                connection = stack.enter_context(socket.create_connection(address, PATIENCE))
                if first:
                    connection.sendall(first)
                if number % 1000 == 0:
                    self.serves()
            self.serves()
            self.assertLess(self.b.resident_bytes() - before, GROWTH)
        self.unharmed()

    def test_10000_connections_to_the_control_port(self) -> None:
        self.crowd(self.rpc, 10000)

    def test_10000_connections_to_the_control_port_with_half_a_frame(self) -> None:
        """Each announces a mebibyte and sends nine bytes of it: memory must follow what came, not what was announced."""
        self.crowd(self.rpc, 10000, struct.pack("<QB", MIB, 1) + b"{")

    def test_10000_connections_to_the_data_port(self) -> None:
        self.crowd(self.data, 10000)

    def test_10000_connections_to_the_data_port_with_half_a_body(self) -> None:
        self.crowd(self.data, 10000, wire.request(0x81, self.base + MIB - 1000, 1000) + b"h" * 10)

    def test_out_of_descriptors(self) -> None:
        """An engine that may have 100 descriptors, and 300 strangers: it stays, and serves again when they are gone."""
        b = self.start(OURS, open_files=100)
        base = b("register", size=MIB, random=5)["addr"]
        self.assertEqual(ret(self.good, "write", peer=b.name, remote_addr=base, len=100), 0)
        for address in (wire.address_of(b.name), (self.rpc[0], data_port(b.name))):
            strangers: List[socket.socket] = []
            try:
                for _ in range(300):
                    stranger = socket.socket()
                    stranger.settimeout(PATIENCE)
                    strangers.append(stranger)
                    stranger.connect(address)
                self.assertTrue(b.alive())
            finally:
                for stranger in strangers:
                    stranger.close()
            self.assertTrue(eventually(lambda: ret(self.good, "probe", peer=b.name) == 0))
            reply = self.good("write", peer=b.name, remote_addr=base, len=MIB)
            self.assertEqual(reply["ret"], 0, reply)
        self.assertLess(len(b.log_text().splitlines()), LINES, "the log is flooded")


def checksum_after(test: Hostile, offset: int) -> str:
    """Of what the first buffer holds from offset on if nobody but the test has written to it."""
    test.free["copy"] = test.b("allocate", size=MIB, random=2)["buf"]
    return checksum(test.b, buf=test.free["copy"], off=offset)


class Strangers(PeerTestCase):
    """Our initiator and a target that misbehaves: the task fails, in bounded time, and nothing else happens."""

    QUICK = {"TE_TCP_SILENCE_TIMEOUT_MS": "1000", "TE_HANDSHAKE_REPLY_TIMEOUT_MS": "1000"}

    def initiator(self) -> Peer:
        a = self.start(OURS, env=self.QUICK)
        a("register", size=4 * MIB, random=1)
        return a

    def odd_data(self, serve: Callable[[socket.socket], None], version: int = 2) -> wire.Target:
        class Odd(wire.Target):
            def _serve_data(self, connection: socket.socket) -> None:
                serve(connection)

        target = Odd(size=4 * MIB, version=version)
        self.addCleanup(target.close)
        return target

    def test_odd_answers_on_the_data_port(self) -> None:
        def sends(reply: bytes, hold: bool) -> Callable[[socket.socket], None]:
            def serve(connection: socket.socket) -> None:
                wire.receive_exactly(connection, 24)
                connection.sendall(reply)
                if hold:
                    while connection.recv(65536):
                        pass

            return serve

        a = self.initiator()
        for title, reply, hold in (
            ("closes", b"", False),
            ("silence", b"", True),
            ("status 1", REJECTED, True),
            ("unknown status", struct.pack("<II", 77, wire.STATUS_MAGIC), True),
            ("wrong magic", bytes(8), True),
            ("half a status", ACCEPTED[:5], False),
            ("half a status, then silence", ACCEPTED[:5], True),
        ):
            for op in ("write", "read"):
                for length in (100, 4 * MIB):
                    with self.subTest(title, op=op, length=length):
                        target = self.odd_data(sends(reply, hold))
                        reply_of_peer = a(op, peer=target.name, remote_addr=target.base, len=length)
                        self.assertEqual(reply_of_peer["ret"], -1, reply_of_peer)
                        target.close()
        for title, reply, hold in (
            ("half a body", ACCEPTED + b"x" * 50, False),
            ("half a body, then silence", ACCEPTED + b"x" * 50, True),
        ):
            with self.subTest(title):
                target = self.odd_data(sends(reply, hold))
                self.assertEqual(ret(a, "read", peer=target.name, remote_addr=target.base, len=100), -1)
        self.still_works(a)

    def test_more_bytes_than_were_asked_for(self) -> None:
        def serve(connection: socket.socket) -> None:
            while len(wire.receive_exactly(connection, 24)) == 24:
                connection.sendall(ACCEPTED + b"x" * 100 + b"surplus" * 10)

        a = self.initiator()
        target = self.odd_data(serve)
        before = checksum(a, off=100)
        for _ in range(5):
            a("read", peer=target.name, remote_addr=target.base, len=100)
        self.assertEqual(checksum(a, off=100), before, "surplus bytes of a peer have been stored")
        self.still_works(a)

    def test_odd_answers_on_the_control_port(self) -> None:
        class Odd(wire.Target):
            answer = b""

            def _serve_rpc(self, connection: socket.socket) -> None:
                head = wire.receive_exactly(connection, 8)
                wire.receive_exactly(connection, struct.unpack("<Q", head)[0])
                connection.sendall(self.answer)

        a = self.initiator()
        good = wire.Target()
        self.addCleanup(good.close)
        descriptor = good.descriptor

        def changed(**fields: Any) -> bytes:
            return wire.frame(wire.METADATA, json.dumps({**descriptor, **fields}).encode())

        buffer = descriptor["buffers"][0]
        refused = {
            "nothing": b"",
            "half a frame": changed()[:50],
            "another type": wire.frame(wire.NOTIFY, json.dumps(descriptor).encode()),
            "no type byte": struct.pack("<Q", 2) + b"{}",
            "no JSON": wire.frame(wire.METADATA, b"hello"),
            "null": wire.frame(wire.METADATA, b"null"),
            "[1]": wire.frame(wire.METADATA, b"[1]"),
            "deep": wire.frame(wire.METADATA, deep(100_000)),
            "length 2^63": struct.pack("<QB", 1 << 63, 1) + b"{}",
            "length 2 MiB": struct.pack("<QB", 2 * MIB, 1) + b"{}" + b" " * (2 * MIB),
            "protocol an array": changed(protocol=["tcp"]),
            "protocol an object": changed(protocol={}),
            "protocol unknown": changed(protocol="foo"),
            "buffers an object": changed(buffers={"a": 1}),
            "addr a text": changed(buffers=[{**buffer, "addr": "4096"}]),
            "addr negative": changed(buffers=[{**buffer, "addr": -1}]),
        }
        for title, answer in refused.items():
            with self.subTest(title):
                target = Odd()
                target.answer = answer
                reply = a("open", peer=target.name)
                self.assertLess(reply["ret"], 0, reply)
                self.assertNotEqual(reply["reason"], "")
                target.close()
        accepted = {
            "as it should be": changed(),
            "unknown fields": changed(foo=[None]),
            "comments": wire.frame(wire.METADATA, b"/* c */" + json.dumps(descriptor).encode()),
            "text after the object": wire.frame(wire.METADATA, json.dumps(descriptor).encode() + b" xyz"),
            "no timestamp": wire.frame(
                wire.METADATA, json.dumps({k: v for k, v in descriptor.items() if k != "timestamp"}).encode()
            ),
        }
        for title, answer in accepted.items():
            with self.subTest(title):
                target = Odd()
                self.addCleanup(target.close)
                target.answer = answer
                self.assertGreater(a("open", peer=target.name)["ret"], 0)
        self.still_works(a)

    def test_control_port_that_never_answers(self) -> None:
        a = self.initiator()
        with socket.create_server(("127.0.0.1", 0)) as silent:
            name = f"127.0.0.1:{silent.getsockname()[1]}"
            self.assertLess(ret(a, "open", peer=name), 0)
            self.assertEqual(ret(a, "probe", peer=name), -102)
        self.still_works(a)

    def test_open_of_nobody(self) -> None:
        a = self.initiator()
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        for name, code in ((f"127.0.0.1:{port}", -102), ("nosuch.invalid:5", -101), ("", -1), ("///", -1)):
            with self.subTest(name=name):
                self.assertEqual(ret(a, "open", peer=name), -1)
                if name.strip("/"):
                    self.assertEqual(ret(a, "probe", peer=name), code)
        self.still_works(a)

    def still_works(self, a: Peer) -> None:
        target = wire.Target(size=MIB)
        self.addCleanup(target.close)
        self.assertEqual(ret(a, "write", peer=target.name, remote_addr=target.base, len=1000), 0)
        self.assertEqual(bytes(target.memory[:1000]).hex(), a("peek", len=1000)["hex"])
