"""The real engine's own benchmark program as the initiator, our engine as its target."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import subprocess
import time
from typing import Dict, List

from peer_client import OURS
from support import KIB, MIB, MODES, PeerTestCase, checksum

SIZE = 32 * MIB
# What the real engine without its pool sometimes says of a connection on which data flows, long before 30 s (COMPAT.md).
FALSE_ALARM = "no transfer progress within 30s"
ATTEMPTS = 5


def program() -> str:
    package = importlib.util.find_spec("mooncake")
    assert package and package.submodule_search_locations
    return str(pathlib.Path(package.submodule_search_locations[0]) / "transfer_engine_bench")


class Bench(PeerTestCase):
    def initiate(self, segment: str, op: str, block: int, batch: int, threads: int, env: Dict[str, str]) -> int:
        """Runs it for a second; returns how many batches it did. Its status is 0 only if no transfer failed."""
        command: List[str] = [
            program(),
            "--mode=initiator",
            "--metadata_server=P2PHANDSHAKE",
            "--local_server_name=127.0.0.1",
            "--protocol=tcp",
            f"--buffer_size={SIZE}",
            f"--segment_id={segment}",
            f"--operation={op}",
            f"--block_size={block}",
            f"--batch_size={batch}",
            f"--threads={threads}",
            "--duration=1",
        ]
        for _ in range(ATTEMPTS):
            begin = time.monotonic()
            run = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=90, env={**os.environ, **env})
            if FALSE_ALARM not in run.stderr or time.monotonic() - begin >= 30:
                break
        self.assertEqual(run.returncode, 0, run.stderr[-2000:])
        found = re.search(r"batch count (\d+)", run.stderr)
        assert found, run.stderr[-2000:]
        return int(found.group(1))

    def runs(self, op: str, block: int, batch: int, threads: int, env: Dict[str, str]) -> None:
        b = self.start(OURS)
        b("register", size=SIZE, random=7)
        used = block * batch * threads
        before = checksum(b), checksum(b, off=used)
        self.assertGreater(self.initiate(b.name, op, block, batch, threads, env), 0)
        self.assertEqual(checksum(b, off=used), before[1], "bytes beyond the benchmark's range have changed")
        if op == "read":
            self.assertEqual(checksum(b), before[0], "a read has changed the target")
        else:  # all blocks come from one buffer that the program has filled evenly
            unit = b("peek", len=block)["hex"]
            for at in range(0, used, block):
                self.assertEqual(b("peek", off=at, len=block)["hex"], unit, f"block at {at}")


def add_cases() -> None:
    for op in ("read", "write"):
        for mode in MODES:
            for block, batch, threads in ((64 * KIB, 16, 1), (4 * KIB, 1, 1), (16 * KIB, 32, 4)):

                def test(self: Bench, arguments: tuple = (op, block, batch, threads, mode.env)) -> None:
                    self.runs(*arguments)

                test.__name__ = f"test_{op}_{block:06}_x_{batch:02}_threads_{threads}_{mode.title}"
                setattr(Bench, test.__name__, test)


add_cases()
