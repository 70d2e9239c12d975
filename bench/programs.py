"""The programs that ci/bench compares: how each is started and what it tells.

Every function runs one program for some seconds and returns its figures as a dictionary. The keys they share:
gigabytes_per_second, mean_us, p50_us, p99_us (of a batch or a round trip), cpu_per_gigabyte (seconds, both sides).
Raises RuntimeError with the program's last words if it fails.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import socket
import subprocess
import tempfile
import time
from typing import Any, Dict, Iterator, List, Optional

Figures = Dict[str, Any]

ROOT = pathlib.Path(__file__).resolve().parent.parent
WHEEL_BUFFER = 64 << 20


class Programs:
    """Where the programs are. wheel is None if the real engine is not installed."""

    def __init__(self, build: pathlib.Path, wheel: Optional[pathlib.Path]) -> None:
        self.build = build
        self.wheel = wheel

    def ours(self, name: str) -> str:
        return str(self.build / "bin" / name)


def last_words(text: str) -> str:
    return " / ".join(text.strip().splitlines()[-3:])[-400:]


def run(command: List[str], seconds: float, environment: Optional[Dict[str, str]] = None) -> str:
    """Runs a command that should take some seconds and returns what it prints."""
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=seconds + 60, env={**os.environ, **(environment or {})}
    )
    if result.returncode:
        raise RuntimeError(f"{command[0]}: status {result.returncode}: {last_words(result.stderr + result.stdout)}")
    return result.stdout


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def wait_for_listener(port: str) -> None:
    """Until something listens on the port; nothing connects, since some servers serve a single connection."""
    wanted = f":{int(port):04X}"
    for _ in range(500):
        with open("/proc/net/tcp", encoding="ascii") as table:
            if any(row.split()[1].endswith(wanted) and row.split()[3] == "0A" for row in list(table)[1:]):
                return
        time.sleep(0.01)
    raise RuntimeError(f"nothing listens on port {port}")


@contextlib.contextmanager
def server(command: List[str]) -> Iterator[subprocess.Popen]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.terminate()


def connections_of(process: int) -> int:
    """Established TCP connections of a process."""
    inodes = set()
    for entry in os.listdir(f"/proc/{process}/fd"):
        with contextlib.suppress(OSError):
            inodes.update(re.findall(r"socket:\[(\d+)\]", os.readlink(f"/proc/{process}/fd/{entry}")))
    count = 0
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError), open(table, encoding="ascii") as rows:
            count += sum(row.split()[9] in inodes for row in list(rows)[1:] if row.split()[3] == "01")
    return count


def common(line: Dict[str, Any]) -> Figures:
    """From the keys of te bench and of the floor."""
    latency = line["batch_latency_us"]
    return {
        "gigabytes_per_second": line["gigabytes_per_second"],
        "mean_us": latency["mean"],
        "p50_us": latency["p50"],
        "p99_us": latency["p99"],
        "maximum_us": latency["maximum"],
        "cpu_per_gigabyte": line["cpu_seconds_per_gigabyte"] + line["peer_cpu_seconds_per_gigabyte"],
    }


def te_command(programs: Programs, seconds: float, options: Dict[str, Any]) -> List[str]:
    words = [programs.ours("te"), "bench", "local", "--json", f"--seconds={seconds}"]
    return words + [f"--{name}={value}" for name, value in options.items()]


def te(programs: Programs, seconds: float, environment: Dict[str, str], **options: Any) -> Figures:
    """te bench local with one operation and one size."""
    with subprocess.Popen(
        te_command(programs, seconds, options),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    ) as process:
        connections = 0
        while connections == 0 and process.poll() is None:  # the buffers are filled before it connects
            time.sleep(seconds / 2)
            with contextlib.suppress(OSError):
                connections = connections_of(process.pid)
        output, errors = process.communicate(timeout=seconds + 60)
    if process.returncode:
        raise RuntimeError(f"te: status {process.returncode}: {last_words(errors)}")
    line = json.loads(output)
    return {**common(line), "connections": connections, "longest_gap_us": line["longest_gap_us"]}


def te_pairs(programs: Programs, seconds: float, pairs: int, **options: Any) -> Figures:
    """Several te bench local at the same time; the worst of each figure."""
    processes = [
        subprocess.Popen(te_command(programs, seconds, options), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(pairs)
    ]
    lines = []
    for process in processes:
        output, errors = process.communicate(timeout=seconds + 60)
        if process.returncode:
            raise RuntimeError(f"te: status {process.returncode}: {last_words(errors)}")
        lines.append(json.loads(output))
    return {
        "longest_gap_us": max(line["longest_gap_us"] for line in lines),
        "p50_us": max(line["batch_latency_us"]["p50"] for line in lines),
        "p99_us": max(line["batch_latency_us"]["p99"] for line in lines),
    }


def te_idle(programs: Programs, seconds: float) -> Figures:
    """Share of one core that an engine uses which nobody talks to."""
    with subprocess.Popen(
        [programs.ours("te"), "bench", "target", "--control", "--region=1M"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin and process.stdout

        def used() -> float:
            process.stdin.write("usage\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())["cpu_seconds"]

        process.stdout.readline()
        before = used()
        time.sleep(seconds)
        share = (used() - before) / seconds
        process.stdin.close()
    return {"core_share": share}


def floor(programs: Programs, seconds: float, case: str, **options: str) -> Figures:
    words = [programs.ours("socket_floor"), f"--case={case}", f"--seconds={seconds}"]
    return common(json.loads(run(words + [f"--{name}={value}" for name, value in options.items()], seconds)))


def growth(programs: Programs, seconds: float, axis: str, count: int) -> Figures:
    words = [programs.ours("growth"), f"--axis={axis}", f"--count={count}", f"--seconds={seconds}"]
    line = json.loads(run(words, seconds, {"MC_MIN_RPC_PORT": "20000", "MC_MAX_RPC_PORT": "32000"}))
    return {
        "p50_us": line["transfer_us"]["p50"],
        "p99_us": line["transfer_us"]["p99"],
        "mean_us": line["transfer_us"]["mean"],
        "cpu_us": line["cpu_us"] + line["target_cpu_us"],
        "bytes_per_peer": line["bytes_per_peer"],
        "target_bytes_per_peer": line["target_bytes_per_peer"],
        "descriptors_per_peer": line["descriptors_per_peer"],
        "threads": line["threads"],
    }


def system_calls(command: List[str], transfers: int) -> Dict[str, float]:
    """System calls of a command and of all that it starts, per transfer; those of starting up are rounded away."""
    with tempfile.NamedTemporaryFile("r") as table:
        run(["strace", "-f", "-qq", "-c", "-U", "calls,name", "-o", table.name, *command], 60)
        rows = re.findall(r"(?m)^ *(\d+) (\w+)$", table.read())
    calls = {name: int(count) / transfers for count, name in rows if name != "total"}
    return {name: round(each, 2) for name, each in sorted(calls.items()) if each >= 0.05}


def iperf3(seconds: float, streams: int, congestion: str) -> Figures:
    port = free_port()
    with server(["iperf3", "-s", "-1", "-B", "127.0.0.1", "-p", port]):
        wait_for_listener(port)
        words = ["iperf3", "-c", "127.0.0.1", "-p", port, "-l", "1M", "-t", str(max(1, round(seconds)))]
        words += ["-P", str(streams), "-J"] + (["-C", congestion] if congestion else [])
        end = json.loads(run(words, seconds))["end"]
    gigabytes = end["sum_received"]["bytes"] / 1e9
    percent = end["cpu_utilization_percent"]
    used = (percent["host_total"] + percent["remote_total"]) / 100 * end["sum_received"]["seconds"]
    return {
        "gigabytes_per_second": end["sum_received"]["bits_per_second"] / 8e9,
        "cpu_per_gigabyte": used / gigabytes,
    }


def sockperf(seconds: float, size: int, spins: bool) -> Figures:
    """Two that spin are kept on different cores, as the floor's are: their best."""
    port = free_port()
    mode = ["--nonblocked"] if spins else []
    apart = [["taskset", "-c", str(core)] if spins else [] for core in (0, (os.cpu_count() or 1) - 1)]
    with server([*apart[1], "sockperf", "server", "--tcp", "-i", "127.0.0.1", "-p", port, *mode]):
        wait_for_listener(port)
        words = [*apart[0], "sockperf", "ping-pong", "--tcp", "-i", "127.0.0.1", "-p", port, "-m", str(size)]
        text = run([*words, "-t", str(max(1, round(seconds))), "--full-rtt", *mode], seconds)
    found = {share: re.search(rf"percentile {share}\.?0* *= *([\d.]+)", text) for share in ("50", "99")}
    if not all(found.values()):
        raise RuntimeError(f"sockperf: {last_words(text)}")
    return {"p50_us": float(found["50"].group(1)), "p99_us": float(found["99"].group(1))}


