"""Starts peers, one engine in a process each, and talks to them. Standard library only, Python 3.9 and up.

Two kinds of peer understand the same commands: "wheel", the real Mooncake engine (mooncake_peer.py), and "ours", an
engine of this library (te_peer; the environment variable TE_PEER names the program).
"""

from __future__ import annotations

import json
import os
import pathlib
import queue
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from typing import Any, Dict, List, Optional, Sequence

HERE = pathlib.Path(__file__).resolve().parent
OURS, WHEEL = "ours", "wheel"


class PeerError(Exception):
    """The peer answered with "error"."""


class PeerDied(Exception):
    """The peer process ended, or did not answer in time; the text holds its status and the end of its log."""


def program(kind: str) -> List[str]:
    if kind == OURS:
        return [os.environ["TE_PEER"]]
    return [sys.executable, str(HERE / "mooncake_peer.py")]


class Peer:
    """One engine in its own process: peer("write", peer=name, ...) returns the reply.

    With local given the engine is initialised at once; a non-zero result raises PeerError. env is added to the
    environment, where engines look for their MC_* settings. open_files limits the file descriptors of the process;
    prefix is a command that starts the program in its turn. Use as a context manager, or call close().
    """

    def __init__(
        self,
        kind: str,
        local: Optional[str] = "127.0.0.1",
        env: Optional[Dict[str, str]] = None,
        open_files: Optional[int] = None,
        prefix: Sequence[str] = (),
    ) -> None:
        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))

        self.kind = kind
        self.log = tempfile.TemporaryFile("w+", errors="replace")
        self.process = subprocess.Popen(
            [*prefix, *program(kind)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            encoding="utf-8",
            errors="surrogateescape",
            env={**os.environ, **(env or {})},
            preexec_fn=limit if open_files else None,
        )
        assert self.process.stdin and self.process.stdout
        self._commands, self._replies = self.process.stdin, self.process.stdout
        self._lines: "queue.Queue[str]" = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        ready = self.receive()
        self.pid, self.version = ready["pid"], ready["version"]
        self.name, self.rpc_port = "", 0
        if local is not None:
            reply = self("init", local=local)
            if reply["ret"] != 0:
                self.close()
                raise PeerError(f"initialize returned {reply['ret']}\n{self.log_tail()}")
            self.name, self.rpc_port = reply["name"], reply["rpc_port"]

    def __call__(self, cmd: str, answer_within: float = 90.0, **fields: Any) -> Dict[str, Any]:
        self.send(cmd, **fields)
        return self.receive(answer_within)

    def send(self, cmd: str, **fields: Any) -> None:
        """Sends a command without waiting; take its reply with receive()."""
        try:
            self._commands.write(json.dumps({"cmd": cmd, **fields}) + "\n")
            self._commands.flush()
        except BrokenPipeError:
            raise self._died() from None

    def receive(self, answer_within: float = 90.0) -> Dict[str, Any]:
        try:
            line = self._lines.get(timeout=answer_within)
        except queue.Empty:
            raise PeerDied(f"{self.kind}: no answer within {answer_within} s\n{self.log_tail()}") from None
        if not line:
            raise self._died()
        reply = json.loads(line)
        if "error" in reply:
            raise PeerError(f"{self.kind}: {reply['error']}")
        return reply

    def log_text(self) -> str:
        # The process writes through a descriptor with the same offset: it must not be moved.
        with open(f"/proc/self/fd/{self.log.fileno()}", errors="replace") as log:
            return log.read()

    def log_tail(self, lines: int = 8) -> str:
        return "\n".join(self.log_text().splitlines()[-lines:])

    def alive(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> None:
        """Stops every thread of the process (SIGSTOP); returns when they have stopped."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self, number: int = signal.SIGKILL) -> int:
        """Ends the process abruptly; returns its status."""
        self.process.send_signal(number)
        return self.process.wait(timeout=30)

    def resident_bytes(self) -> int:
        for line in pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise PeerDied("no VmRSS")

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def close(self) -> int:
        """Lets the engine withdraw itself and returns the status of the process."""
        if self.alive():
            try:
                self.go_on()
                self._commands.close()
                self.process.wait(timeout=30)
            except (BrokenPipeError, subprocess.TimeoutExpired):
                self.process.kill()
        return self.process.wait(timeout=30)

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _read(self) -> None:
        for line in self._replies:
            self._lines.put(line)
        self._lines.put("")

    def _died(self) -> PeerDied:
        status = self.process.wait(timeout=30)
        how = signal.Signals(-status).name if status < 0 else f"exit {status}"
        return PeerDied(f"{self.kind}: process ended by {how}\n{self.log_tail(30)}")
