"""What the shared library exports and needs, against the one list of calls."""

from __future__ import annotations

import re
import unittest

from support import ARCHIVE, LIBRARY, SOURCE, exported_by_definition, run

CLASSIC_FUNCTIONS = 27
MAP = SOURCE / "capi" / "transfer_engine.map"
HEADERS = {"c": "transfer_engine_c.h", "ext": "transfer_engine_ext.h"}
NEEDED = {"libc.so.6", "libglib-2.0.so.0", "libyaml-0.so.2", "libjson-c.so.5"}
PARTS_OF_LIBC = {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1", "libpthread.so.0", "libm.so.6"}


class Symbols(unittest.TestCase):
    def test_exactly_the_list_is_exported(self) -> None:
        symbols = re.findall(r"^[0-9a-f]+ (\w) (\S+)$", run("nm", "-D", "--defined-only", LIBRARY), re.MULTILINE)
        functions = {name.split("@")[0] for kind, name in symbols if kind != "A"}
        self.assertEqual(functions, set(exported_by_definition()))
        self.assertEqual({kind for kind, name in symbols}, {"A", "T"})

    def test_the_static_library_has_no_other_names(self) -> None:
        names = re.findall(r"^[0-9a-f]+ \w (\S+)$", run("nm", "-g", "--defined-only", ARCHIVE), re.MULTILINE)
        self.assertEqual(set(names), set(exported_by_definition()))

    def test_the_map_lists_each_symbol_once(self) -> None:
        text = re.sub(r"/\*.*?\*/", "", MAP.read_text(encoding="ascii"), flags=re.DOTALL)
        names = re.findall(r"\b(\w+);", text)
        self.assertEqual(sorted(names), sorted(set(names)))
        self.assertEqual(set(names), set(exported_by_definition()))
        self.assertRegex(text, r"local:\s*\*;")

    def test_each_function_is_declared_in_its_header(self) -> None:
        definition = exported_by_definition()
        for kind, header in HEADERS.items():
            text = (SOURCE / "capi" / "include" / header).read_text(encoding="ascii")
            code = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
            declared = set(re.findall(r"^[a-z_]\w* \*?\*?(?:const )?\*?(\w+)\([^)]*\)?", code, re.MULTILINE))
            declared |= set(re.findall(r"^const char \*(\w+)\(", code, re.MULTILINE))
            self.assertEqual({name for name in declared if not name.endswith("_t")},
                             {name for name, where in definition.items() if where == kind}, header)

    def test_the_classic_header_has_all_its_functions(self) -> None:
        names = [name for name, where in exported_by_definition().items() if where == "c"]
        self.assertEqual(len(names), CLASSIC_FUNCTIONS)
        self.assertTrue(all(name.startswith("te_")
                            for name, where in exported_by_definition().items() if where == "ext"))

    def test_every_symbol_has_a_version(self) -> None:
        for line in run("nm", "-D", "--defined-only", "--with-symbol-versions", LIBRARY).splitlines():
            self.assertRegex(line, r" A TRANSFER_ENGINE_[\d.]+| T \w+@@TRANSFER_ENGINE_[\d.]+$")

    def test_name_and_dependencies(self) -> None:
        dynamic = run("readelf", "-d", LIBRARY)
        self.assertIn("soname: [libtransfer_engine.so]", dynamic)
        needed = set(re.findall(r"NEEDED.*\[(.*)\]", dynamic))
        self.assertEqual(needed - PARTS_OF_LIBC, NEEDED)
        self.assertNotIn("RUNPATH", dynamic)
        self.assertNotIn("RPATH", dynamic)

    def test_nothing_is_undefined(self) -> None:
        output = run("ldd", "-r", LIBRARY)
        self.assertNotIn("undefined symbol", output)
        self.assertNotIn("not found", output)

    def test_no_code_runs_at_load_time(self) -> None:
        """One entry in .init_array is the compiler's own (frame_dummy of crtbegin)."""
        size = re.search(r"INIT_ARRAYSZ\)\s+(\d+)", run("readelf", "-d", LIBRARY))
        self.assertIsNotNone(size)
        self.assertEqual(int(size.group(1)), 8)  # type: ignore[union-attr]

    def test_hardening(self) -> None:
        dynamic = run("readelf", "-d", LIBRARY)
        self.assertIn("BIND_NOW", dynamic)
        self.assertNotIn("TEXTREL", dynamic)
        segments = run("readelf", "-lW", LIBRARY)
        self.assertIn("GNU_RELRO", segments)
        self.assertRegex(segments, r"GNU_STACK\s+(0x\w+\s+){5}RW ")
        self.assertNotRegex(segments, r"LOAD.* RWE ")


if __name__ == "__main__":
    unittest.main(verbosity=2)
