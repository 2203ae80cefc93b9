"""Runs `winnow plan` as a user would, on files that it makes: usage: plan_test.py WINNOW_PROGRAM"""

import json
import os
import struct
import subprocess
import sys
import unittest
import xml.etree.ElementTree
import zlib
from pathlib import Path

import gguf_files
from gguf_files import ARRAY, BOOL, INT32, STRING, UINT32
from plan.biased_keys import BiasedKeys  # noqa: F401: unittest finds it here
from plan.hybrid_files import LatentAndHybrid  # noqa: F401: unittest finds it here
from plan.planned_files import Files
from plan.refused_files import BrokenFiles, Metadata  # noqa: F401: unittest finds them here

Files.program = sys.argv.pop(1)
MIB = 1 << 20
# Bytes of 32 elements: https://github.com/ggml-org/ggml, struct block_*.
BLOCKS = {"f32": 128, "f16": 64, "bf16": 64, "q8_0": 2 + 32, "q5_1": 2 + 2 + 4 + 16, "q5_0": 2 + 4 + 16,
          "q4_1": 2 + 2 + 16, "q4_0": 2 + 16, "iq4_nl": 2 + 16}


class Bytes(Files):
    def test_types_of_llama_cpp_take_their_blocks(self):
        types = list(BLOCKS)
        asked = [argument for k, v in zip(types, reversed(types)) for argument in ("--kv", f"cpu:k={k},v={v}")]
        _, rows = self.plan(gguf_files.header(gguf_files.model()), "--context", 1000, *asked)
        for k, v in [*zip(types, reversed(types)), ("f16", "f16"), ("q8_0", "q8_0"), ("q5_1", "q5_1"),
                     ("q5_0", "q5_0"), ("q4_0", "q4_0")]:
            row = rows[f"cpu:k={k},v={v}"]
            self.assertEqual(row["bytes"], 30 * 1024 * 3 * 64 // 32 * (BLOCKS[k] + BLOCKS[v]), row["name"])
            self.assertEqual(row["total_bytes"], row["bytes"])
        self.assertEqual(rows["inplace:k=q8_0,v=q8_0"]["bytes"], rows["cpu:k=q8_0,v=q8_0"]["bytes"])

    def test_a_window_of_winnow_takes_its_rows_maps_and_states(self):
        _, rows = self.plan(gguf_files.header(gguf_files.model()), "--context", 4096, "--kv", "window:budget=512")
        row = rows["window:budget=512"]
        # Per head and slot a row of keys, one of values and 4 bytes of map; per layer 16 bytes a head and 4 a cell.
        slots = 30 * 3 * 512
        states = 30 * (64 + 4 * 4096)
        self.assertEqual(row["bytes"], slots * (128 + 128 + 4) + states)
        self.assertEqual(row["added_bytes"] - row["scratch_bytes"],
                         self.plan(gguf_files.header(gguf_files.model()))[0]["added"]["winnow_bytes"])

    def test_the_memory_of_an_8b_model_on_the_pages_is_what_it_says(self):
        kept = json.loads(Path(__file__).parents[1].joinpath("docs/choosing_plan.json").read_text(encoding="utf-8"))
        asked = [argument for name in kept["configurations"] for argument in ("--kv", name)]
        model = gguf_files.model(block_count=(UINT32, 32), embedding_length=(UINT32, 4096), head_count=(UINT32, 32),
                                 head_count_kv=(UINT32, 8), feed_forward=(UINT32, 14336))  # Llama 3.1 8B
        _, rows = self.plan(gguf_files.header(model), "--context", kept["context"], *asked)
        for name, sizes in kept["configurations"].items():
            self.assertEqual({key: rows[name][key] for key in sizes}, sizes, name)

    def test_sizes_come_from_their_own_keys_where_there_are_some(self):
        model = gguf_files.model(key_length=(UINT32, 128), value_length=(UINT32, 32), head_count_kv=None)
        plan, rows = self.plan(gguf_files.header(model), "--context", 256)
        self.assertEqual(rows["cpu:k=f16,v=f16"]["bytes"], 30 * 256 * 9 * (128 + 32) * 2)
        (group,) = plan["model"]["groups"]
        self.assertEqual((group["kv_heads"], group["k_size"], group["v_size"]), (9, 128, 32))

    def test_a_budget_in_bytes_pays_though_a_long_context_cannot_have_it(self):
        _, rows = self.plan(gguf_files.header(gguf_files.model()), "--context", 8192, "--kv", "winnow:budget=8M")
        row = rows["winnow:budget=8M"]
        self.assertLess(row["total_bytes"], rows["cpu:k=f16,v=f16"]["total_bytes"])
        self.assertLessEqual(row["less_than_f16_from"], 8192)

    def test_a_window_evicts_nothing_however_small_the_budget_is(self):
        model = gguf_files.model("gemma2", window=(UINT32, 128))
        _, rows = self.plan(gguf_files.header(model), "--context", 32768, "--kv", "winnow:budget=1/64")
        self.assertNotIn("refused", rows["winnow:budget=1/64"])

    def test_rules_are_no_configuration(self):
        status, out, err = self.run_plan(gguf_files.header(gguf_files.model()), "--kv", "[layers=30]winnow;none")
        self.assertEqual((status, out), (1, ""))
        self.assertIn("expected one configuration", err)

    def test_heads_may_differ_by_layer(self):
        model = gguf_files.model(block_count=(UINT32, 3), head_count=(ARRAY, (INT32, [8, 9, 8])),
                                 head_count_kv=(ARRAY, (INT32, [2, 3, 2])), embedding_length=(UINT32, 512))
        plan, rows = self.plan(gguf_files.header(model), "--context", 256)
        self.assertEqual(rows["cpu:k=f16,v=f16"]["bytes"], 256 * (2 + 3 + 2) * 2 * 64 * 2)
        self.assertEqual([group["layers"] for group in plan["model"]["groups"]], [[0, 2], [1]])

    def test_layers_with_windows_have_a_smaller_cache(self):
        model = gguf_files.model("gemma2", window=(UINT32, 1000))
        plan, rows = self.plan(gguf_files.header(model), "--context", 8192, "--kv", "none")
        cells = 15 * 8192 + 15 * 1536  # 1000 and the micro-batch, in steps of 256
        self.assertEqual(rows["cpu:k=f16,v=f16"]["bytes"], cells * 3 * 64 * 2 * 2)
        self.assertEqual([group["window"] for group in plan["model"]["groups"]], [0, 1000])
        self.assertGreater(rows["none"]["bytes"], rows["cpu:k=f16,v=f16"]["bytes"])
        own = gguf_files.model("gemma3", window=(UINT32, 1000), pattern=(ARRAY, (BOOL, [True] * 29 + [False])))
        plan, _ = self.plan(gguf_files.header(own), "--context", 8192)
        self.assertEqual([len(group["layers"]) for group in plan["model"]["groups"]], [1, 29])

    def test_layers_without_keys_of_their_own_have_no_cache(self):
        model = gguf_files.model("gemma3n", window=(UINT32, 512))
        plan, rows = self.plan(gguf_files.header(model), "--context", 8192)
        self.assertEqual(plan["model"]["layers"], 30)
        full, windows = plan["model"]["groups"]
        self.assertEqual((full["layers"], full["window"], windows["window"]), ([4, 9, 14, 19], 0, 512))
        self.assertEqual(sorted(full["layers"] + windows["layers"]), list(range(20)))
        self.assertEqual(rows["cpu:k=f16,v=f16"]["bytes"], (4 * 8192 + 16 * 1024) * 3 * 64 * 2 * 2)

    def test_windows_keep_their_formats_and_evict_nothing(self):
        model = gguf_files.header(gguf_files.model("gemma2", window=(UINT32, 1000)))
        _, rows = self.plan(model, "--context", 65536, "--budget", 64, "--kv", "winnow:budget=128")
        grown = rows["winnow:budget=128"]["bytes"] - rows["winnow:budget=64"]["bytes"]
        self.assertLess(grown, 15 * 3 * 64 * 300)
        self.assertGreater(rows["winnow:budget=64"]["bytes"], 15 * 3 * 1536 * 60)

    def test_a_type_that_does_not_fit_the_head_is_refused_for_this_model(self):
        model = gguf_files.header(gguf_files.model(embedding_length=(UINT32, 720)))
        _, rows = self.plan(model, "--context", 256)
        self.assertIn("multiple of 32", rows["cpu:k=q8_0,v=q8_0"]["refused"])
        self.assertNotIn("refused", rows["cpu:k=f16,v=f16"])
        status, text, _ = self.run_plan(model, "--context", 256)
        self.assertEqual(status, 0)
        self.assertNotIn("q8_0 cache", text)  # there is nothing to be less than

    def test_recall_takes_its_cold_rows_beside_the_budget(self):
        model = gguf_files.header(gguf_files.model())
        name = "winnow:budget=1/8,recall=host"
        for context in (2048, 65536):
            _, rows = self.plan(model, "--context", context, "--kv", "winnow:budget=1/16,recall=host")
            row, packed = rows[name], rows["winnow"]
            self.assertLessEqual(row["bytes"], rows["cpu:k=f16,v=f16"]["bytes"] / 8)
            self.assertGreater(row["bytes"], rows["winnow:budget=1/16,recall=host"]["bytes"])
            self.assertEqual(row["total_bytes"], row["bytes"] + row["added_bytes"])
            self.assertGreater(row["added_bytes"], row["cold_bytes"] + row["scratch_bytes"])
            # All tokens are kept: packed rows of 27 and 34 bytes a head, and 4 of a slot map.
            self.assertAlmostEqual(row["cold_bytes"] / (30 * 3 * context * (34 + 27 + 4)), 1, delta=0.15)
            self.assertGreater(row["total_bytes"], packed["total_bytes"])
            self.assertEqual(row["disk_bytes"], 0)
            for other in ("winnow", "winnow:budget=1/8", "cpu:k=f16,v=f16"):
                self.assertEqual(rows[other].get("cold_bytes"), 0, other)

    def test_codebooks_are_added_and_of_no_budget(self):
        model, size, heads = gguf_files.header(gguf_files.model()), 64, 3
        halves = heads * size * (2 * size + 256)
        path = self.folder / "codebooks.bin"
        with open(path, "wb") as file:
            for layer in range(30):
                name = f"cache_k_l{layer}".encode()
                begin = b"WNCODES\0" + struct.pack("<5I", 1, heads, size, len(name), 8192)
                body = name + bytes(2 * halves)
                file.write(begin + struct.pack("<I", zlib.crc32(begin, zlib.crc32(body))) + body)
        signs = "winnow:budget=1/8,recall=host"
        codes = f"{signs},signature=codes,codebook_file={path}"
        _, rows = self.plan(model, "--context", 8192, "--kv", codes)
        self.assertEqual(rows[codes]["codebook_bytes"], 30 * 2 * halves)
        self.assertEqual(rows[signs]["codebook_bytes"], 0)
        self.assertEqual(rows[codes]["added_bytes"] - rows[codes]["scratch_bytes"] - 30 * 2 * halves,
                         rows[signs]["added_bytes"] - rows[signs]["scratch_bytes"])
        self.assertLessEqual(rows[codes]["bytes"], rows["cpu:k=f16,v=f16"]["bytes"] / 8)
        other = gguf_files.header(gguf_files.model(block_count=(UINT32, 31)))
        status, _, err = self.run_plan(other, "--context", 8192, "--kv", codes)
        self.assertEqual(status, 1)
        self.assertIn("none that is called cache_k_l30", err)
        status, _, err = self.run_plan(model, "--context", 16384, "--kv", codes)
        self.assertEqual(status, 1)
        self.assertIn("trained on contexts of 8192 tokens, expected at least 16384", err)

    def test_recall_in_a_file_takes_a_disk_in_place_of_memory(self):
        model = gguf_files.header(gguf_files.model())
        host, folder = "winnow:budget=1/8,recall=host", "winnow:budget=1/8,recall=/var/tmp"
        _, rows = self.plan(model, "--context", 65536, "--kv", folder)
        row, packed = rows[folder], rows["winnow"]
        self.assertEqual(row["cold_bytes"], 0)
        self.assertAlmostEqual(row["disk_bytes"] / (30 * 3 * 65536 * (34 + 27)), 1, delta=0.15)
        self.assertLess(row["total_bytes"], packed["total_bytes"])
        self.assertEqual(row["loss"], rows[host]["loss"])

    def test_break_even_is_where_the_totals_cross(self):
        model = gguf_files.header(gguf_files.model())
        _, rows = self.plan(model, "--context", 512, "--kv", "none:k=q8_0,v=q8_0")
        for name in ("winnow", "none:k=q8_0,v=q8_0"):
            at = rows[name]["less_than_f16_from"]
            for context, is_less in ((at, True), (at - 256, False)):
                if context > 0:
                    _, there = self.plan(model, "--context", context, "--kv", "none:k=q8_0,v=q8_0")
                    self.assertEqual(there[name]["total_bytes"] < there["cpu:k=f16,v=f16"]["total_bytes"], is_less)
        self.assertIsNone(rows["inplace:k=f16,v=f16"]["less_than_f16_from"])
        self.assertIsNone(rows["none:k=q8_0,v=q8_0"]["less_than_q8_0_from"])


class Losses(Files):
    def kept(self):
        path = Path(__file__).parent / "plan" / "measured.json"
        return json.loads(path.read_text(encoding="utf-8"))["losses"]["rows"]

    def test_of_this_model_come_before_those_of_another(self):
        kept = self.kept()
        for name in {row["model"] for row in kept if "has_key_bias" not in row}:
            model = gguf_files.model()
            model[1] = ("general.name", STRING, name)
            _, rows = self.plan(gguf_files.header(model), "--context", 2048)
            measured = {row["name"]: row["kld"] for row in kept if (row["model"], row["context"]) == (name, 2048)}
            same = {row: found["loss"] for row, found in rows.items() if row in measured}
            self.assertGreater(len(same), 1, name)
            for row, loss in same.items():
                self.assertEqual((loss["model"], loss["is_of_this_model"], loss["kld"]), (name, True, measured[row]))

    def test_a_file_is_named_after_its_model_and_the_type_of_its_weights(self):
        for file, is_same in (("gemma-3-270m-q4_k_m.gguf", True), ("Gemma-3-270M.IQ4_XS.gguf", True),
                              ("gemma-3-270m.gguf", True), ("gemma-3-270m-it-Q8_0.gguf", False),
                              ("gemma-3-270m-qat-q4_0.gguf", False), ("gemma-3-27.gguf", False)):
            _, rows = self.plan(gguf_files.header(gguf_files.model()), "--context", 2048, file=file)
            loss = rows["winnow:budget=1/4"]["loss"]
            self.assertEqual((loss["model"], loss["is_of_this_model"]) == ("gemma-3-270m", True), is_same, file)

    def test_are_those_that_were_measured_with_their_source(self):
        _, rows = self.plan(gguf_files.header(gguf_files.model()), "--context", 2048)
        kept = {(row["name"], row["context"]): row for row in self.kept() if row["model"] == "SmolLM2-135M-Instruct"}
        for name in ("cpu:k=q4_0,v=q4_0", "winnow", "winnow:budget=1/4"):
            loss, row = rows[name]["loss"], kept[name, 2048]
            self.assertEqual((loss["kld"], loss["kld_se"], loss["contexts"]), (row["kld"], row["kld_se"],
                                                                            row["contexts"]))
            self.assertIn("winnow eval", loss["command"])
            self.assertIs(loss["is_of_this_model"], False)

    def test_are_absent_where_nothing_was_measured(self):
        data = gguf_files.header(gguf_files.model())
        _, rows = self.plan(data, "--context", 8192, "--budget", 640, "--budget", "1/3", "--kv",
                            "inplace:k=q4_0,v=q8_0")
        # 640 tokens are no share of this context that was measured.
        for name in ("winnow:budget=640", "winnow:budget=1/3", "inplace:k=q4_0,v=q8_0"):
            self.assertIsNone(rows[name]["loss"], name)
        _, text, _ = self.run_plan(data, "--context", 8192, "--budget", "1/3")
        (line,) = [line for line in text.splitlines() if line.startswith("winnow:budget=1/3  ")]
        self.assertEqual(line.split()[-3:], ["-", "-", "-"])

    def test_recall_loses_what_was_measured_with_recall(self):
        data = gguf_files.header(gguf_files.model())
        asked = [argument for kv in ("winnow:budget=1/8,recall=host", "winnow:budget=1/3,recall=host",
                                     "winnow:budget=16M,recall=host") for argument in ("--kv", kv)]
        _, rows = self.plan(data, "--context", 8192, *asked)
        loss = rows["winnow:budget=1/8,recall=host"]["loss"]
        self.assertEqual(loss["configuration"], "winnow:budget=1/8,recall=host")
        self.assertGreater(loss["kld"], rows["winnow"]["loss"]["kld"])
        # Neither what attends to every token nor what evicts loses alike.
        for name in ("winnow:budget=1/3,recall=host", "winnow:budget=16M,recall=host"):
            self.assertIsNone(rows[name]["loss"], name)
        self.assertNotIn("recall", rows["winnow"]["loss"]["configuration"])
        self.assertNotIn("recall", rows["winnow:budget=1/8"]["loss"]["configuration"])

    def test_budgets_are_shares_of_the_cells_that_llama_cpp_makes_of_a_context(self):
        data = gguf_files.header(gguf_files.model())
        asked = ("--max-kld", 0.2, "--kv", "winnow:budget=16M,recall=host")
        short, rows = self.plan(data, "--context", 10000, *asked)
        full, same = self.plan(data, "--context", 10240, *asked)
        self.assertEqual((short["cells"], full["cells"]), (10240, 10240))
        for budget in ("1/2", "1/4", "1/8"):
            self.assertIsNotNone(rows[f"winnow:budget={budget}"]["loss"], budget)
        self.assertEqual({name: row["loss"] for name, row in rows.items()},
                         {name: row["loss"] for name, row in same.items()})
        self.assertEqual(short["recommended"], full["recommended"])

    def test_what_evicts_is_recommended_with_what_keeps(self):
        data = gguf_files.header(gguf_files.model())
        plan, rows = self.plan(data, "--context", 65536, "--max-kld", 0.2)
        self.assertTrue(plan["recommended"].startswith("winnow:budget="), plan["recommended"])
        keeper = f"{rows['winnow:budget=1/8,recall=host']['total_bytes'] / MIB:.1f}"
        (said,) = [sentence for sentence in plan["advice"] if "forgets" in sentence]
        self.assertIn("winnow:budget=1/8,recall=host keeps every token", said)
        self.assertIn(f"{keeper} MiB", said)
        plan, _ = self.plan(data, "--context", 131072, "--max-kld", 0.01)
        self.assertFalse([sentence for sentence in plan["advice"] if "forgets" in sentence])

    def test_a_budget_that_holds_the_whole_context_loses_what_the_formats_do(self):
        _, rows = self.plan(gguf_files.header(gguf_files.model()), "--context", 512, "--budget", 512)
        self.assertEqual(rows["winnow:budget=512"]["loss"]["configuration"], "winnow")

    def test_without_a_rotation_of_llama_cpp_are_those_without(self):
        model = gguf_files.model(head_count=(UINT32, 18), head_count_kv=(UINT32, 6))  # heads of 32
        _, rows = self.plan(gguf_files.header(model), "--context", 512)
        self.assertEqual(rows["cpu:k=q4_0,v=q4_0"]["loss"]["configuration"], "cpu:k=q4_0,v=q4_0,rotate=off")

    def test_recommended_is_the_least_that_lost_no_more_than_allowed(self):
        data = gguf_files.header(gguf_files.model())
        for most in (0.0001, 0.001, 0.01, 0.1):
            plan, rows = self.plan(data, "--context", 131072, "--max-kld", most)
            able = {name: (row["total_bytes"], row["loss"]["kld"]) for name, row in rows.items()
                    if row["loss"] and row["loss"]["kld"] <= most}
            least = min(total for total, _ in able.values())
            level = {name: (kld, total) for name, (total, kld) in able.items() if total <= 1.01 * least}
            self.assertEqual(plan["recommended"], min(level, key=level.get))
        plan, _ = self.plan(data, "--context", 256, "--max-kld", 0.01)
        self.assertTrue(plan["recommended"].startswith("cpu:"), plan["recommended"])  # too short for Winnow to pay

    def test_of_two_that_take_about_the_same_the_one_that_lost_less_is_recommended(self):
        data = gguf_files.header(gguf_files.model())
        both = ("cpu:k=q8_0,v=q8_0", "inplace:k=q8_0,v=q8_0")  # what Winnow adds is little of so long a context
        for context, chosen, words in ((131072, both[0], "takes less."),
                                       (262144, both[1], "takes less by more than 1 %, and this one lost least.")):
            plan, rows = self.plan(data, "--context", context, "--max-kld", 0.0003)
            self.assertLess(rows[both[0]]["total_bytes"], rows[both[1]]["total_bytes"])
            self.assertLess(rows[both[1]]["loss"]["kld"], rows[both[0]]["loss"]["kld"])
            self.assertEqual(plan["recommended"], chosen)
            self.assertIn(words, plan["advice"][0])

    def test_what_loses_bits_with_age_loses_more_than_its_first_formats(self):
        asked = ("decay:mode=bit_reduction", "none:k=turbo4,v=turbo3,share2=1/2,k2=turbo2,v2=turbo2")
        _, rows = self.plan(gguf_files.header(gguf_files.model()), "--context", 16384,
                            *(word for kv in asked for word in ("--kv", kv)))
        self.assertEqual(rows["winnow"]["loss"]["configuration"], "winnow")
        for kv in asked:
            self.assertIsNone(rows[kv]["loss"], kv)


class Output(Files):
    def test_a_dry_run_says_what_becomes_of_the_tokens(self):
        data = gguf_files.header(gguf_files.model())
        young, kept = "decay:decay_lambda=0.0001", "decay:mode=bit_reduction"
        _, rows = self.plan(data, "--context", 32768, "--kv", "decay", "--kv", young, "--kv", kept)

        def tokens(name):
            its = rows[name]["tokens_of_head"]
            return its["retained"], its["evicted"], [each["tokens"] for each in its["segments"]]

        self.assertEqual(tokens("decay"), (4096, 28672, [52, 4044]))
        self.assertEqual(rows["decay"]["tokens_of_head"]["packed_bits"], 3.5)
        self.assertEqual(tokens(young), (29958, 2810, [52, 6880, 9163, 13863]))
        self.assertEqual(tokens(kept), (32768, 0, [52, 4044, 28672]))
        self.assertEqual(rows[kept]["tokens_of_head"]["segments"][2], {"tokens": 28672, "k": "turbo2", "v": "turbo2"})
        self.assertIsNone(rows["cpu:k=f16,v=f16"]["tokens_of_head"])
        _, rows = self.plan(data, "--context", 32768, "--kv", "window:budget=1/4", "--kv", "window:budget=1/4,k=q8_0")
        self.assertEqual(rows["window:budget=1/4"]["tokens_of_head"]["packed_bits"], 0)
        self.assertEqual(rows["window:budget=1/4,k=q8_0"]["tokens_of_head"]["packed_bits"], 8)
        _, text, _ = self.run_plan(data, "--context", 32768, "--kv", "decay")
        self.assertIn("decay: of 32,768 tokens a KV head retains 4,096 and evicts 28,672: 52 in f16, 4,044 in turbo4 "
                      "and turbo3; codes of the packed ones have 3.50 bits on average.", " ".join(text.split()))

    def test_layers_with_formats_of_their_own(self):
        data = gguf_files.header(gguf_files.model())
        layers = "none:k=turbo4,v=turbo3,fine=0-1,k_fine=q8_0,coarse=2,v_coarse=turbo2"
        heads = "none:k=turbo4,v=turbo3,fine=0.1,k_fine=q8_0"
        kinds = ("--context", 8192, "--kv", "none:k=turbo4,v=turbo3", "--kv", layers, "--kv", heads)
        _, text, _ = self.run_plan(data, *kinds)
        self.assertIn("layers 0-1 with k_fine=q8_0; layers 2 with v_coarse=turbo2.",
                      " ".join(text.split()))
        self.assertIn("layers and heads 0.1 with k_fine=q8_0.", " ".join(text.split()))
        _, rows = self.plan(data, *kinds)
        self.assertIsNone(rows[layers]["loss"], "of layers that were never measured so")
        usual = rows["none:k=turbo4,v=turbo3"]["bytes"]
        self.assertGreater(rows[layers]["bytes"], usual)
        # Of the keys of one head, 64 elements; dense rows are the same.
        self.assertEqual(rows[heads]["bytes"] - usual, 8192 * (68 - 34))

    def test_table_and_json_say_the_same(self):
        data = gguf_files.header(gguf_files.model())
        kept = self.folder / "plan.json"
        status, text, err = self.run_plan(data, "--context", 8192, "--json", kept)
        self.assertEqual(status, 0, err)
        plan = json.loads(kept.read_text(encoding="utf-8"))
        for row in plan["configurations"]:
            (line,) = [line for line in text.splitlines() if line.startswith(row["name"] + "  ")]
            self.assertEqual(line.split()[1], f"{row['bytes'] / MIB:.1f}")
        self.assertIn(" ".join(plan["advice"][0].split()), " ".join(text.split()))

    def test_bytes_of_a_token_are_those_of_a_cell(self):
        data = gguf_files.header(gguf_files.model())
        for context in (1000, 1024):  # both of 1,024 cells
            _, text, _ = self.run_plan(data, "--context", context)
            (line,) = [line for line in text.splitlines() if line.startswith("cpu:k=f16,v=f16  ")]
            self.assertEqual(line.split()[2:4], [f"{30 * 3 * 64 * 2 * 2:,}", "1.000"], context)

    def test_context_is_the_model_s_own_unless_said(self):
        plan, _ = self.plan(gguf_files.header(gguf_files.model()))
        self.assertEqual(plan["context"], 8192)
        self.refuse(gguf_files.header(gguf_files.model(embedding_length=None)), "llama.embedding_length")

    def test_plot_has_a_line_for_each_configuration(self):
        picture = self.folder / "plan.svg"
        model = gguf_files.model()
        model[1] = ("general.name", STRING, "<&\">")
        status, _, err = self.run_plan(gguf_files.header(model), "--context", 4096, "--budget", 64, "--plot", picture)
        self.assertEqual(status, 0, err)
        svg = xml.etree.ElementTree.parse(picture).getroot()
        names = [node.text for node in svg.iter("{http://www.w3.org/2000/svg}text")]
        self.assertIn("winnow:budget=64", names)
        self.assertEqual(len(list(svg.iter("{http://www.w3.org/2000/svg}polyline"))), 14)
        status, _, err = self.run_plan(gguf_files.header(gguf_files.model()), "--plot", self.folder / "plan.png")
        self.assertEqual(status, 1)
        self.assertIn(".svg", err)

    def test_names_in_a_plot_are_cut_between_characters(self):
        picture = self.folder / "plan.svg"
        for folder in ("/", "/x"):  # a place for the cut before a character, and one within
            name = f"winnow:recall={folder}{'é' * 20},budget=1/8"
            status, _, err = self.run_plan(gguf_files.header(gguf_files.model()), "--context", 4096, "--kv", name,
                                           "--plot", picture)
            self.assertEqual(status, 0, err)
            svg = xml.etree.ElementTree.parse(picture).getroot()
            names = [node.text for node in svg.iter("{http://www.w3.org/2000/svg}text")]
            self.assertIn(f"winnow:recall={folder}{'é' * (7 - len(folder) + 1)}...", names)

    def test_files_take_their_places_when_they_are_complete(self):
        data = gguf_files.header(gguf_files.model())
        for option, name in (("--json", "plan.json"), ("--plot", "plan.svg")):
            kept, old, link = self.folder / name, self.folder / f"old_{name}", self.folder / f"link_{name}"
            kept.write_text("old")
            os.link(kept, old)
            self.assertEqual(self.run_plan(data, "--context", 256, option, kept)[0], 0)
            self.assertEqual(old.read_text(), "old")
            new = kept.read_text(encoding="utf-8")
            self.assertIn("winnow:budget=1/8", new)
            link.symlink_to(old)
            self.assertEqual(self.run_plan(data, "--context", 256, option, link)[0], 0)
            self.assertTrue(link.is_symlink())
            self.assertEqual(old.read_text(encoding="utf-8"), new)
        self.assertEqual([path.name for path in self.folder.iterdir() if path.name.endswith(".tmp")], [])

    def test_files_that_cannot_be_written_are_refused_before_the_table(self):
        data = gguf_files.header(gguf_files.model())
        folder, full = self.folder / "folder.svg", self.folder / "full.svg"
        folder.mkdir()
        full.symlink_to("/dev/full")
        for path, reason in ((self.folder / "none" / "plan.svg", "No such file or directory"),
                             (folder, "Is a directory"), (full, "No space left on device")):
            for option in ("--json", "--plot"):
                status, out, err = self.run_plan(data, "--context", 256, option, path)
                self.assertEqual((status, out), (1, ""), path)
                self.assertIn(f"cannot write {path}: {reason}", err)

    def test_strings_that_are_no_configuration_are_refused(self):
        data = gguf_files.header(gguf_files.model())
        for string, word in (("nonesuch", "nonesuch"), ("winnow:budget=", "budget"), ("cpu:k=q9", "q9"),
                             ("cpu:", "expected"), ("cpu:k=f16,k=f16", "twice"), ("", "empty"),
                             ("recall=host", 'no policy "recall=host"'),
                             ("adaptive_budget:budget=1/4,profile_file=/nonesuch", "/nonesuch")):
            status, out, err = self.run_plan(data, "--context", 1024, "--kv", string)
            self.assertEqual((status, out), (1, ""), string)
            self.assertIn("--kv: ", err)
            self.assertIn(word, err)
        status, out, err = self.run_plan(data, "--context", 1024, "--budget", "half")
        self.assertEqual((status, out), (1, ""))
        self.assertIn("--budget: ", err)

    def test_configurations_that_only_this_model_cannot_have_stand_below_the_table(self):
        data = gguf_files.header(gguf_files.model(embedding_length=(UINT32, 720)))
        for string in ("cpu:k=f16,v=q8_0", "winnow:budget=1/1000"):  # heads of 80, and a single token
            status, text, err = self.run_plan(data, "--context", 1024, "--kv", string)
            self.assertEqual(status, 1, string)
            self.assertIn(f"\nnot with this model: {string}: ", text)
            self.assertIn(f"winnow plan: {string}: ", err)
            self.assertNotIn("--kv", err)

    def test_contexts_out_of_range_are_refused(self):
        for context in (-1, 1 << 30):
            status, _, err = self.run_plan(gguf_files.header(gguf_files.model()), "--context", context)
            self.assertEqual(status, 1)
            self.assertIn("expected 1 to", err)


if __name__ == "__main__":
    unittest.main()
