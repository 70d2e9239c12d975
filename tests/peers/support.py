"""What the tests of this folder share: a test case that owns its peers, and waits with a limit."""

from __future__ import annotations

import signal
import time
import unittest
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import wire
from peer_client import OURS, WHEEL, Peer

KIB, MIB = 1 << 10, 1 << 20
NO_POOL = {"MC_TCP_ENABLE_CONNECTION_POOL": "0"}
VERSION_1 = {"MC_TCP_PROTO": "1"}
# How long anything may take that ought to happen at once: a watchdog for broken code on a busy machine, no measure.
PATIENCE = 60.0


class Mode(NamedTuple):
    """How an initiator is told to use TCP."""

    title: str
    version: int
    env: Dict[str, str]


MODES = [
    Mode("v2_pool", 2, {}),
    Mode("v2_no_pool", 2, NO_POOL),
    Mode("v1_pool", 1, VERSION_1),
    Mode("v1_no_pool", 1, {**VERSION_1, **NO_POOL}),
]
# Who talks to whom: initiator and target. The last one shows whether a failure is that of the pairing.
PAIRINGS: List[Tuple[str, str]] = [(OURS, WHEEL), (WHEEL, OURS), (OURS, OURS)]


def eventually(condition: Callable[[], Any], limit: float = PATIENCE) -> bool:
    """Asks until condition holds; False if it does not within the limit."""
    deadline = time.monotonic() + limit
    pause = 0.001
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(pause * 2, 0.1)
    return True


class PeerTestCase(unittest.TestCase):
    """Peers that a test starts end with it, and ours must end cleanly unless the test has killed it."""

    longMessage = True

    def setUp(self) -> None:
        self.peers: List[Peer] = []

    def start(self, kind: str, **options: Any) -> Peer:
        peer = Peer(kind, **options)
        self.peers.append(peer)
        self.addCleanup(self._end, peer)
        return peer

    def start_pair(
        self, initiator: str, target: str, size: int = MIB, env: Optional[Dict[str, str]] = None
    ) -> Tuple[Peer, Peer, int]:
        """An initiator with env, a target, and the address of the target's first buffer, both filled."""
        a, b = self.start(initiator, env=env), self.start(target)
        a("register", size=size, random=1)
        return a, b, b("register", size=size, random=2)["addr"]

    def _end(self, peer: Peer) -> None:
        killed = not peer.alive() and peer.process.returncode == -signal.SIGKILL
        status = peer.close()
        if peer.kind == OURS and not killed:
            self.assertEqual(status, 0, f"our peer did not end cleanly\n{peer.log_tail(40)}")

    def assert_same_bytes(self, a: Peer, b: Peer, **part: Any) -> None:
        self.assertEqual(checksum(a, **part), checksum(b, **part))


def checksum(engine: Peer, /, **part: Any) -> str:
    return engine("checksum", **part)["sha256"]


def ret(engine: Peer, cmd: str, /, **fields: Any) -> int:
    return engine(cmd, **fields)["ret"]


def port_range(low: int, high: int) -> Dict[str, str]:
    return {"MC_MIN_RPC_PORT": str(low), "MC_MAX_RPC_PORT": str(high)}


def data_port(name: str) -> int:
    return wire.describe(name)["tcp_data_port"]

