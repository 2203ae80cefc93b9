"""`winnow run` with small programs in the place of llama.cpp's: which flags they get, what they see and write, how they
end, and what is said of what the plugin noted.

    run_test.py WINNOW_PROGRAM FOLDER_OF_THE_BACKENDS
"""

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path


PROGRAM, LIBRARIES = sys.argv[1:3]
del sys.argv[1:3]

NEW = """-fa,   --flash-attn [on|off|auto]       set Flash Attention use ('on', 'off', or 'auto', default: 'auto')
                                        (env: LLAMA_ARG_FLASH_ATTN)
-dev,  --device <dev1,dev2,..>          comma-separated list of devices to use for offloading
                                        (env: LLAMA_ARG_DEVICE)"""
BENCH = """  -fa, --flash-attn <on|off|auto>                   (default: auto)
  -dev, --device <dev0/dev1/...>                    (default: auto)"""
OLD_BENCH = """  -fa, --flash-attn <0|1>                     (default: 0)
  -dev, --device <dev0/dev1/...>              (default: auto)"""
OLD = """-fa,   --flash-attn                     enable Flash Attention (default: disabled)
                                        (env: LLAMA_ARG_FLASH_ATTN)"""
RPC = "  -d, --device <dev1,dev2,...>     comma-separated list of devices"
ADDED = ["-dev", "Winnow", "-fa", "on"]

# Waits for the first signal of this kind, and says how many there were until a while after it.
COUNTER = """import signal, time
count = 0
def take(*_):
    global count
    count += 1
signal.signal(signal.SIGTERM, take)
print("ready", flush=True)
while not count:
    time.sleep(.01)
print("first", flush=True)
end = time.monotonic() + .6
while time.monotonic() < end:
    time.sleep(.01)
print(count)
"""

INTERRUPTS = 30
# Says who sent it an interrupt, so many times, and waits a moment for another one.
WAITER = f"""import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
for _ in range({INTERRUPTS}):
    print("ready", flush=True)
    seconds = 20
    while info := signal.sigtimedwait([signal.SIGINT], seconds):
        print("interrupt", info.si_pid, flush=True)
        seconds = .03
"""

REPORT = {"graphs": 41, "attention_calls": 1230, "devices": [{"name": "a CPU"}],
          "caches": [{"config": "winnow:budget=1/4", "bytes": 3 << 19}], "in_place": []}


def comes_true(condition):
    end = time.monotonic() + 20
    while not condition() and time.monotonic() < end:
        time.sleep(.01)
    return condition()


