"""The classic engine's wire, spoken without any engine: RPC frames, TCP data requests, and a target made of both.

Standard library only. Layouts: classic specification, sections 3 and 4.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

CONNECTION, METADATA, NOTIFY, PROBE = range(4)
READ, WRITE, ACKNOWLEDGED = 0x00, 0x01, 0x80
STATUS_MAGIC = 0x4D435456
LIMIT = 1 << 20

Address = Tuple[str, int]


def address_of(name: str) -> Address:
    """Host and port of a name such as 127.0.0.1:15000 or [::1]:15000."""
    host, _, port = name.rpartition(":")
    return host.strip("[]"), int(port)


def receive_exactly(connection: socket.socket, size: int) -> bytes:
    """size bytes, or fewer if the other side closes first."""
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            break
        data += piece
    return bytes(data)


def frame(kind: int, body: bytes) -> bytes:
    return struct.pack("<QB", len(body) + 1, kind) + body


def rpc(name: str, kind: int, body: Any, timeout: float = 10.0) -> Any:
    """One RPC; returns the decoded reply, or None when the other side closes without one."""
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    with socket.create_connection(address_of(name), timeout) as connection:
        connection.sendall(frame(kind, text))
        head = receive_exactly(connection, 8)
        if len(head) < 8:
            return None
        answer = receive_exactly(connection, struct.unpack("<Q", head)[0])
        assert answer[0] == kind, f"asked {kind}, got {answer[0]}"
        return json.loads(answer[1:])


def describe(name: str) -> Dict[str, Any]:
    """The segment descriptor of a P2P engine."""
    return rpc(name, METADATA, {})


def data_address(name: str) -> Address:
    return address_of(name)[0], describe(name)["tcp_data_port"]


def request(opcode: int, address: int, length: int) -> bytes:
    """The header of a TCP data request."""
    return struct.pack("<QQB7x", length, address, opcode)


class Seen(NamedTuple):
    """One data request that a Target served."""

    connection: int
    opcode: int
    address: int
    length: int


class Target:
    """A P2P target without an engine: size bytes of memory at a made-up address.

    It follows the data protocol of each request (bit 7) and records what it sees. version is what its descriptor
    advertises; with reject every data request is refused. port is that of the RPC service; the data port is always a
    free one, so that a target can be restarted under its old name with another data port.
    """

    def __init__(
        self,
        size: int = 1 << 20,
        version: Optional[int] = 2,
        host: str = "127.0.0.1",
        reject: bool = False,
        port: int = 0,
        base: int = 0x10000000,
    ) -> None:
        self.base = base
        self.memory = bytearray(size)
        self.seen: List[Seen] = []
        self.notifies: List[Dict[str, str]] = []
        self.reject = reject
        self._connections = 0
        self._closed = False
        self._open: Set[socket.socket] = set()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._rpc = socket.create_server((host, port), family=family, backlog=128)
        self._data = socket.create_server((host, 0), family=family, backlog=1024)
        self.name = (f"[{host}]" if ":" in host else host) + f":{self._rpc.getsockname()[1]}"
        self.descriptor: Dict[str, Any] = {
            "name": self.name,
            "protocol": "tcp",
            "tcp_data_port": self._data.getsockname()[1],
            "timestamp": "",
            "buffers": [{"name": self.name, "addr": self.base, "length": size}],
        }
        if version is not None:
            self.descriptor["tcp_proto_version"] = version
        for listener, serve in ((self._rpc, self._serve_rpc), (self._data, self._serve_data)):
            threading.Thread(target=self._accept, args=(listener, serve), daemon=True).start()

    def close(self) -> None:
        """Stops listening and ends all connections, as the end of a process would."""
        self._closed = True
        for listener in (self._rpc, self._data):
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self._shut_down(socket.SHUT_RDWR)

    def end_connections(self) -> None:
        """Sends the end of every connection; they are gone when the other side has ended them, too."""
        self._shut_down(socket.SHUT_WR)

    def drop_connections(self) -> None:
        """Ends every connection in both directions; what still comes over one is answered by a reset."""
        self._shut_down(socket.SHUT_RDWR)

    def connections(self) -> int:
        return len(self._open)

    def _shut_down(self, how: int) -> None:
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(how)

    def _accept(self, listener: socket.socket, serve: Any) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(serve, connection), daemon=True).start()

    def _serve(self, serve: Any, connection: socket.socket) -> None:
        self._open.add(connection)
        with connection:
            with contextlib.suppress(OSError):
                if not self._closed:
                    serve(connection)
        self._open.discard(connection)

    def _serve_rpc(self, connection: socket.socket) -> None:
        head = receive_exactly(connection, 8)
        if len(head) < 8 or not 1 <= struct.unpack("<Q", head)[0] <= LIMIT:
            return
        body = receive_exactly(connection, struct.unpack("<Q", head)[0])
        kind, content = body[0], json.loads(body[1:])
        if kind == NOTIFY:
            self.notifies.append(content)
        reply = {
            METADATA: self.descriptor,
            NOTIFY: {"name": "", "notify_msg": "success"},
            PROBE: {"status": "success"},
        }.get(kind)
        connection.sendall(frame(kind, json.dumps(reply).encode()))

    def _serve_data(self, connection: socket.socket) -> None:
        self._connections += 1
        number = self._connections
        while True:
            head = receive_exactly(connection, 24)
            if len(head) < 24:
                return
            length, address, opcode = struct.unpack("<QQB7x", head)
            self.seen.append(Seen(number, opcode, address, length))
            start, acknowledged = address - self.base, opcode & ACKNOWLEDGED
            if self.reject or start < 0 or length == 0 or start + length > len(self.memory):
                if acknowledged:
                    connection.sendall(struct.pack("<II", 1, STATUS_MAGIC))
                return
            status = struct.pack("<II", 0, STATUS_MAGIC) if acknowledged else b""
            if opcode & 0x7F == WRITE:
                self.memory[start : start + length] = receive_exactly(connection, length)
                connection.sendall(status)
            else:
                connection.sendall(status + bytes(self.memory[start : start + length]))
