"""Tests of `winnow plan` with models whose keys have a bias, as Qwen2; plan_test.py runs them."""

import struct

import gguf_files
from gguf_files import STRING

from plan.planned_files import Files

MEASURED = "qwen2.5-coder-0.5b-instruct-q4_k_m"
FIT = "winnow:k=q8_0"
TENSORS = ["blk.0.attn_k.weight", "blk.0.attn_k.bias"]


def qwen2(names=TENSORS):
    values = gguf_files.model("qwen2")
    return gguf_files.header(values, tensors=len(names)) + gguf_files.tensors(names)


class BiasedKeys(Files):
    def test_few_bits_for_keys_are_not_recommended(self):
        few = "none:k=q8_0,fine=3,k_fine=turbo4"
        for file in ("model.gguf", f"{MEASURED}.gguf"):
            for most in (0.001, 0.01, 0.3):
                plan, rows = self.plan(qwen2(), "--context", 32768, "--max-kld", most, "--kv", few, file=file)
                self.assertNotEqual(plan["recommended"], few)
                self.assertRegex(plan["recommended"] or "k=f16", "k=q8_0|k=f16")
                (said,) = [sentence for sentence in plan["advice"] if "have a bias" in sentence]
                self.assertIn(f"{FIT} lost", said)
                for sentence in plan["advice"]:
                    self.assertNotIn(f"{few} takes less", sentence)
                    self.assertNotIn("winnow:budget=1/8 takes less", sentence)
                if most == 0.01:
                    self.assertEqual(plan["recommended"], FIT)

    def test_their_losses_are_those_of_a_model_with_such_keys(self):
        _, rows = self.plan(qwen2(), "--context", 2048)
        for row in rows.values():
            if row["loss"]:
                self.assertEqual((row["loss"]["model"], row["loss"]["is_of_this_model"]), (MEASURED, False))
        self.assertGreater(rows["winnow"]["loss"]["kld"], 10 * rows[FIT]["loss"]["kld"])
        _, rows = self.plan(qwen2(), "--context", 2048, file=f"{MEASURED}.gguf")
        self.assertIs(rows["winnow"]["loss"]["is_of_this_model"], True)
        for names in ([], TENSORS[:1], ["blk.0.attn_q.bias"]):
            plan, rows = self.plan(qwen2(names), "--context", 512)
            self.assertNotIn(FIT, rows)
            self.assertNotEqual(rows["winnow"]["loss"]["model"], MEASURED)
            self.assertFalse([sentence for sentence in plan["advice"] if "bias" in sentence])

    def test_a_bias_of_queries_keys_and_values_together_is_one(self):
        values = gguf_files.model("phi2")
        names = ["blk.0.attn_qkv.bias"]
        plan, rows = self.plan(gguf_files.header(values, tensors=1) + gguf_files.tensors(names), "--context", 512)
        self.assertIn(FIT, rows)

    def test_broken_tensors_are_refused(self):
        data = qwen2()
        whole = len(data) - len(gguf_files.tensors(TENSORS))
        for length in range(whole, len(data)):
            self.refuse(data[:length], "model.gguf", "expected")
        values = gguf_files.model("qwen2")
        for count in (3, 1 << 40, (1 << 64) - 1):
            self.refuse(gguf_files.header(values, tensors=count) + gguf_files.tensors(TENSORS), "expected")
        head = gguf_files.header([*values, ("general.x", STRING, "")], tensors=1)
        self.refuse(head + struct.pack("<Q", (1 << 64) - 1) + bytes(64), "tensor 1 of 1", "expected")
        dimensions = struct.pack("<I", (1 << 32) - 1)
        self.refuse(head + gguf_files.text("a") + dimensions + bytes(64), "dimensions", "expected")