class Run(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.plugin = self.folder / "plugin"
        self.plugin.mkdir()
        (self.plugin / "libwinnow_ggml.so").touch()
        (self.plugin / "libwinnow_reference.so").symlink_to(Path(LIBRARIES, "libwinnow_reference.so").absolute())
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("WINNOW_", "LLAMA_")) and name != "GGML_BACKEND_PATH"}
        self.environment = kept | {"WINNOW_PATH": str(self.plugin), "XDG_CACHE_HOME": str(self.folder / "cache")}

    def program(self, body, text="", name="llama-fake"):
        """A script that answers --help with a text, and else runs the body."""
        path = self.folder / name
        path.write_text(f"#!/bin/sh\nif [ \"$*\" = --help ]; then touch '{self.folder}/asked'\n"
                        f"cat <<'END'\n{text}\nEND\nexit 0; fi\n{body}\n")
        path.chmod(0o755)
        return path

    def python_program(self, text):
        program = self.folder / "in-python"
        program.write_text(f"#!{sys.executable}\n{text}")
        program.chmod(0o755)
        return program

    def run_winnow(self, *arguments, standard_input=b"", **environment):
        """(status, stdout, stderr)"""
        done = subprocess.run([PROGRAM, "run", *map(str, arguments)], input=standard_input, capture_output=True,
                              timeout=60, env=self.environment | environment)
        return done.returncode, done.stdout, done.stderr.decode()

    def flags(self, text, *given, name="llama-fake", **environment):
        """The arguments that a program with such a --help gets."""
        program = self.program('for each in "$@"; do echo "$each"; done', text, name)
        return self.run_winnow("--", program, *given, **environment)[1].decode().splitlines()

    def said_of(self, notes, *given, text=NEW, end="exit 0"):
        """The lines at the end of a program in whose processes the plugin noted this."""
        lines = "\n".join(f"{process}\t{event}\t{what}" for process, event, what in notes)
        (self.folder / "notes").write_text(lines + "\n" if notes else "")
        program = self.program(f"cat '{self.folder}/notes' >> \"$WINNOW_RUN_LOG\"; {end}", text)
        _, out, err = self.run_winnow("--", program, *given)
        self.assertEqual(out, b"")
        self.assertTrue(all(line.startswith("winnow: ") for line in err.splitlines()), err)
        return [line.removeprefix("winnow: ") for line in err.splitlines()]

    def test_flags_are_those_that_the_program_knows(self):
        self.assertEqual(self.flags(NEW, "-m", "x y"), ["-m", "x y", *ADDED])
        self.assertEqual(self.flags(BENCH), ADDED)
        self.assertEqual(self.flags(OLD_BENCH), ["-dev", "Winnow", "-fa", "1"])
        self.assertEqual(self.flags(OLD), ["-fa"])
        for text in (RPC, "usage: llama-simple -m model.gguf", ""):
            self.assertEqual(self.flags(text, "-m", "x"), ["-m", "x"])

    def test_what_the_user_says_stays(self):
        for given in (["-dev", "none"], ["--device", "CUDA0"], ["--device=CUDA0"]):
            self.assertEqual(self.flags(NEW, *given), [*given, "-fa", "on"])
        for given in (["-fa", "off"], ["--flash-attn", "auto"]):
            self.assertEqual(self.flags(NEW, *given), [*given, "-dev", "Winnow"])
        self.assertEqual(self.flags(NEW, LLAMA_ARG_DEVICE="none", LLAMA_ARG_FLASH_ATTN="off"), [])
        self.assertEqual(self.flags(BENCH, LLAMA_ARG_DEVICE="none"), ADDED)  # which llama-bench does not read

    def test_other_programs_are_not_asked(self):
        for name in ("chat.sh", "llama-chat.sh", "my-llama"):
            self.assertEqual(self.flags(NEW, name=name), [])
            self.assertFalse((self.folder / "asked").exists(), name)
        self.flags(NEW)
        self.assertTrue((self.folder / "asked").exists())
        (self.folder / "asked").unlink()
        source = f"""#include <stdio.h>
            const char* text = TEXT;
            int main(int count, char** arguments) {{
                if (count == 2 && arguments[1][2] == 'h') fclose(fopen("{self.folder}/asked", "w"));
                return text == 0;
            }}"""
        for name, text, is_asked in (("program", "llama", False), ("static", "LLAMA_ARG_DEVICE", True),
                                     ("bench", "  -fa, --flash-attn <0|1>", True),
                                     ("linked", "libllama-common.so", True)):
            built = self.folder / name
            subprocess.run(["cc", "-x", "c", f'-DTEXT="{text}"', "-o", built, "-"], input=source, text=True, check=True)
            self.assertEqual(self.run_winnow("--", built)[0], 0)
            self.assertEqual((self.folder / "asked").exists(), is_asked, text)
            (self.folder / "asked").unlink(missing_ok=True)
        status, out, err = self.run_winnow("--", sys.executable, "-c", "import sys; print(sys.argv[1:])")
        self.assertEqual((status, out), (0, b"[]\n"))
        self.assertIn("enable()", err)

    def test_the_program_has_its_input_and_output(self):
        data = bytes(range(256)) * 400
        program = self.program("echo first >&2; cat; exit 3")
        status, out, err = self.run_winnow("--", program, standard_input=data)
        self.assertEqual((status, out == data), (3, True))
        first, *rest = err.splitlines()
        self.assertEqual(first, "first")
        self.assertTrue(rest and all(line.startswith("winnow: ") for line in rest), rest)

    def test_variables_are_set(self):
        program = self.program("env")

        def seen(*options, **environment):
            out = self.run_winnow(*options, "--", program, **environment)[1].decode()
            return dict(line.split("=", 1) for line in out.splitlines())

        found = seen()
        self.assertEqual(found["GGML_BACKEND_PATH"], str(self.plugin / "libwinnow_ggml.so"))
        self.assertEqual(found["WINNOW_KV"], "winnow")
        self.assertNotIn("WINNOW_DEVICE", found)
        (self.folder / "own").mkdir()
        relative = os.path.relpath(self.folder / "own")
        self.assertTrue(Path(seen(TMPDIR=relative)["WINNOW_RUN_LOG"]).is_absolute())
        self.assertFalse(Path(found["WINNOW_RUN_LOG"]).exists())
        found = seen("--kv", "window:budget=512", "--device", "cpu", "--report", "r.json", WINNOW_KV="none")
        self.assertEqual([found["WINNOW_KV"], found["WINNOW_DEVICE"], found["WINNOW_REPORT"]],
                         ["window:budget=512", "cpu", "r.json"])
        self.assertEqual(seen(WINNOW_KV="none")["WINNOW_KV"], "none")
        for in_place in (["--in-place"], ["--kv", ""]):
            self.assertEqual(seen(*in_place, WINNOW_KV="none")["WINNOW_KV"], "")
        self.assertEqual(seen("--kv", "[layers=2]none;winnow")["WINNOW_KV"], "[layers=2]none;winnow")

    def test_nothing_is_started_after_a_refusal(self):
        program = self.program(f"touch '{self.folder}/started'")
        other = self.plugin / "libggml-vulkan.so"
        other.touch()
        for options, environment, words in (
                (["--kv", "h3o:budget=1/4"], {}, ["--kv h3o", 'no policy "h3o"', "winnow, window, h2o"]),
                ([], {"WINNOW_KV": "h2o:budet=1"}, ["WINNOW_KV=h2o:budet=1", 'no key "budet"']),
                (["--kv", "[layer=2]none;winnow"], {}, ['"layer=2"', "kv_heads="]),
                (["--kv", "[layers=2]none;winow"], {}, ['no policy "winow"']),
                ([], {"GGML_BACKEND_PATH": str(other)}, [str(other), "expected it unset"]),
                ([], {"GGML_BACKEND_PATH": "/x/libwinnow_ggml-0.9.8.so"}, ["ggml-0.9.8.so", "expected it unset"]),
                ([], {"GGML_BACKEND_PATH": "/nonesuch/libwinnow_ggml.so"}, ["no such file"]),
                ([], {"TMPDIR": "/dev/null"}, ["no folder for temporary files", "TMPDIR"]),
                (["--no-such-option"], {}, ["--no-such-option"])):
            status, out, err = self.run_winnow(*options, "--", program, **environment)
            self.assertEqual((status, out), (125, b""), err)
            for word in words:
                self.assertIn(word, err)
            self.assertFalse((self.folder / "started").exists(), err)
        for arguments in ((), ("--",)):
            status, _, err = self.run_winnow(*arguments)
            self.assertEqual(status, 125, err)
            self.assertIn("-- PROGRAM", err)
        status, _, err = self.run_winnow(program)  # without --
        self.assertEqual(status, 125, err)
        self.assertEqual(self.run_winnow("--help")[0], 0)

    def test_a_program_that_cannot_be_started_has_the_status_of_a_shell(self):
        locked = self.folder / "locked"
        locked.mkdir()
        (locked / "hidden").touch()
        self.program("exit 0", name="plain").chmod(0o644)
        path = f"{locked}:{self.folder}:{os.environ['PATH']}"
        as_other = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
        self.folder.chmod(0o755)
        locked.chmod(0)
        self.addCleanup(locked.chmod, 0o755)
        for name, status, words in (("no-such-program", 127, "no program no-such-program"),
                                    ("hidden", 127, "no program hidden"),
                                    ("plain", 126, "Permission denied"),
                                    (self.folder / "plain", 126, "Permission denied"),
                                    (self.folder, 126, "cannot start")):
            done = subprocess.run([PROGRAM, "run", "--", str(name)], capture_output=True, text=True,
                                  env=self.environment | {"PATH": path}, **as_other)
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertIn(words, done.stderr)

    def test_an_installation_without_plugin_says_so(self):
        (self.folder / "bin").mkdir()
        alone = Path(shutil.copy(PROGRAM, self.folder / "bin"))
        (self.plugin / "libwinnow_ggml.so").unlink()
        done = subprocess.run([alone, "run", "--", self.program("true")], capture_output=True, text=True,
                              env=self.environment)
        self.assertEqual((done.returncode, done.stdout), (125, ""))
        self.assertIn("no libwinnow_ggml.so", done.stderr)
        self.assertIn("ci/wheel", done.stderr)
        self.assertIn("WINNOW_LLAMA_CPP_DIR", done.stderr)

    def test_status_and_signals_are_the_programs(self):
        self.assertEqual(self.run_winnow("--", self.program("exit 42"))[0], 42)
        self.assertEqual(self.run_winnow("--", self.program("kill -9 $$"))[0], 128 + 9)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            program = self.program(f"trap 'echo caught; exit 5' {int(number)}; echo ready; while :; do sleep .01; done")
            with subprocess.Popen([PROGRAM, "run", "--", program], env=self.environment, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL) as process:
                self.assertEqual(process.stdout.readline(), b"ready\n")
                process.send_signal(number)
                self.assertEqual(process.communicate(timeout=20)[0], b"caught\n", number)
            self.assertEqual(process.returncode, 5)

    def test_a_signal_to_the_process_group_is_not_sent_again(self):
        with subprocess.Popen([PROGRAM, "run", "--", self.python_program(COUNTER)], env=self.environment,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True) as process:
            self.assertEqual(process.stdout.readline(), b"ready\n")
            process.send_signal(signal.SIGSTOP)  # or it might send its signal before the program has taken the first
            os.killpg(process.pid, signal.SIGTERM)
            self.assertEqual(process.stdout.readline(), b"first\n")
            process.send_signal(signal.SIGCONT)
            self.assertEqual(process.communicate(timeout=20)[0], b"1\n")

    def test_nothing_is_left_of_a_program_that_was_asked(self):
        folder = self.folder / "temporary"
        folder.mkdir()
        program = self.folder / "llama-slow"
        number = self.folder / "number"
        program.write_text(f"#!/bin/sh\necho $$ > '{number}'; touch '{self.folder}/started'\nexec sleep 60\n")
        program.chmod(0o755)
        environment = self.environment | {"TMPDIR": str(folder)}
        with subprocess.Popen([PROGRAM, "run", "--", program], env=environment) as process:
            self.assertTrue(comes_true((self.folder / "started").exists))
            process.terminate()
        self.assertEqual(os.listdir(folder), [])
        asked = Path("/proc", number.read_text().strip(), "cmdline")  # empty of one that nobody has waited for yet
        self.assertTrue(comes_true(lambda: not asked.exists() or not asked.read_text()))

    def test_a_terminals_interrupt_is_not_sent_again(self):
        program = self.python_program(WAITER)
        child, terminal = pty.fork()
        if child == 0:
            os.execve(PROGRAM, [PROGRAM, "run", "--", str(program)], self.environment)
        text, sent = b"", 0
        while True:
            try:
                text += os.read(terminal, 4096)
            except OSError:  # it has ended
                break
            if text.count(b"ready") > sent:
                sent += 1
                os.write(terminal, b"\x03")
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0, text)
        senders = re.findall(r"interrupt (\d+)", text.decode())
        self.assertEqual(senders, ["0"] * INTERRUPTS)  # the system's

    def test_calls_are_counted_over_all_processes(self):
        report = json.dumps(REPORT)
        notes = [(1, "loaded", "a CPU"), (1, "used", ""), (1, "computed", ""),
                 (1, "report", json.dumps(REPORT | {"attention_calls": 5})), (1, "report", report),
                 (2, "loaded", "a CPU"), (2, "used", ""), (2, "computed", ""), (2, "report", report)]
        self.assertEqual(self.said_of(notes), ["called 2460 times for attention in 82 graphs on a CPU, cache 3.0 MiB "
                                               "(winnow:budget=1/4)"])
        kept = json.loads((self.folder / "cache" / "winnow" / "last_run.json").read_text())
        self.assertEqual((kept["program"], kept["called"], kept["status"]), ("llama-fake", True, 0))
        (line,) = self.said_of([(1, "computed", ""), (1, "report", json.dumps(REPORT | {"caches": []}))])
        self.assertIn("cache in place", line)
        in_place = REPORT | {"in_place": [{"name": "cache_k_l0", "reason": "rows are copied"}]}
        self.assertIn("stayed in place: cache_k_l0: rows are copied",
                      self.said_of([(1, "computed", ""), (1, "report", json.dumps(in_place))])[1])

    def test_warnings_are_repeated(self):
        bias, place = "the model adds a bias to its keys", "cache_k_l0 stays in place: rows are copied"
        in_place = REPORT | {"in_place": [{"name": "cache_k_l0", "reason": "rows are copied"}]}
        lines = self.said_of([(1, "loaded", "a CPU"), (1, "computed", ""), (1, "warning", bias), (2, "warning", bias),
                              (1, "warning", place), (1, "report", json.dumps(in_place))])
        self.assertEqual(lines[0], f"warning: {bias}")
        self.assertEqual(len(lines), 3, lines)
        self.assertTrue(lines[1].startswith("called "), lines)

    def test_a_killed_program_was_called_all_the_same(self):
        (line,) = self.said_of([(1, "loaded", "a CPU"), (1, "used", ""), (1, "computed", "")], end="kill -9 $$")
        self.assertEqual(line, "called for attention on a CPU; llama-fake was killed by signal 9 before it freed its "
                               "context, so that the calls were not counted")

    def test_a_process_without_report_adds_to_the_calls(self):
        notes = [(1, "loaded", "a CPU"), (1, "computed", ""), (2, "computed", "")]
        uncounted = "; a process ended before it freed its context, so that its calls were not counted"
        report = REPORT | {"attention_calls": 100, "graphs": 4}
        self.assertEqual(self.said_of([*notes, (1, "report", json.dumps(report | {"caches": []}))], end="kill -9 $$"),
                         ["called at least 100 times for attention in at least 4 graphs on a CPU" + uncounted])
        self.assertEqual(self.said_of([*notes, (1, "report", json.dumps(report))]),
                         ["called at least 100 times for attention in at least 4 graphs on a CPU, cache at least "
                          "1.5 MiB (winnow:budget=1/4)" + uncounted])

    def test_why_not_is_said_with_the_cure(self):
        loaded, used = (1, "loaded", "a CPU"), (1, "used", "")
        none = (1, "report", json.dumps(REPORT | {"attention_calls": 0, "caches": []}))
        refused = (1, "error", "this process has ggml 0.1.0, and no library fits; build Winnow")
        not_written = (1, "error", "WINNOW_REPORT: cannot write /x/y: No such file or directory")
        for notes, given, text, end, words in (
                ([], ["--device", "cpu"], "usage: no program of llama.cpp's", "exit 0", ["never loaded the plugin"]),
                ([loaded], ["-dev", "winnow"], NEW, "exit 0", ["made no context with it"]),
                ([loaded, used, not_written], ["-fa", "off"], NEW, "exit 0", ["flash attention is off (-fa off)"]),
                ([loaded, used, not_written], [], NEW, "exit 0", ["gave it no attention"]),
                ([loaded, used, not_written, (1, "error", "WINNOW_KV=winnow: no")], [], NEW, "exit 1",
                 ["WINNOW_KV=winnow: no", "--in-place"]),
                ([], [], NEW, "exit 0", ["never loaded the plugin", "static build"]),
                ([], [], NEW, "exit 1", ["never loaded the plugin and ended with status 1", "above say why"]),
                ([], ["-dev", "none"], NEW, "exit 0", ["-dev none does not name Winnow", "-dev Winnow"]),
                ([loaded], [], OLD, "exit 0", ["made no context with it", "GGML_BACKEND_DL"]),
                ([loaded], [], NEW, "exit 1", ["made no context with it; it ended with status 1", "above say why"]),
                ([refused], [], NEW, "exit 0", ["this process has ggml 0.1.0", "winnow doctor"]),
                ([loaded, used, none], ["-fa", "off"], NEW, "exit 0", ["flash attention is off (-fa off)", "-fa on"]),
                ([loaded, used, none], [], NEW, "exit 0", ["gave it no attention", "-ngl 0"])):
            lines = self.said_of(notes, *given, text=text, end=end)
            self.assertEqual(len(lines), 2, lines)
            self.assertTrue(lines[0].startswith("not called: "), lines)
            for word in words:
                self.assertIn(word, " ".join(lines))

    def test_a_cache_that_cannot_be_written_disturbs_nothing(self):
        status, out, err = self.run_winnow("--", self.program("echo text"), XDG_CACHE_HOME="/dev/null/cache")
        self.assertEqual((status, out), (0, b"text\n"))
        self.assertNotIn("/dev/null", err)


class Paths(unittest.TestCase):
    def path(self, what, **environment):
        done = subprocess.run([PROGRAM, "path", what], capture_output=True, text=True, env=os.environ | environment)
        return done.returncode, done.stdout, done.stderr

    def test_paths_are_there_or_said_to_be_missing(self):
        status, out, err = self.path("library", WINNOW_BACKEND="reference")
        self.assertEqual((status, out), (0, str(Path(LIBRARIES, "libwinnow_reference.so").resolve()) + "\n"), err)
        with tempfile.TemporaryDirectory() as folder:
            plugin = Path(folder, "libwinnow_ggml.so")
            plugin.touch()
            self.assertEqual(self.path("ggml", WINNOW_PATH=f"/nonesuch:{folder}")[1], f"{plugin.resolve()}\n")
        for what, words in (("include", "plugin_api"), ("cmake", "cmake --install")):  # of a build tree
            status, out, err = self.path(what)
            self.assertEqual((status, out), (1, ""))
            self.assertIn(words, err)
        self.assertNotEqual(self.path("elsewhere")[0], 0)


if __name__ == "__main__":
    unittest.main()
