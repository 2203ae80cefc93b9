"""Tests of `winnow plan` with files that it has to refuse; plan_test.py runs them."""

import re
import struct
import subprocess
from pathlib import Path

import gguf_files
from gguf_files import ARRAY, BOOL, FLOAT32, INT32, STRING, UINT32, UINT64

from plan.planned_files import Files

MODELS = Path(__file__).resolve().parents[2] / "docs" / "models.md"


class BrokenFiles(Files):
    def test_every_length_that_a_file_may_be_cut_to_is_refused(self):
        data = gguf_files.header(gguf_files.model())
        for length in range(len(data)):
            self.refuse(data[:length], "model.gguf", "expected")

    def test_what_is_no_gguf_is_refused(self):
        values = gguf_files.model()
        self.refuse(gguf_files.header(values, magic=b"GGML"), "expected a GGUF file")
        self.refuse(gguf_files.header(values, version=1), "version 1", "expected version 2 or 3")
        self.refuse(gguf_files.header(values, version=0x03000000), "big-endian")
        self.refuse(b"", "expected")
        done = subprocess.run([self.program, "plan", "--model", self.folder / "none.gguf"], capture_output=True,
                              text=True)
        self.assertEqual((done.returncode, "cannot be opened" in done.stderr), (1, True))
        done = subprocess.run([self.program, "plan", "--model", self.folder], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1, done.stderr)

    def test_huge_counts_are_refused_without_reading_on(self):
        values = gguf_files.model()
        for count in (len(values) + 1, 1 << 32, (1 << 64) - 1):
            self.refuse(gguf_files.header(values, count=count), "and the file has")
        huge = struct.pack("<Q", (1 << 64) - 1)
        head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1)
        self.refuse(head + huge + b"key, type and more", "key 1 of 1")
        key = gguf_files.text("llama.x")
        self.refuse(head + key + struct.pack("<I", STRING) + huge + b"text", "llama.x")
        for of in (UINT32, UINT64, STRING, BOOL):
            self.refuse(head + key + struct.pack("<II", ARRAY, of) + huge + bytes(64), "llama.x")
            self.refuse(head + key + struct.pack("<IIQ", ARRAY, of, 1 << 61) + bytes(64), "llama.x")

    def test_unknown_types_and_nested_lists_are_refused(self):
        head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + gguf_files.text("llama.x")
        self.refuse(head + struct.pack("<I", 13) + bytes(64), "type 13")
        self.refuse(head + struct.pack("<IIQ", ARRAY, 4000000000, 1) + bytes(64), "type 4000000000")
        self.refuse(head + struct.pack("<IIQ", ARRAY, ARRAY, 1) + struct.pack("<IQ", UINT32, 1) + bytes(64),
                    "list of lists")

    def test_a_key_twice_is_refused(self):
        values = gguf_files.model()
        self.refuse(gguf_files.header([*values, values[-1]]), values[-1][0], "once")


class Metadata(Files):
    def test_missing_keys_are_named(self):
        for key, word in (("block_count", "llama.block_count"), ("head_count", "llama.attention.head_count"),
                          ("embedding_length", "llama.embedding_length")):
            self.refuse(gguf_files.header(gguf_files.model(**{key: None})), word)
        self.refuse(gguf_files.header([]), "general.architecture")

    def test_numbers_that_cannot_be_are_refused(self):
        for changes, word in (({"head_count": (UINT32, 0)}, "expected 1 to"),
                              ({"block_count": (UINT32, 0)}, "expected 1 to"),
                              ({"block_count": (UINT32, 4000000000)}, "expected 1 to"),
                              ({"head_count_kv": (UINT32, 2)}, "expected a multiple"),
                              ({"head_count": (UINT32, 7), "head_count_kv": (UINT32, 7)}, "no multiple"),
                              ({"head_count_kv": (INT32, -3)}, "is -3"),
                              ({"key_length": (UINT32, 0)}, "expected 1 to"),
                              ({"key_length": (UINT64, (1 << 64) - 1)}, "a whole number"),
                              ({"key_length": (FLOAT32, 64.0)}, "a whole number"),
                              ({"block_count": (STRING, "30")}, "block_count"),
                              ({"head_count_kv": (ARRAY, (INT32, [3] * 29))}, "29 numbers"),
                              ({"head_count_kv": (ARRAY, (STRING, ["3"] * 30))}, "a list of whole numbers")):
            self.refuse(gguf_files.header(gguf_files.model(**changes)), word)

    def test_caches_that_are_not_known_are_refused(self):
        for architecture, changes, word in (
                ("llama", {"head_count_kv": (ARRAY, (INT32, [3] * 29 + [0]))}, "attention in every layer"),
                ("jamba", {"head_count_kv": (ARRAY, (INT32, [3] * 29 + [0]))}, "ssm.inner_size"),
                ("granitehybrid", {"head_count_kv": (UINT32, 0)}, "no layer has keys and values"),
                ("nemotron_h", {}, "nemotron_h.feed_forward_length"),
                ("lfm2", {"window": (UINT32, 512)}, "windows"), ("mamba", {"state": (UINT32, 16)}, "mamba"),
                ("qwen35", {"recurrent_layers": (ARRAY, (INT32, [1] * 29))}, "29 numbers"),
                ("qwen35", {"interval": (UINT32, 0)}, "expected 1 to"), ("grok", {}, "stays in place"),
                ("nonesuch", {}, "nonesuch"),
                ("openelm", {"head_count": (ARRAY, (INT32, [9] * 29 + [6]))}, "stays in place")):
            self.refuse(gguf_files.header(gguf_files.model(architecture, **changes)), word)

    def test_a_cache_in_place_is_refused_as_its_page_says(self):
        page = MODELS.read_text(encoding="utf-8")
        virtual = re.findall(r"`([\w.-]+)`", re.search(r"\*\*Virtual\*\* \(.*?:\s(`.*?)\.\n\n", page, re.S)[1])
        staying = re.findall(r"^\| `([\w.-]+)` \| [^|]* \| (in place|in part): ", page, re.M)
        self.assertTrue(virtual and staying)
        words = {"in place": "stays in place, Winnow saves nothing there",
                 "in part": "stays in place in part, and winnow plan does not know how large"}
        for architecture, where in staying:
            self.refuse(gguf_files.header(gguf_files.model(architecture)), f" {architecture} ", words[where])
        for architecture in virtual:
            _, _, err = self.run_plan(gguf_files.header(gguf_files.model(architecture, block_count=None)))
            self.assertNotIn("in place", err)
