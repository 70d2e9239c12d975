#!/usr/bin/env python3
"""What the documents say of settings is what the library's table says.

  settings_page_test.py PATH_OF_TE
"""

from __future__ import annotations

import re
import sys
import unittest
from pathlib import Path
from typing import Dict, List

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "ci"))
sys.dont_write_bytecode = True
from settings_page import page, read_settings  # noqa: E402

SETTINGS: List[dict] = read_settings(sys.argv.pop(1))
NAME = re.compile(r"`((?:MC|TE)_[A-Z0-9_]*[A-Z0-9])")


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def is_known(name: str) -> bool:
    return any(
        name in (entry["name"], entry["alias"]) or (entry["name"].endswith("_") and name.startswith(entry["name"]))
        for entry in SETTINGS
    )


class SettingsPageTest(unittest.TestCase):
    def test_the_page_is_what_the_table_gives(self) -> None:
        written, expected = read("docs/settings.md").splitlines(), page(SETTINGS).splitlines()
        differing = ["+" + line for line in expected if line not in written]
        differing += ["-" + line for line in written if line not in expected]
        self.assertTrue(
            written == expected,
            "docs/settings.md is not what the table gives; run\n"
            "  python3 ci/settings_page.py build/release/bin/te > docs/settings.md\n" + "\n".join(differing),
        )

    def test_defaults_in_the_readme_are_those_of_the_table(self) -> None:
        defaults: Dict[str, str] = {entry["name"]: entry["default"] for entry in SETTINGS}
        section = read("README.md").split("\n## Settings\n")[1].split("\n## ")[0]
        told = re.findall(r"`(\w+)` \((\w+)\)", section)
        for names, values in re.findall(r"^\| (`[^|]*`) \| ([^|]*) \|", section, re.MULTILINE):
            told += zip(re.findall(r"\w+", names), values.split(", "))
        self.assertGreater(len(told), 5)
        self.assertEqual(told, [(name, defaults.get(name)) for name, _ in told])

    def test_names_in_the_documents_are_known(self) -> None:
        for document in ("README.md", "COMPAT.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/decisions.md"):
            self.assertEqual([name for name in NAME.findall(read(document)) if not is_known(name)], [], document)


if __name__ == "__main__":
    unittest.main(verbosity=2)
