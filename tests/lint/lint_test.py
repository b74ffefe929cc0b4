#!/usr/bin/env python3
"""Tests of the repository's own checkers: each seeded violation is found, and a clean tree is left in peace.
Knows the checkers of tools/dev and tests/lint and make_man.py, nothing of the real tree."""

import os
import sys
import tempfile
import unittest
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../../tools/dev"), os.path.join(HERE, "../../docs/man")]
sys.dont_write_bytecode = True

import check_abi  # noqa: E402
import check_layers  # noqa: E402
import check_ptxas  # noqa: E402
import check_repository  # noqa: E402
import check_sizes  # noqa: E402
import check_words  # noqa: E402
import count_results  # noqa: E402
import make_man  # noqa: E402
import test_history  # noqa: E402
import wheel_build  # noqa: E402

SCRATCH = tempfile.TemporaryDirectory()
unittest.addModuleCleanup(SCRATCH.cleanup)

# A small tree that breaks no rule; each test adds one file to it.
CLEAN = {
    "runtime/base/status.hpp": "",
    "runtime/base/config.hpp": "",
    "runtime/schedule/schedule.hpp": '#include "runtime/base/status.hpp"\n',
    "runtime/algorithms/catalog.hpp": '#include "runtime/schedule/schedule.hpp"\n',
    "runtime/selection/choose.cpp": '#include "runtime/algorithms/catalog.hpp"\n#include <vector>\n',
    "runtime/scheduler/run.hpp": '#include "transports/transport.hpp"\n',
    "runtime/group/group.cpp": '#include "tutti/tutti.hpp"\n#include "backends/backend.hpp"\n#include "transports/registry.hpp"\n'
                               '#include "runtime/scheduler/run.hpp"\n#include "backends/native/native_backend.hpp"\n',
    "runtime/include/tutti/tutti.hpp": "",
    "transports/transport.hpp": '#include "runtime/base/status.hpp"\n',
    "transports/registry.hpp": '#include "transports/transport.hpp"\n',
    "transports/registry.cpp": '#include "transports/registry.hpp"\n#include "transports/memory/shm/plugin.hpp"\n',
    "transports/memory/shm/plugin.hpp": '#include "transports/transport.hpp"\n',
    "transports/memory/shm/wire/cell.cpp": '#include "transports/memory/shm/plugin.hpp"\n#include <sys/mman.h>\n',
    "transports/memory/inproc/plugin.hpp": '#include "transports/transport.hpp"\n',
    "backends/backend.hpp": '#include "runtime/base/status.hpp"\n',
    "backends/native/native_backend.hpp": '#include "backends/backend.hpp"\n',
    "backends/native/native.cpp": '#include "runtime/scheduler/run.hpp"\n#include "runtime/algorithms/catalog.hpp"\n',
    "topology/topology.hpp": '#include "runtime/base/status.hpp"\n',
    "topology/discovery.hpp": '#include "topology/topology.hpp"\n',
    "runtime/group/settings.cpp": '#include "runtime/group/group.hpp"\n#include "topology/discovery.hpp"\n',
    "tests/base/any_test.cpp": '#include "transports/memory/shm/plugin.hpp"\n#include "runtime/group/group.hpp"\n',
    "runtime/group/group.hpp": "",
}


