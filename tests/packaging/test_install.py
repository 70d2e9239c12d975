"""The installed tree works for every way of building against it."""

from __future__ import annotations

import re
import shutil
import unittest
from pathlib import Path
from typing import List

from support import BUILD, CC, PROGRAM, InstalledTree, run, version

HEADERS = ("transfer_engine_c.h", "transfer_engine_ext.h")
STANDARDS = {"c": ("c89", "c99", "c11", "c17"), "c++": ("c++98", "c++11", "c++14", "c++17", "c++20")}
CMAKE_PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES C)
find_package(transfer_engine {version} REQUIRED)
foreach(library transfer_engine transfer_engine_static)
    add_executable(with_${{library}} {program})
    target_link_libraries(with_${{library}} PRIVATE transfer_engine::${{library}})
endforeach()
"""


class Install(unittest.TestCase):
    tree: InstalledTree

    @classmethod
    def setUpClass(cls) -> None:
        cls.tree = InstalledTree()

    @classmethod
    def tearDownClass(cls) -> None:
        cls.tree.remove()

    def expect_program_to_work(self, program: Path, needs_library_path: bool = True) -> None:
        env = {"LD_LIBRARY_PATH": str(self.tree.libraries) if needs_library_path else ""}
        output = run(program, env=env)
        self.assertRegex(output, rf"(?m)^{re.escape(version())} 127\.0\.0\.1:\d+ 0$")

    def build(self, name: str, *flags: str) -> Path:
        program = self.tree.folder / name
        run(CC, "-Wall", "-Wextra", "-Werror", PROGRAM, "-o", program, *flags)
        return program

    def test_headers_compile_alone_in_every_standard(self) -> None:
        compilers = {"c": ("gcc", "clang"), "c++": ("g++", "clang++")}
        tried = 0
        for language, standards in STANDARDS.items():
            for compiler in filter(shutil.which, compilers[language]):
                for standard in standards:
                    for header in HEADERS:
                        source = self.tree.folder / "header.txt"
                        source.write_text(f'#include "{header}"\nint te_header_test;\n', encoding="ascii")
                        run(compiler, f"-std={standard}", "-pedantic-errors", "-Wall", "-Wextra", "-Werror",
                            "-fsyntax-only", "-I", self.tree.headers, "-x", language, source)
                        tried += 1
        self.assertGreaterEqual(tried, len(STANDARDS["c"]) * len(HEADERS))

    def test_headers_bring_only_names_of_theirs(self) -> None:
        source = self.tree.folder / "macros.c"
        source.write_text("#include <stddef.h>\n#include <stdint.h>\n", encoding="ascii")
        before = set(re.findall(r"#define (\w+)", run("gcc", "-E", "-dM", source)))
        source.write_text("".join(f'#include "{header}"\n' for header in HEADERS), encoding="ascii")
        after = set(re.findall(r"#define (\w+)", run("gcc", "-E", "-dM", "-I", self.tree.headers, source)))
        allowed = re.compile(r"TRANSFER_ENGINE_|TE_|ERR_|STATUS_|OPCODE_|LOCAL_SEGMENT$|INVALID_BATCH$|"
                             r"segment_handle_t$|segment_id_t$|batch_id_t$")
        self.assertEqual([name for name in sorted(after - before) if not allowed.match(name)], [])

    def test_pkg_config(self) -> None:
        self.expect_program_to_work(self.build("with_pkg_config", *self.tree.pkg_config("--cflags", "--libs")))
        self.assertEqual(self.tree.pkg_config("--modversion"), [version()])

    def test_pkg_config_names_no_library_that_a_shared_build_does_not_need(self) -> None:
        self.assertEqual([flag for flag in self.tree.pkg_config("--libs") if flag.startswith("-l")],
                         ["-ltransfer_engine"])

    def test_plain_linker_flags(self) -> None:
        self.expect_program_to_work(
            self.build("plain", "-I", str(self.tree.headers), "-L", str(self.tree.libraries), "-ltransfer_engine"))

    def test_static_library_alone(self) -> None:
        alone = self.tree.folder / "static"
        shutil.copytree(self.tree.prefix, alone)
        (alone / self.tree.libraries.relative_to(self.tree.prefix) / "libtransfer_engine.so").unlink()
        flags: List[str] = [flag.replace(str(self.tree.prefix), str(alone))
                            for flag in self.tree.pkg_config("--static", "--cflags", "--libs")]
        program = self.build("static_program", *flags)
        self.assertNotIn("libtransfer_engine", run("ldd", program))
        self.expect_program_to_work(program, needs_library_path=False)

    def test_cmake_package(self) -> None:
        project = self.tree.folder / "project"
        project.mkdir()
        (project / "CMakeLists.txt").write_text(CMAKE_PROJECT.format(version=version(), program=PROGRAM),
                                                encoding="utf-8")
        run("cmake", "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={self.tree.prefix}",
            f"-DCMAKE_C_COMPILER={CC}")
        run("cmake", "--build", project / "build")
        self.expect_program_to_work(project / "build" / "with_transfer_engine")
        self.assertNotIn("libtransfer_engine", run("ldd", project / "build" / "with_transfer_engine_static"))
        self.expect_program_to_work(project / "build" / "with_transfer_engine_static", needs_library_path=False)

    def test_the_tree_may_be_moved(self) -> None:
        moved = self.tree.folder / "moved"
        shutil.copytree(self.tree.prefix, moved)
        libraries = moved / self.tree.libraries.relative_to(self.tree.prefix)
        flags = run("pkg-config", "--cflags", "--libs", "transfer_engine",
                    env={"PKG_CONFIG_PATH": str(libraries / "pkgconfig")})
        self.assertIn(str(moved), flags.replace("/lib/pkgconfig/../..", ""))
        for file in moved.rglob("*"):
            if file.is_file() and file.suffix in (".pc", ".cmake"):
                text = file.read_text(encoding="utf-8")
                self.assertNotIn(str(self.tree.prefix), text, file)
                self.assertNotIn(str(BUILD), text, file)

    def test_licence_is_there(self) -> None:
        text = next(self.tree.prefix.rglob("LICENSE")).read_text(encoding="utf-8")
        self.assertIn("Apache License", text)
        self.assertIn("END OF TERMS AND CONDITIONS", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