def wheel_command(programs: Programs, mode: str, *flags: str) -> List[str]:
    return [
        str(programs.wheel),
        f"--mode={mode}",
        "--metadata_server=P2PHANDSHAKE",
        "--local_server_name=127.0.0.1",
        "--protocol=tcp",
        f"--buffer_size={WHEEL_BUFFER}",
        *flags,
    ]


@contextlib.contextmanager
def wheel_target(programs: Programs) -> Iterator[str]:
    """A target of the wheel's benchmark; yields its segment name, which only its log tells."""
    if programs.wheel is None:
        yield ""
        return
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(wheel_command(programs, "target", "--batch_size=1", "--threads=1"), stderr=log)
        try:
            for _ in range(100):
                time.sleep(0.1)
                log.seek(0)
                found = re.search(r"listening on (\S+)", log.read())
                if found:
                    time.sleep(0.5)  # the buffer is registered a little later, which nothing tells
                    yield found.group(1)
                    return
            raise RuntimeError("the wheel's target did not start")
        finally:
            process.terminate()
            process.wait()


def wheel(programs: Programs, segment: str, seconds: float, operation: str, size: int, batch: int) -> Figures:
    """The wheel's initiator with its default settings: connection pool on."""
    command = wheel_command(
        programs,
        "initiator",
        f"--segment_id={segment}",
        f"--operation={operation}",
        f"--block_size={size}",
        f"--batch_size={batch}",
        "--threads=1",
        f"--duration={max(1, round(seconds))}",
    )
    result = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=seconds + 60)
    found = re.search(r"duration ([\d.]+), batch count (\d+)", result.stderr)
    if result.returncode or not found:
        raise RuntimeError(f"wheel: status {result.returncode}: {last_words(result.stderr)}")
    duration, batches = float(found.group(1)), int(found.group(2))
    return {"gigabytes_per_second": size * batch * batches / duration / 1e9, "mean_us": duration / batches * 1e6}
