"""What the packaging tests share: the installed tree, made once per run, and commands."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Dict, List, Optional

SOURCE = Path(os.environ.get("TE_TEST_SOURCE_DIR", Path(__file__).resolve().parents[2]))
BUILD = Path(os.environ.get("TE_TEST_BUILD_DIR", SOURCE / "build" / "release"))
CC = os.environ.get("TE_TEST_CC", "cc")
PROGRAM = SOURCE / "tests" / "packaging" / "program.c"
LIBRARY = BUILD / "lib" / "libtransfer_engine.so"
ARCHIVE = BUILD / "lib" / "libtransfer_engine.a"
TIMEOUT_SECONDS = 120


def run(*command: object, env: Optional[Dict[str, str]] = None, cwd: Optional[Path] = None) -> str:
    """The output of a command that must succeed."""
    done = subprocess.run([str(word) for word in command], env={**os.environ, **(env or {})}, cwd=cwd, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT_SECONDS, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def version() -> str:
    return (SOURCE / "VERSION").read_text(encoding="ascii").strip()


class InstalledTree:
    """`cmake --install` into a folder that is gone with the object."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="transfer-engine-"))
        self.prefix = self.folder / "prefix"
        run("cmake", "--install", BUILD, "--prefix", self.prefix)
        self.libraries = next(self.prefix.rglob("libtransfer_engine.so")).parent
        self.headers = next(self.prefix.rglob("transfer_engine_c.h")).parent

    def remove(self) -> None:
        shutil.rmtree(self.folder)

    def pkg_config(self, *arguments: str) -> List[str]:
        return run("pkg-config", *arguments, "transfer_engine",
                   env={"PKG_CONFIG_PATH": str(self.libraries / "pkgconfig")}).split()


def exported_by_definition() -> Dict[str, str]:
    """What shim/calls.def says is exported: name -> header (c or ext)."""
    rows: Dict[str, str] = {}
    for line in (SOURCE / "shim" / "calls.def").read_text(encoding="ascii").splitlines():
        call = re.match(r"TE_CALL\(\w+, (\w+), (\w+),", line)
        function = re.match(r"TE_FUNCTION\((\w+), (\w+)\)", line)
        if call or function:
            name, kind = (call or function).groups()  # type: ignore[union-attr]
            rows[name] = "c" if kind == "c" else "ext"
    return rows
