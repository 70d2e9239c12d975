#!/usr/bin/env python3
"""The program te from outside.

  te_test.py PATH_OF_TE
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from typing import Iterator, List

TE = sys.argv.pop(1) if len(sys.argv) > 1 else "te"
WATCHDOG = 120
SETTINGS = ("MC_", "TE_", "NCCL_", "FI_", "WITH_", "USE_", "BAREX_", "MOONCAKE_")  # beginnings of all known names


def te(*words: str, **environment: str) -> subprocess.CompletedProcess:
    kept = {key: text for key, text in os.environ.items() if not key.startswith(SETTINGS)}
    return subprocess.run(
        [TE, *words], capture_output=True, text=True, timeout=WATCHDOG, env={**kept, **environment}
    )


class Target:
    """te bench target --control."""

    def __init__(self, process: subprocess.Popen) -> None:
        self.process = process
        self.greeting = json.loads(process.stdout.readline())
        self.name = self.greeting["ready"]

    def ask(self, command: str) -> dict:
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@contextlib.contextmanager
def target(*words: str) -> Iterator[Target]:
    with subprocess.Popen(
        [TE, "bench", "target", "--control", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Target(process)
        finally:
            process.kill()


def json_lines(text: str) -> List[dict]:
    return [json.loads(line) for line in text.splitlines()]


class CommandLineTest(unittest.TestCase):
    def test_mistakes_are_explained_and_have_status_2(self) -> None:
        for words, explanation in (
            ((), "COMMAND"),
            (("frob",), "no command frob"),
            (("info", "--frob"), "Unknown option --frob"),
            (("probe",), "give one name"),
            (("bench",), "give a role"),
            (("bench", "frob"), "no role frob"),
            (("bench", "initiator"), "name of one target"),
            (("demo", "frob"), "frob is no option"),
            (("info", "--config", "--json", "frob"), "frob is no option"),
            (("bench", "local", "frob"), "frob is no option"),
            (("bench", "target", "frob"), "frob is no option"),
            (("bench", "local", "--size=7x"), "such as 64K"),
            (("bench", "local", "--size=0"), "such as 64K"),
            (("bench", "local", "--size=99999999999G"), "such as 64K"),
            (("bench", "local", "--size=8000000G", "--batch=1048576"), "smaller --size or --batch"),
            (("bench", "local", "--batch=0"), "--batch goes from 1"),
            (("bench", "local", "--threads=1000000"), "--threads from 1"),
            (("bench", "local", "--seconds=0"), "more than 0"),
            (("bench", "local", "--wait=frob"), "spin, wait, event"),
            (("bench", "local", "--operation=frob"), "read, write, both"),
            (("bench", "local", "--buffers=hot", "--verify"), "--buffers=batch"),
            (("bench", "target", "--region=-1"), "--region=-1"),
        ):
            with self.subTest(words=words):
                result = te(*words)
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertIn(explanation, result.stderr)
                self.assertEqual(result.stdout, "")

    def test_help(self) -> None:
        for words in ((), ("info",), ("probe",), ("bench",), ("bench", "local"), ("bench", "target"), ("demo",)):
            result = te(*words, "--help")
            self.assertEqual(result.returncode, 0)
            self.assertIn("Usage:", result.stdout)
        self.assertRegex(te("--version").stdout, r"^transfer_engine \d+\.\d+\.\d+\n$")


class InfoTest(unittest.TestCase):
    def test_says_what_works_and_why_not(self) -> None:
        result = te("info", "--json", MC_TCP_LANES_PER_PEER="2")
        info = json.loads(result.stdout)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(info["runtimes"]["classic"], {"available": True})
        self.assertEqual(info["transports"]["tcp"], {"available": True})
        self.assertFalse(info["transports"]["ascend"]["available"])
        self.assertGreater(len(info["transports"]["ascend"]["reason"]), 10)
        self.assertEqual(info["environment"], {"MC_TCP_LANES_PER_PEER": "2"})
        self.assertGreater(info["limits"]["open_files"], 0)

    def test_shows_no_password(self) -> None:
        for words in (["info"], ["info", "--json"], ["info", "--config"], ["info", "--config", "--json"]):
            result = te(*words, MC_REDIS_PASSWORD="hunter2")
            self.assertIn("MC_REDIS_PASSWORD", result.stdout)
            self.assertNotIn("hunter2", result.stdout + result.stderr)

    def test_for_people(self) -> None:
        result = te("info", TE_SPIN_US="7")
        self.assertRegex(result.stdout, r"(?m)^  classic +yes$")
        self.assertRegex(result.stdout, r"(?m)^  TE_SPIN_US +7$")


class ConfigTest(unittest.TestCase):
    """te info --config."""

    def expect_line(self, line: str, output: str) -> None:
        self.assertTrue(re.search(rf"(?m)^{line}$", output), f"there is no line {line}")

    def test_shows_each_setting_and_marks_what_is_not_the_default(self) -> None:
        result = te("info", "--config", TE_SPIN_US="7", MC_TCP_LANES_PER_PEER="4", MC_FORCE_TCP="0",
                    TE_TCP_LOCAL_CONGESTION_CONTROL="", MC_TCP_STATUS_TIMEOUT_SEC="9",
                    MC_CUSTOM_TOPO_JSON="/a\nb")  # fmt: skip
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        for line in (
            r"\* TE_SPIN_US +7 +environment +50",
            r"  MC_TCP_LANES_PER_PEER +4 +environment +4",
            r"\* MC_FORCE_TCP +1 +environment +not given",
            r"\* TE_TCP_LOCAL_CONGESTION_CONTROL +empty +environment +reno",
            r"\* MC_TCP_STATUS_TIMEOUT_SEC +9 +environment +not given",
            r"\* TE_TCP_SILENCE_TIMEOUT_MS +9000 +environment +10000",
            r"  MC_TCP_PROGRESS_TIMEOUT_SEC +not given +default +not given",
            r"\* MC_CUSTOM_TOPO_JSON +/a\?b +environment +not given",
            r"  MC_LOG_LEVEL +INFO +default +INFO",
            r"Transport tcp",
            r"      threads that move data.* \[0\.\.64\]",
            r"      highest port .* \[1024\.\..*; also MC_MAX_PRC_PORT\]",
        ):
            self.expect_line(line, result.stdout)
        self.assertEqual(len([line for line in result.stdout.splitlines() if line.startswith("* ")]), 6)
        self.assertFalse("Given, but" in result.stdout)

    def test_lists_names_without_effect_and_tells_which_are_given(self) -> None:
        result = te("info", "--config", MC_REDIS_PASSWORD="secret", MC_TENT_CONF="/tent.json")
        _, rest = result.stdout.split("Given, but without effect here\n")
        given, known = rest.split("\nKnown names without effect here\n")
        self.assertEqual(given, "* MC_REDIS_PASSWORD from environment: no Redis client\n"
                                "* MC_TENT_* from environment: no TENT runtime\n")  # fmt: skip
        self.expect_line("  no Redis client:\n      MC_REDIS_USERNAME MC_REDIS_PASSWORD MC_REDIS_DB_INDEX", known)
        self.assertEqual(known.count("no transport rdma:"), 1)
        self.assertLessEqual(max(map(len, known.splitlines())), 100)
        self.assertFalse("secret" in result.stdout)

    def test_json(self) -> None:
        result = te("info", "--config", "--json", MC_MIN_PRC_PORT="15001", MC_GID_INDEX="3")
        self.assertEqual(result.returncode, 0, result.stderr)
        settings = {entry["name"]: entry for entry in json.loads(result.stdout)["settings"]}
        self.assertEqual(settings["MC_MIN_RPC_PORT"], {
            "name": "MC_MIN_RPC_PORT", "alias": "MC_MIN_PRC_PORT", "group": "Names, ports and control calls",
            "has_effect": True, "value": "15001", "source": "environment", "default": "15000", "is_default": False,
            "accepted": "1024..32767, 61000..65535",
            "help": "lowest port that an engine takes; both ends of the range count or neither",
        })  # fmt: skip
        self.assertEqual(settings["MC_GID_INDEX"], {
            "name": "MC_GID_INDEX", "alias": None, "group": "RDMA and EFA", "has_effect": False, "value": None,
            "source": "environment", "default": None, "is_default": True, "accepted": None,
            "help": "no transport rdma",
        })  # fmt: skip

    def test_a_file(self) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write("spin_us: 9\n")
            file.flush()
            result = te("info", "--config", TE_CONFIG=file.name)
            self.expect_line(r"\* TE_SPIN_US +9 +file +50", result.stdout)
            file.write("io_threads: [1]\n")
            file.flush()
            result = te("info", "--config", TE_CONFIG=file.name)
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn(f"no engine can be created with these settings: {file.name}:2:13: ", result.stderr)

    def test_what_is_wrong_is_said_once(self) -> None:
        result = te("info", "--config", TE_SPIN_US="often", TE_SPIN="7")
        self.assertEqual(result.returncode, 0)
        self.expect_line(r"  TE_SPIN_US +50 +default +50", result.stdout)
        self.assertEqual(result.stderr.count("TE_SPIN_US=often is not a whole number"), 1)
        self.assertEqual(result.stderr.count("TE_SPIN is not known"), 1)


class ProbeTest(unittest.TestCase):
    def test_a_peer_answers(self) -> None:
        with target() as peer:
            result = te("probe", peer.name)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(f"{peer.name} answers", result.stdout)

    def test_nobody_is_there(self) -> None:
        result = te("probe", "127.0.0.1:1")
        self.assertEqual(result.returncode, 1)
        self.assertIn("Is the process running", result.stderr)
        self.assertIn("-102", result.stderr)

    def test_a_name_that_is_none(self) -> None:
        result = te("probe", "host.invalid:1")
        self.assertEqual(result.returncode, 1)
        self.assertIn("check its spelling", result.stderr)


class BenchTest(unittest.TestCase):
    def test_local_verifies_in_every_mode(self) -> None:
        for wait in ("spin", "wait", "event"):
            for buffers in ("batch", "cold"):
                with self.subTest(wait=wait, buffers=buffers):
                    result = te(
                        "bench", "local", "--json", "--verify", "--count=4", "--threads=2", "--batch=5",
                        "--size=1,4097,128K", "--region=3M", f"--wait={wait}", f"--buffers={buffers}",
                    )  # fmt: skip
                    self.assertEqual(result.returncode, 0, result.stderr)
                    lines = json_lines(result.stdout)
                    self.assertEqual([line["size"] for line in lines], [1, 1, 4097, 4097, 131072, 131072])
                    self.assertEqual([line["operation"] for line in lines], ["write", "read"] * 3)
                    for line in lines:
                        self.assertEqual((line["batches"], line["bytes"]), (8, 8 * 5 * line["size"]))
                        self.assertEqual((line["wait"], line["buffers"], line["verified"]), (wait, buffers, True))
                        self.assertGreater(line["gigabytes_per_second"], 0)
                        latency = line["batch_latency_us"]
                        self.assertLessEqual(latency["p50"], latency["p99"])
                        self.assertGreater(line["peer_cpu_seconds"], 0)

    def test_table(self) -> None:
        result = te("bench", "local", "--count=2")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"(?m)^WRITE +64 B x 1 ")
        self.assertRegex(result.stdout, r"(?m)^READ +1 MiB x 16 ")
        self.assertEqual(len(result.stdout.splitlines()), 9)

    def test_initiator_against_a_target(self) -> None:
        with target("--region=1M") as peer:
            result = te("bench", "initiator", "--json", "--count=2", "--size=64K", "--operation=read", peer.name)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIsNone(json.loads(result.stdout)["peer_cpu_seconds"])
            result = te("bench", "initiator", "--size=128K", peer.name)
            self.assertEqual(result.returncode, 1)
            self.assertIn("--region=2097152", result.stderr)

    def test_a_target_that_is_not_there(self) -> None:
        result = te("bench", "initiator", "127.0.0.1:1")
        self.assertEqual(result.returncode, 1)
        self.assertIn("Is that process running", result.stderr)

    def test_a_target_that_dies(self) -> None:
        with target("--region=16M") as peer:
            with subprocess.Popen(
                [TE, "bench", "initiator", "--size=1M", "--seconds=600", peer.name],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            ) as initiator:
                used = peer.ask("usage")["cpu_seconds"]
                while peer.ask("usage")["cpu_seconds"] < used + 0.2:  # transfers are running
                    pass
                peer.process.kill()
                _, errors = initiator.communicate(timeout=WATCHDOG)
        self.assertEqual(initiator.returncode, 1)
        self.assertRegex(errors, r"transfers (failed|could not be submitted)")


class TargetTest(unittest.TestCase):
    def test_commands(self) -> None:
        with target("--region=64K") as peer:
            self.assertEqual(peer.greeting["size"], 65536)
            self.assertEqual(peer.ask("checksum 0 5"), {"sha256": hashlib.sha256(b"\1" * 5).hexdigest()})
            filled = peer.ask("fill 3 100 200")
            self.assertEqual(peer.ask("checksum 100 200"), filled)
            self.assertNotEqual(peer.ask("fill 4 100 200"), filled)
            self.assertEqual(peer.ask("notifications"), {"notifications": []})
            for command in ("frob", "checksum 0 65537", "checksum 65537 0", "fill 1 1 18446744073709551615"):
                self.assertIn("error", peer.ask(command))
            usage = peer.ask("usage")
            self.assertGreater(usage["resident_bytes"], 65536)
            peer.process.stdin.close()
            self.assertEqual(peer.process.wait(WATCHDOG), 0)

    def test_a_signal_stops_it(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            with subprocess.Popen([TE, "bench", "target"], stdout=subprocess.PIPE, text=True) as process:
                process.stdout.readline()
                process.send_signal(number)
                output, _ = process.communicate(timeout=WATCHDOG)
            self.assertEqual(process.returncode, 0)
            self.assertIn("s of CPU used", output)


class DemoTest(unittest.TestCase):
    def test_everything_works(self) -> None:
        result = te("demo")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(len([line for line in result.stdout.splitlines() if line.endswith(" ok")]), 8)
        self.assertIn("Everything worked.", result.stdout)

    def test_what_does_not_work_shows(self) -> None:
        result = te("demo", MC_MIN_RPC_PORT="2", MC_MAX_RPC_PORT="1", MC_USE_TENT="1")
        self.assertEqual(result.returncode, 1)
        self.assertIn("Something is wrong", result.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
