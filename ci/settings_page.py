#!/usr/bin/env python3
"""Writes the page of all settings, from what the program te knows of the library's own table (core/settings.def).

  settings_page.py PATH_OF_TE > docs/settings.md
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Dict, List

INTRODUCTION = """\
<!-- Made by `python3 ci/settings_page.py build/release/bin/te > docs/settings.md` from core/settings.def; a test
     compares the two. Change the table, not this page. -->

# Settings

Mooncake's `MC_*` variables keep their names and meanings; `TE_*` are this library's own. They are read when an engine is created, and an engine
keeps what it has read. `te info --config` shows the values that are in force and where they come from; `te_setting_at` tells the same to a program.

Of two sources the later one wins: the defaults below, the settings file, the environment. The file, which `TE_CONFIG` names, is one YAML or JSON mapping;
a setting goes there by its name or by that in lower case without `MC_` or `TE_` (`tcp_lanes_per_peer: 8`), and one that counts with any value
takes yes or no. A file that cannot be used fails the creation of the engine. A malformed value or an unknown name is warned about once, with what is used
instead. Programs that run with the rights of others (set-user-id) ignore the environment and the file.

The defaults are those in force here. *Not given* means that there is none: then nothing happens, or the meaning says what counts instead.
"""

WITHOUT_EFFECT = """
## Known names without effect

Setting one of these changes nothing in this library. Where one is given, the log says so at level INFO, and `te info --config` lists it. `*` stands for
any ending; of such names only those that begin with `MC_` are looked for, and the log is silent about those that others read.

| why | names |
| --- | --- |
"""


def read_settings(te: str) -> List[dict]:
    """As they are when nothing is given."""
    program = [te, "info", "--config", "--json"]
    nothing = {key: text for key, text in os.environ.items() if not key.startswith(("MC_", "TE_"))}
    output = subprocess.run(program, check=True, stdout=subprocess.PIPE, env=nothing, timeout=60).stdout
    return json.loads(output)["settings"]


def prose(text: str) -> str:
    """Names in it as code; fit for a cell of a table."""
    return re.sub(r"\b(?:MC|TE)_[A-Z0-9_]*[A-Z0-9]\b|\bte_\w+", r"`\g<0>`", text).replace("|", r"\|")


def row(entry: dict) -> str:
    name = f"`{entry['name']}`" + (f", also `{entry['alias']}`" if entry["alias"] else "")
    default = f"`{entry['default']}`" if entry["default"] else "not given"
    return f"| {name} | {default} | {prose(entry['accepted'])} | {prose(entry['help'])} |\n"


def page(settings: List[dict]) -> str:
    text = INTRODUCTION
    group = None
    reasons: Dict[str, List[str]] = {}
    for entry in settings:
        if not entry["has_effect"]:
            ending = "*" if entry["name"].endswith("_") else ""
            reasons.setdefault(entry["help"], []).append(f"`{entry['name']}{ending}`")
            continue
        if entry["group"] != group:
            group = entry["group"]
            text += f"\n## {group}\n\n| name | default | accepted | meaning |\n| --- | --- | --- | --- |\n"
        text += row(entry)
    return text + WITHOUT_EFFECT + "".join(f"| {prose(why)} | {', '.join(names)} |\n" for why, names in reasons.items())


if __name__ == "__main__":
    sys.stdout.write(page(read_settings(*sys.argv[1:])))
