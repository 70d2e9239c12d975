"""Peers that end, are killed, and come back: in each pairing the other side goes on."""

from __future__ import annotations

import contextlib
import subprocess
import time
from typing import Any, Dict, Iterator, List, Sequence

import wire
from peer_client import OURS, WHEEL, Peer
from support import MIB, PAIRINGS, PATIENCE, VERSION_1, PeerTestCase, data_port, eventually, port_range, ret

# The real engine looks at a peer's descriptor again only when told to.
REFRESH: Dict[str, Dict[str, str]] = {OURS: {}, WHEEL: {"MC_DISABLE_METACACHE": "1"}}


@contextlib.contextmanager
def quick_ports() -> Iterator[Sequence[str]]:
    """A command prefix that starts programs in a network of their own, where ports are free at once after their use.

    The real engine binds without SO_REUSEADDR, so that elsewhere the ports of an ended target are refused for a minute.
    Where no such network can be made, the prefix is empty and the test waits out that minute.
    """
    script = "ip link set lo up && echo 0 >/proc/sys/net/ipv4/tcp_max_tw_buckets && echo ready && exec sleep 600"
    with subprocess.Popen(
        ["unshare", "--net", "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as holder:
        assert holder.stdout
        try:
            made = holder.stdout.readline().strip() == "ready"
            yield ["nsenter", "--net", f"--target={holder.pid}"] if made else []
        finally:
            holder.kill()


class Restarts(PeerTestCase):
    def restart(self, kind: str, name: str, env: Dict[str, str], prefix: Sequence[str] = ()) -> Peer:
        """A new engine that has the name; the port is drawn from a small range, so it takes some tries."""
        deadline = time.monotonic() + 2 * PATIENCE
        while time.monotonic() < deadline:
            peer = Peer(kind, local=None, env=env, prefix=prefix)
            if peer("init", local="127.0.0.1").get("name") == name:
                peer.name = name
                self.adopt(peer)
                return peer
            peer.close()
        raise AssertionError(f"{kind} did not get the name {name} again")

    def adopt(self, peer: Peer) -> None:
        self.peers.append(peer)
        self.addCleanup(self._end, peer)

    def restarted_target(self, initiator: str, target: str, kill: bool) -> None:
        ports = port_range(15990, 15993)
        with quick_ports() as prefix:
            a = self.start(initiator, env=REFRESH[initiator], prefix=prefix)
            b = self.start(target, env=ports, prefix=prefix)
            a("register", size=MIB, random=1)
            write = {"peer": b.name, "len": 4096}
            self.assertEqual(ret(a, "write", remote_addr=b("register", size=MIB)["addr"], **write), 0)
            if kill:
                b.kill()
            else:
                b.close()
            c = self.restart(target, b.name, ports, prefix)
            c("register", size=4096)  # so that the addresses are others than before
            base = c("register", size=MIB)["addr"]
            if initiator == WHEEL:  # which has broken connections in its pool, and finds that out one by one
                eventually(lambda: ret(a, "write", remote_addr=base, **write) == 0)
            reply = a("write", remote_addr=base, **write)
            self.assertEqual(reply["ret"], 0, reply)
            self.assertEqual(c("checksum", buf=1, len=4096)["sha256"], a("checksum", len=4096)["sha256"])
            self.assertEqual(ret(a, "probe", peer=c.name), 0)
            a("write", remote_addr=base, notify={"name": "again", "msg": "here"}, **write)
            self.assertTrue(eventually(lambda: {"name": "again", "msg": "here"} in c("notifies")["notifies"]))

    def killed_target(self, initiator: str, target: str) -> None:
        """Killed amid traffic: everything under way ends as failed, and the initiator serves other peers."""
        a, b, base = self.start_pair(initiator, target, 64 * MIB)
        items = [{"off": i * MIB, "remote_addr": base + i * MIB, "len": MIB} for i in range(64)] * 4
        self.assertEqual(ret(a, "write", peer=b.name, remote_addr=base, len=100), 0)
        b.stop()  # lest it be through before it is killed
        batch = a("submit_batch", peer=b.name, op="write", items=items)["batch"]
        b.kill()
        self.assertEqual(ret(a, "wait", batches=[batch]), -1)
        self.assertEqual(ret(a, "write", peer=b.name, remote_addr=base, len=100), -1)
        self.assertEqual(ret(a, "read", peer=b.name, remote_addr=base, len=100), -1)
        self.assertLess(ret(a, "probe", peer=b.name), 0)
        c = self.start(target)
        elsewhere = c("register", size=MIB)["addr"]
        self.assertEqual(ret(a, "write", peer=c.name, remote_addr=elsewhere, len=MIB), 0)
        self.assert_same_bytes(a, c, len=MIB)

    def killed_initiator(self, initiator: str, target: str) -> None:
        """Killed amid traffic: the target serves others, and keeps nothing of the dead one."""
        a, b, base = self.start_pair(initiator, target, 64 * MIB)
        other = self.start(initiator)
        other("register", size=MIB, random=5)
        write = {"peer": b.name, "remote_addr": base, "len": MIB}
        self.assertEqual(ret(other, "write", **write), 0)
        before = b.descriptors()
        items = [{"off": i * MIB, "remote_addr": base + i * MIB, "len": MIB} for i in range(64)] * 4
        self.assertNotEqual(a("submit_batch", peer=b.name, op="write", items=items)["batch"], 0)
        a.kill()
        self.assertTrue(eventually(lambda: b.descriptors() <= before), "the target keeps descriptors")
        self.assertEqual(ret(other, "write", **write), 0)
        self.assert_same_bytes(other, b, len=MIB)

    def restarted_initiator(self, initiator: str, target: str) -> None:
        a, b, base = self.start_pair(initiator, target)
        for number in range(3):
            self.assertEqual(ret(a, "write", peer=b.name, remote_addr=base, len=MIB), 0)
            self.assert_same_bytes(a, b, len=MIB)
            a.close()
            a = self.start(initiator)
            a("register", size=MIB, random=10 + number)

    def test_restart_on_the_same_port_with_another_data_port(self) -> None:
        """Our initiator, and a target of which nothing but the name stays the same; three times, as it may get used."""
        a = self.start(OURS)
        a("register", size=MIB, random=1)
        target = wire.Target(size=MIB)
        for number in range(1, 4):
            self.addCleanup(target.close)
            for op in ("write", "read"):
                reply = a(op, peer=target.name, remote_addr=target.base, len=5000)
                self.assertEqual(reply["ret"], 0, reply)
            self.assertEqual(a("peek", len=5000)["hex"], target.memory[:5000].hex())
            target.close()
            port = target.descriptor["tcp_data_port"]
            target = wire.Target(
                size=MIB, port=wire.address_of(target.name)[1], base=target.base + number * 16 * MIB
            )
            self.assertNotEqual(port, target.descriptor["tcp_data_port"])

    def test_restart_noticed_although_the_old_data_port_belongs_to_another(self) -> None:
        """The dead peer's data port may be taken by a stranger, who refuses."""
        a = self.start(OURS)
        a("register", size=MIB, random=1)
        first = wire.Target(size=MIB)
        self.assertEqual(ret(a, "write", peer=first.name, remote_addr=first.base, len=100), 0)
        first.close()
        stranger = self.start(OURS)  # somewhere in the range; the test is about addresses that are not its own
        stranger("register", size=4096)
        second = wire.Target(size=MIB, port=wire.address_of(first.name)[1], base=first.base + 64 * MIB)
        self.addCleanup(second.close)
        second.descriptor["tcp_data_port"] = data_port(stranger.name)
        self.assertEqual(ret(a, "write", peer=first.name, remote_addr=second.base, len=100), -1)
        second.descriptor["tcp_data_port"] = second._data.getsockname()[1]
        reply = a("write", peer=first.name, remote_addr=second.base, len=100)
        self.assertEqual(reply["ret"], 0, reply)

    def test_connections_closed_by_an_idle_target_fail_nothing(self) -> None:
        """A target may close connections that wait for work: they are given up at once, the next request gets others."""
        a = self.start(OURS)
        a("register", size=MIB, random=1)
        target = wire.Target(size=MIB)
        self.addCleanup(target.close)
        for _ in range(5):
            reply = a("write", peer=target.name, remote_addr=target.base, len=100)
            self.assertEqual(reply["ret"], 0, reply)
            self.assertTrue(eventually(lambda: target.connections() == 1), "the connection was not kept")
            target.end_connections()
            self.assertTrue(eventually(lambda: target.connections() == 0), "an ended connection is kept")

    def test_reads_right_after_connections_were_dropped_are_served(self) -> None:
        """Nobody waits until the initiator has noticed. A write may then be lost, a read can be repeated."""
        for env in ({}, VERSION_1):
            a = self.start(OURS, env=env)
            a("register", size=MIB, random=1)
            target = wire.Target(size=MIB)
            self.addCleanup(target.close)
            target.memory[:] = bytes(i % 251 for i in range(MIB))
            for number in range(200):
                length = 1000 + number
                reply = a("read", peer=target.name, remote_addr=target.base + number, len=length)
                self.assertEqual(reply["ret"], 0, f"read {number} with {env}: {reply}")
                self.assertEqual(a("peek", len=length)["hex"], target.memory[number : number + length].hex())
                target.drop_connections()


def add_cases() -> None:
    cases: List[Any] = [
        ("target_ended_and_restarted", lambda self, a, b: self.restarted_target(a, b, kill=False)),
        ("target_killed_and_restarted", lambda self, a, b: self.restarted_target(a, b, kill=True)),
        ("target_killed", Restarts.killed_target),
        ("initiator_killed", Restarts.killed_initiator),
        ("initiator_restarted", Restarts.restarted_initiator),
    ]
    for title, run in cases:
        for initiator, target in PAIRINGS:

            def test(self: Restarts, run: Any = run, a: str = initiator, b: str = target) -> None:
                run(self, a, b)

            test.__name__ = f"test_{title}_{initiator}_to_{target}"
            setattr(Restarts, test.__name__, test)


add_cases()