class Tree:
    """A temporary tree; files get a purpose line and, where due, #pragma once."""

    def __init__(self, files):
        self.folder = tempfile.mkdtemp(dir=SCRATCH.name)
        for path, text in files.items():
            self.write(path, text)

    def write(self, path, text, plain=False):
        full = os.path.join(self.folder, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        opening = "" if plain else "// Purpose.\n" + ("#pragma once\n" if path.endswith(".hpp") else "")
        with open(full, "w", encoding="utf-8") as file:
            file.write(opening + text)
        return full

    def violations(self):
        return [f"{path}: {message}" for path, _, message in check_layers.check_tree(self.folder)[0]]

    def repository_violations(self):
        return [f"{path}: {message}" for path, _, message in check_repository.check_tree(self.folder)]


class PtxasTest(unittest.TestCase):
    ENTRY = ("ptxas info    : Compiling entry function '{0}' for '{1}'\nptxas info    : Function properties for {0}\n"
             "    {2} bytes stack frame, {3} bytes spill stores, 0 bytes spill loads\n"
             "ptxas info    : Used {4} registers, used 0 barriers\n")

    def test_kernels_in_registers(self):
        clean = "".join(self.ENTRY.format(name, chip, 0, 0, 40) for name in ("add", "copy") for chip in ("sm_80", "sm_90"))
        self.assertEqual(check_ptxas.check_report(clean, 64), (4, []))
        for seeded, part in ((("add", "sm_90", 8, 8, 40), "add for sm_90: 8 bytes stack frame, 8 bytes spill stores"),
                             (("copy", "sm_80", 0, 0, 65), "copy for sm_80: 65 registers"),
                             (("third", "sm_80", 0, 0, 1), "third was not compiled for sm_90")):
            violations = check_ptxas.check_report(clean + self.ENTRY.format(*seeded), 64)[1]
            self.assertEqual(len(violations), 1)
            self.assertIn(part, violations[0])
        self.assertEqual(check_ptxas.check_report("nvcc said nothing\n", 64)[1], ["the report names no kernel"])


class LayersTest(unittest.TestCase):
    def setUp(self):
        self.tree = Tree(CLEAN)

    def expect(self, path, text, part, plain=False):
        """Adding this file gives exactly one violation, which is about it and contains `part`."""
        self.tree.write(path, text, plain)
        found = self.tree.violations()
        self.assertEqual(len(found), 1, found)
        self.assertIn(path, found[0])
        self.assertIn(part, found[0])

    def test_clean_tree_passes(self):
        self.assertEqual(self.tree.violations(), [])

    def test_upward_and_sideways_includes(self):
        cases = {
            "runtime/base/bad.cpp": "runtime/schedule/schedule.hpp",
            "runtime/schedule/bad.hpp": "runtime/algorithms/catalog.hpp",
            "runtime/algorithms/bad.cpp": "transports/transport.hpp",
            "runtime/scheduler/bad.cpp": "backends/backend.hpp",
            "runtime/group/bad.cpp": "transports/memory/shm/plugin.hpp",
            "runtime/group/bad.hpp": "topology/discovery.hpp",
            "transports/memory/shm/bad.cpp": "transports/memory/inproc/plugin.hpp",
            "transports/memory/inproc/bad.cpp": "runtime/scheduler/run.hpp",
            "transports/memory/shm/bad.hpp": "transports/registry.hpp",
            "backends/native/bad.cpp": "runtime/group/group.hpp",
            "topology/bad.cpp": "runtime/schedule/schedule.hpp",
            "runtime/include/tutti/bad.hpp": "runtime/base/status.hpp",
            "bindings/python/bad.cpp": "runtime/base/status.hpp",
        }
        for path, header in cases.items():
            with self.subTest(path=path):
                self.tree = Tree(CLEAN)
                self.expect(path, f'#include "{header}"\n', header)

    def test_selection_is_pure(self):
        cases = {
            '#include "runtime/base/config.hpp"\n': "config.hpp",
            '#include "transports/transport.hpp"\n': "transport.hpp",
            '#include "topology/topology.hpp"\n': "topology.hpp",
            "#include <chrono>\n": "pure",
            'auto x = std::getenv("A");\n': "getenv",
            "auto now = std::chrono::steady_clock::now();\n": "steady_clock",
            "double cost = 0;\n": "floating",
            "auto cost = 1.5 * x;\n": "floating",
        }
        for text, part in cases.items():
            with self.subTest(text=text):
                self.tree = Tree(CLEAN)
                self.expect("runtime/selection/bad.cpp", text, part)

    def test_comments_and_strings_are_no_code(self):
        self.tree.write("runtime/selection/good.cpp",
                        '// a double, getenv\nconst char* x = "double ucp_init \\" 1.5";\n/* float\n nccl */ int y = 1\'000;\n')
        self.assertEqual(self.tree.violations(), [])

    def test_vendor_symbols_and_headers(self):
        self.expect("tests/base/bad.cpp", "auto x = ucp_init();\n", "ucp_init")
        self.tree = Tree(CLEAN)
        self.expect("runtime/group/bad.cpp", "hwloc_topology_t t;\n", "hwloc_topology_t")
        self.tree = Tree(CLEAN)
        self.expect("topology/bad.cpp", "#include <hwloc.h>\n", "hwloc_discovery")
        self.tree = Tree(CLEAN)
        self.expect("backends/native/bad.cpp", "ncclAllReduce(a);\n", "ncclAllReduce")

    def test_names_of_cuda(self):
        self.tree.write("backends/cuda/driver.cpp", "#include <cuda.h>\ncuInit(0); CUstream stream; /* CUDA_SUCCESS */\n")
        self.tree.write("tests/backends/cuda_driver_test.cpp", "if (cuInit(0) != CUDA_SUCCESS) abort();\n")
        self.expect("runtime/group/bad.cpp", "int cut = current; cuMemAlloc(&a, 1);\n", "cuMemAlloc")
        self.tree = Tree(CLEAN)
        self.tree.write("topology/hwloc_discovery.cpp", "#include <hwloc.h>\nhwloc_topology_t t;\n")
        self.assertEqual(self.tree.violations(), [])

    def test_form(self):
        self.expect("runtime/base/bad.cpp", "int x;\n", "open with a sentence", plain=True)
        self.tree = Tree(CLEAN)
        self.expect("runtime/base/bad.hpp", "// Purpose.\nint x();\n", "#pragma once", plain=True)
        self.tree = Tree(CLEAN)
        self.tree.write("runtime/base/precompiled/core.hpp", "// Purpose.\n#ifndef GUARD\n#define GUARD\n#endif\n", plain=True)
        self.assertEqual(self.tree.violations(), [])
        self.expect("runtime/base/bad.cpp", '#include "../base/status.hpp"\n', "root of the repository")
        self.tree = Tree(CLEAN)
        self.expect("runtime/base/bad.cpp", '#include "missing.hpp"\n', "does not exist")
        self.tree = Tree(CLEAN)
        self.expect("runtime/unheard/bad.cpp", "", "no layer")

    def test_long_files_need_a_reason(self):
        self.expect("runtime/base/bad.cpp", "int x;\n" * 501, "502 lines")
        self.tree = Tree(CLEAN)
        self.tree.write("runtime/base/good.cpp", "// Longer than 500 lines because it is a table.\n" + "int x;\n" * 501)
        self.assertEqual(self.tree.violations(), [])

    def test_transport_seam_has_at_most_14_methods(self):
        methods = "  virtual int f() = 0;\n" * 8
        both = "class Endpoint {\n" + methods + "};\nclass Transport {\n" + methods + "};\n"
        self.expect("transports/transport.hpp", both, "16 methods")

    def test_headers_compile_alone(self):
        folder = os.path.join(self.tree.folder, "build")
        compiler = ["c++", "-std=c++20", "-I", ".", "-I", "runtime/include"]
        self.assertEqual(check_layers.check_headers(self.tree.folder, compiler, folder)[1], [])
        self.tree.write("runtime/base/bad.hpp", "inline std::string name();\n")
        failures = check_layers.check_headers(self.tree.folder, compiler, folder)[1]
        self.assertEqual(len(failures), 1)
        self.assertIn("runtime/base/bad.hpp", failures[0])
        self.assertEqual(check_layers.check_headers(self.tree.folder, compiler, folder, ["runtime/base"])[1], [])
        self.assertEqual(len(check_layers.check_headers(self.tree.folder, compiler, folder, within=["runtime/base"])[1]), 1)
        self.assertEqual(check_layers.check_headers(self.tree.folder, compiler, folder, within=["transports"])[1], [])


class RepositoryTest(unittest.TestCase):
    def expect(self, path, text, part, executable=False):
        tree = Tree({})
        full = tree.write(path, text, plain=True)
        if executable:
            os.chmod(full, 0o755)
        found = tree.repository_violations()
        self.assertEqual(len(found), 1, found)
        self.assertIn(part, found[0])

    def test_seeded_violations(self):
        self.expect("a.cpp", "// see /" + "home/someone/notes\n", "path of one machine")
        self.expect("a.cpp", "// TO" + "DO\n", "reason")
        self.expect("a.cpp", "int x; // NO" + "LINT\n", "which one")
        self.expect("a.cpp", "__attribute__((no_" + "sanitize(\"thread\")))\n", "sanitizer off")
        self.expect("a.cpp", "#pragma GCC diagnostic " + "ignored \"-Wshadow\"\n", "hides")
        self.expect("tsan.supp", "race:x\n", "suppression file")
        self.expect("a.sh", "if then\n", "does not parse")
        self.expect("a.py", "def (:\n", "does not parse")
        self.expect("tool", "#!/usr/bin/env bash\nset -euo pipefail\n", "not executable")
        self.expect("tool", "#!/usr/bin/env bash\n" + "true\n" * 6, "pipefail", executable=True)
        self.expect("a.md", "see [this](missing.md)\n", "leads nowhere")

    def test_recipes(self):
        tree = Tree({})
        for path, text in (("meson.build", "project('x', version: '2.1')\n"), ("meson_options.txt", "option('python', type: 'string')\n"),
                           ("tools/packaging/debian/changelog", "tutti (2.1) unstable\n"), ("tools/packaging/debian/rules", "a -Dpython=x -Dold=y\n"),
                           ("tools/packaging/spack/tutti/package.py", 'version("2.0", tag="v2.0")\n'),
                           ("tools/packaging/conda/meta.yaml", 'package: {version: "2.1"}\n')):
            tree.write(path, text, plain=True)
        self.assertEqual(tree.repository_violations(), [
            "tools/packaging/spack/tutti/package.py: has version 2.0, the project has 2.1",
            "tools/packaging/debian/rules: gives Meson -Dold, which meson_options.txt lacks"])

    def test_calls_that_follow_the_locale(self):
        for line in ("c = std::toupper(c);", "if (isalpha(c)) return;", "x = std::strtod(text, &end);", "n = atoi(text);",
                     "std::ostringstream out;", 'std::snprintf(text, 9, "%.6g", x);', 'fmt::format("{:.2L}", x);',
                     "std::ifstream file(path); file >> x;", 'std::ifstream("/proc/x") >> x;', "std::stod(text);"):
            self.expect("runtime/base/bad.cpp", line + "\n", "follows the locale")
        tree = Tree({})
        tree.write("runtime/base/good.cpp", "std::ifstream file(path); x = y >> 2; to_upper(c); group.split(a); // std::toupper(c)\n", True)
        tree.write("tests/base/good.cpp", "n = std::atoi(text);\n", True)
        self.assertEqual(tree.repository_violations(), [])

    def test_files_named_in_comments_exist(self):
        for path, text in (("a.md", "See `gone.md`.\n"), ("a.cpp", "int a;  // as in base/gone.hpp\n"), ("a.py", "# beside gone.py\n")):
            self.expect(path, text, "which is no file of the repository")
        tree = Tree({})
        tree.write("base/here.hpp", "// see here.hpp, base/here.hpp and *.cpp\n#include \"gone.hpp\"\n", True)
        self.assertEqual(tree.repository_violations(), [])

    def test_tests_do_not_sleep_for_a_time(self):
        for path, text in (("tests/base/a.cpp", "int a;\n  std::this_thread::sleep_for(300ms);\n"), ("tests/base/a.py", "a = 1\ntime.sleep(0.5)\n")):
            self.expect(path, text, "a test sleeps for a time")
        tree = Tree({})
        tree.write("tests/base/a.cpp", "while (!f()) sleep_for(10ms);\nint a;\n// The period is measured.\nsleep_for(3s);\nusleep(9);  // why\n", True)
        tree.write("runtime/base/a.cpp", "int a;\nsleep_for(3s);\n", True)
        self.assertEqual(tree.repository_violations(), [])

    def test_what_is_fine_stays_fine(self):
        tree = Tree({})
        tree.write("a.md", "[a](a.md#part) [b](https://example.org) `[c](x.md)` TO" + "DO: wait for the fix of the compiler\n", True)
        tree.write("build/a.sh", "if then\n", True)
        tree.write("tests/fuzz/corpus/rules/a.txt", "TO" + "DO\n", True)
        self.assertEqual(tree.repository_violations(), [])


class SizesTest(unittest.TestCase):
    LONG = "int before(int a) {{ return a; }}\n{0}void Thing::long_one(std::vector<int>&& a) noexcept {{\n{1}}}\nint after() {{ return 1; }}\n"

    def functions(self, text):
        return [(f.name, f.lines, f.decisions) for f in check_sizes.functions_of("a.cpp", text)]

    def test_functions_are_found_by_their_braces(self):
        text = ("namespace a {\nstruct S : B {\n  S(int n) : n_{n}, m_(n) {\n    if (n) {}\n  }\n  int n_ = 1, m_{2};\n};\n"
                "enum class E { a, b };\nint table[] = {1, 2};\nauto f = [](int a) { return a ? 1 : 2; };\n"
                "#if X\nint g() {\n#else\nint g(int) {\n#endif\n  const char* text = \"if } while\";  // if (a && b) {\n"
                "  return a && b;\n}\nbool operator==(const S& a, const S& b) { return a.n_ == b.n_ || f(a); }\n}\n")
        self.assertEqual([f[0] for f in self.functions(text)], ["S", "g", "operator=="])
        self.assertEqual([f[2] for f in self.functions(text)], [1, 1, 1])
        self.assertEqual(self.functions(self.LONG.format("", "  f();\n" * 70))[1], ("Thing::long_one", 72, 0))
        python = "class A:\n    def b(self):\n        if c and d:\n            return [x for x in y]\n"
        self.assertEqual([f[2:5] for f in check_sizes.python_functions_of("a.py", python)], [("b", 3, 3)])

    def test_long_functions_need_a_reason(self):
        for body, reason in (("  f();\n" * 60, "longer than 60 lines because it is a table"),
                             ("  if (a) f();\n" * 16, "more than 15 decisions because it is a table")):
            tree = Tree({})
            tree.write("runtime/base/a.cpp", self.LONG.format("", body), plain=True)
            tree.write("tests/base/a.cpp", self.LONG.format("", body), plain=True)  # no product
            found = [f"{path}:{line}: {message}" for path, line, message in check_sizes.check_tree(tree.folder)[0] if path != "runtime/base"]
            self.assertEqual(len(found), 1, found)
            self.assertIn("runtime/base/a.cpp:2: Thing::long_one has", found[0])
            tree.write("runtime/base/a.cpp", self.LONG.format(f"// Is {reason}.\n", body), plain=True)
            self.assertEqual([v for v in check_sizes.check_tree(tree.folder)[0] if v[0] != "runtime/base"], [])

    def test_folders_and_files_stay_small(self):
        tree = Tree({f"runtime/{name}/a.hpp": "\n" * 10 for name in "abcdefghi"})
        self.assertEqual(check_sizes.check_tree(tree.folder)[0], [])
        tree.write("runtime/a/b.hpp", "\n" * 20)
        self.assertIn("at most 20 %", check_sizes.check_tree(tree.folder)[0][0][2])
        for name in "abcdefghi":
            tree.write(f"runtime/{name}/a.hpp", "\n" * 280)
        self.assertIn("nine of ten files", check_sizes.check_tree(tree.folder)[0][0][2])


class WordsTest(unittest.TestCase):
    ROWS = "| term | meaning | elsewhere |\n|---|---|---|\n"

    def violations(self, files):
        tree = Tree({})
        for path, text in {"docs/glossary.md": self.ROWS, **files}.items():
            tree.write(path, text, plain=True)
        return [f"{path}:{line}: {message}" for path, line, message in check_words.check_tree(tree.folder)[0]]

    def test_a_word_has_one_row_and_is_used(self):
        rows = self.ROWS + "| atom, grid (of a buffer) | a | |\n| flag line | b | |\n"
        self.assertEqual(self.violations({"docs/glossary.md": rows, "a.md": "Atoms, a grid and a flag\nline.\n"}), [])
        for row, part in (("| grid | c | |\n", "'grid' has a row already, in line 3"), ("| flange | c | |\n", "'flange' is used nowhere")):
            found = self.violations({"docs/glossary.md": rows + row, "a.md": "Atoms, a grid and a flag line.\n"})
            self.assertEqual(len(found), 1, found)
            self.assertIn(part, found[0])

    def test_retired_words_do_not_come_back(self):
        for path, line in (("runtime/scheduler/a.hpp", "class Board;"), ("runtime/job/a.cpp", "on_door(guest);"), ("a.md", "the lane and its stamp"),
                           ("backends/nccl/a.hpp", "class DeviceCarrier;"), ("runtime/schedule/a.cpp", "publish(1);")):
            found = self.violations({path: line + "\n"})
            self.assertTrue(found and all("is retired; say" in message for message in found), found)
        for path, line in (("runtime/kernels/a.hpp", "a vector of 8 lanes"), ("docs/notebook/a.md", "~~boards~~"), ("runtime/group/a.cpp", "publish();"),
                           ("a.cpp", "boarding, discard, Timestamp")):
            self.assertEqual(self.violations({path: line + "\n"}), [])

    def test_sentences_begin_with_their_subject(self):
        found = self.violations({"runtime/a.cpp": "// Calls what is due. Who is it?\n// What comes first is the\n// call. Who waits, yields.\n"})
        self.assertEqual(len(found), 2, found)
        self.assertIn("runtime/a.cpp:1: begins with a clause instead of its subject: What comes", found[0])


class AbiTest(unittest.TestCase):
    HEADER = """
#define TUTTI_ABI_VERSION 0  // of the soname
typedef enum TUTTI_AS_INT32 {
  TUTTI_OK = 0,  // fine
  TUTTI_TIMEOUT
} tutti_status_t;
#ifdef __cplusplus
extern "C" {
#endif
// Says it.
tutti_status_t tutti_say(const char* text,
                         int times);
"""

    def test_a_header_is_its_declarations(self):
        expected = ["#define TUTTI_ABI_VERSION 0", "typedef enum TUTTI_AS_INT32 {", "  TUTTI_OK = 0,", "  TUTTI_TIMEOUT", "} tutti_status_t;",
                    "tutti_status_t tutti_say(const char* text, int times);"]
        self.assertEqual(list(check_abi.statements(self.HEADER)), expected)
        changed = list(check_abi.statements(self.HEADER.replace("int times", "long times")))
        self.assertEqual(check_abi.differences(expected, changed), ([expected[-1]], [changed[-1]]))
        self.assertEqual(check_abi.differences(expected, expected), ([], []))


class WheelTest(unittest.TestCase):
    NAME = "tutti-0.1.0-cp311-cp311-manylinux_2_35_x86_64.whl"

    def wheel(self, torch, *others, name=NAME):
        path = os.path.join(tempfile.mkdtemp(dir=SCRATCH.name), name)
        with zipfile.ZipFile(path, "w") as archive:
            for file in ("tutti/__init__.py", "tutti/_torch.cpython-311.so", "tutti-0.1.0.dist-info/RECORD", *others):
                archive.writestr(file, f"{file} for {torch}")
            archive.writestr("tutti/_torch_build.py", f'VERSION = "{torch}"\n')
        return path

    def test_one_wheel_for_several_torches(self):
        merged = wheel_build.merge([self.wheel("2.13.0+cpu"), self.wheel("2.12.1+cu130")], tempfile.mkdtemp(dir=SCRATCH.name))
        with zipfile.ZipFile(merged) as archive:
            self.assertEqual(archive.read("tutti/_torch.cpython-311.so"), b"tutti/_torch.cpython-311.so for 2.13.0+cpu")
            self.assertEqual(archive.read("tutti/torch_2_12_1/_torch.cpython-311.so"), b"tutti/_torch.cpython-311.so for 2.12.1+cu130")
            record = archive.read("tutti-0.1.0.dist-info/RECORD").decode().splitlines()
        self.assertEqual([line.split(",")[0] for line in record], ["tutti/__init__.py", "tutti/_torch.cpython-311.so", "tutti/_torch_build.py",
                                                                 "tutti/torch_2_12_1/_torch.cpython-311.so", "tutti-0.1.0.dist-info/RECORD"])

    def test_bad_wheels_are_refused(self):
        wheel_build.check_wheel(self.wheel("2.13.0", "tutti.libs/libhwloc-4b07a1f9.so.15"))
        for wheel, said in ((self.wheel("2.13.0", "tutti.libs/libucp-4b07a1f9.so.0"), "bundles tutti.libs/libucp"),
                            (self.wheel("2.13.0", "tutti.libs/libtorch_cpu-4b07a1f9.so"), "bundles tutti.libs/libtorch_cpu"),
                            (self.wheel("2.13.0", name="tutti-0.1.0-cp311-cp311-linux_x86_64.whl"), "no manylinux wheel")):
            with self.assertRaisesRegex(wheel_build.WheelError, said):
                wheel_build.check_wheel(wheel)


class CountTest(unittest.TestCase):
    def test_every_result_is_counted_once(self):
        words = ["OK", "OK", "EXPECTEDFAIL", "FAIL", "TIMEOUT", "ERROR", "UNEXPECTEDPASS", "INTERRUPT", "SKIP"]
        lines = [f'{{"name": "x", "result": "{word}"}}\n' for word in words]
        self.assertEqual(count_results.count(lines + ["\n"]), (3, 5, 1))

    def test_failures_are_shown_with_the_end_of_what_they_wrote(self):
        written = "".join(f"line {i}\\n" for i in range(100))
        lines = [
            '{"name": "good", "result": "OK", "duration": 1, "stdout": "never shown"}\n',
            f'{{"name": "bad", "result": "TIMEOUT", "duration": 2.5, "stdout": "{written}"}}\n',
        ]
        shown = list(count_results.failures(lines))
        self.assertEqual(shown[0], "bad: TIMEOUT after 2.5 s")
        self.assertEqual(shown[-1], "    line 99")
        self.assertEqual(len(shown), 1 + count_results.LINES_SHOWN)


class HistoryTest(unittest.TestCase):
    def log(self, **results):
        return [f'{{"name": "tutti:unit / {name}", "result": "{word}", "duration": {seconds}}}\n' for name, (word, seconds) in results.items()]

    def test_a_test_that_passes_and_fails_with_one_version_is_flaky(self):
        runs = test_history.add([], "build", self.log(a=("OK", 1), b=("OK", 1), c=("SKIP", 1), d=("OK", 2)), "v1")
        runs = test_history.add(runs, "build", self.log(a=("TIMEOUT", 30), b=("OK", 1), d=("OK", 2)), "v1")
        runs = test_history.add(runs, "build", self.log(a=("OK", 1), b=("FAIL", 1), d=("OK", 20)), "v2")
        lines = list(test_history.table(runs))
        self.assertEqual([(line.split()[0], line.split()[-1]) for line in lines[1:]], [("flaky", "a"), ("failed", "b"), ("slow", "d")])
        self.assertEqual(lines[1].split(), ["flaky", "1", "1", "3", "1.0", "30.0", "build", "a"])
        self.assertEqual(list(test_history.table(test_history.add([], "build", self.log(a=("OK", 1)), "v1"))), [])

    def test_the_file_survives_a_cut_and_stays_short(self):
        path = os.path.join(tempfile.mkdtemp(dir=SCRATCH.name), "history.tsv")
        runs = []
        for i in range(60):
            runs = test_history.add(runs, "build", self.log(a=("OK", i)), f"v{i}")
        test_history.write(path, runs)
        with open(path, "a", encoding="utf-8") as file:
            file.write("build\ta")
        self.assertEqual([run.version for run in test_history.read(path)], [f"v{i}" for i in range(10, 60)])


class ManTest(unittest.TestCase):
    HELP = """tutti bench: times a collective. It checks too.

Usage: tutti bench <collective> [options]

Options:
  -n N            ranks
                  on this machine
  --check         compare 1.5 \\ bits

Examples:
  tutti bench allreduce
"""

    def test_page(self):
        page = make_man.make_page("tutti-bench", "1.2", self.HELP)
        self.assertIn("tutti\\-bench \\- times a collective\n", page)
        self.assertIn(".SH SYNOPSIS\n.nf\n.B tutti bench <collective> [options]\n", page)
        self.assertIn(".TP\n.B \\-n N\nranks\non this machine\n", page)
        self.assertIn("compare 1.5 \\e bits", page)
        self.assertIn('.SH "EXAMPLES"\n.nf\ntutti bench allreduce\n', page)

    def test_help_without_a_purpose_is_refused(self):
        with self.assertRaises(ValueError):
            make_man.make_page("tutti-x", "1", "Usage: tutti x\n")


if __name__ == "__main__":
    unittest.main(verbosity=1)
