"""Tests of `winnow plan` with models of latent attention, and with those that keep a recurrent state beside a cache;
plan_test.py runs them.
"""

import gguf_files
from gguf_files import ARRAY, BOOL, INT32, UINT32

from plan.planned_files import Files

CELLS = 1024
F16, F32 = 2, 4  # bytes


class LatentAndHybrid(Files):
    def shape(self, architecture, *arguments, **changes):
        """(the plan's model, its configurations by name)"""
        model = gguf_files.model(architecture, **{key: (UINT32, value) if isinstance(value, int) else value
                                                  for key, value in changes.items()})
        plan, rows = self.plan(gguf_files.header(model), "--context", CELLS, *arguments)
        return plan["model"], rows

    def test_latent_attention_has_no_values_of_its_own_in_llama_cpp_and_has_them_in_winnow(self):
        model, rows = self.shape("deepseek2", "--kv", "none:k=f16,v=f16", block_count=27, head_count=16,
                                 head_count_kv=1, kv_lora_rank=512, key_length=576, value_length=512,
                                 key_length_mla=192)
        (group,) = model["groups"]
        self.assertEqual((group["kv_heads"], group["k_size"], group["v_size"], group["values_in_keys"]),
                         (1, 576, 512, True))
        self.assertEqual(rows["cpu:k=f16,v=f16"]["bytes"], 27 * CELLS * 576 * F16)
        self.assertEqual(rows["inplace:k=q8_0,v=q8_0"]["bytes"], 27 * CELLS * 576 // 32 * 34)
        self.assertGreater(rows["none:k=f16,v=f16"]["bytes"], 27 * CELLS * (576 + 512) * F16)
        self.assertEqual(model["recurrent_layers"], 0)

    def test_latent_attention_of_an_old_file_has_values(self):
        model, rows = self.shape("deepseek2", block_count=27, head_count=16, head_count_kv=16, kv_lora_rank=512,
                                 key_length=192, value_length=128)
        self.assertFalse(model["groups"][0]["values_in_keys"])
        self.assertEqual(rows["cpu:k=f16,v=f16"]["bytes"], 27 * CELLS * 16 * (192 + 128) * F16)

    def test_layers_without_kv_heads_keep_a_state(self):
        heads = [0, 0, 8] * 5 + [0]
        model, rows = self.shape("lfm2", block_count=16, embedding_length=2048, head_count=32,
                                 head_count_kv=(ARRAY, (INT32, heads)), convolution=3)
        (group,) = model["groups"]
        self.assertEqual((group["layers"], group["k_size"]), ([2, 5, 8, 11, 14], 64))
        self.assertEqual(rows["cpu:k=f16,v=f16"]["bytes"], 5 * CELLS * 8 * 64 * 2 * F16)
        self.assertEqual((model["recurrent_layers"], model["recurrent_bytes"]), (11, 11 * (3 - 1) * 2048 * F32))

    def test_layers_by_period_or_list_keep_a_state(self):
        sizes = {"block_count": 9, "embedding_length": 2048, "head_count": 16, "head_count_kv": 2, "key_length": 256,
                 "value_length": 256, "kernel": 4, "inner": 4096, "state": 128, "groups": 16}
        state = ((4 - 1) * (4096 + 2 * 16 * 128) + 128 * 4096) * F32
        for architecture, changes, attending in (
                ("qwen3next", {}, [3, 7]), ("qwen35", {"interval": 3}, [2, 5, 8]),
                ("qwen35moe", {"interval": 3, "predicting": 1}, [2, 5]),
                ("qwen35", {"recurrent_layers": (ARRAY, (BOOL, [False] + [True] * 8))}, [0])):
            model, rows = self.shape(architecture, **sizes | changes)
            (group,) = model["groups"]
            self.assertEqual(group["layers"], attending)
            self.assertEqual(rows["cpu:k=f16,v=f16"]["bytes"], len(attending) * CELLS * 2 * 256 * 2 * F16)
            layers = 9 - len(attending) - changes.get("predicting", 0)
            self.assertEqual((model["recurrent_layers"], model["recurrent_bytes"]), (layers, layers * state))

    def test_layers_may_keep_a_state_and_attend_or_do_neither(self):
        sizes = {"block_count": 4, "embedding_length": 1024, "head_count": 8, "kernel": 4, "inner": 2048, "state": 16,
                 "groups": 1}
        state = ((4 - 1) * (2048 + 2 * 16) + 16 * 2048) * F32
        for architecture, changes, attending, layers in (
                ("falcon-h1", {"head_count_kv": 2}, [0, 1, 2, 3], 4),
                ("nemotron_h", {"head_count_kv": (ARRAY, (INT32, [0, 2, 0, 0])),
                                "feed_forward": (ARRAY, (INT32, [0, 0, 4096, 0]))}, [1], 2)):
            model, _ = self.shape(architecture, **sizes | changes)
            self.assertEqual([group["layers"] for group in model["groups"]], [attending])
            self.assertEqual((model["recurrent_layers"], model["recurrent_bytes"]), (layers, layers * state))

    def test_linear_attention_may_stand_beside_latent_keys(self):
        model, rows = self.shape("kimi-linear", block_count=4, embedding_length=2304, head_count=32,
                                 head_count_kv=(ARRAY, (INT32, [0, 0, 0, 1])), key_length=576, value_length=512,
                                 key_length_mla=192, kernel=4, linear_head=128)
        self.assertEqual(rows["cpu:k=f16,v=f16"]["bytes"], CELLS * 576 * F16)
        width = 32 * 128
        self.assertEqual((model["recurrent_layers"], model["recurrent_bytes"]),
                         (3, 3 * (3 * (4 - 1) * width + 128 * width) * F32))

    def test_a_state_is_said_apart(self):
        model = gguf_files.model("lfm2", block_count=(UINT32, 2), head_count_kv=(ARRAY, (INT32, [0, 3])),
                                 convolution=(UINT32, 3))
        status, text, err = self.run_plan(gguf_files.header(model), "--context", CELLS)
        self.assertEqual(status, 0, err)
        self.assertIn("1 layers of 9 query heads over 3 KV heads of 64", text)
        self.assertIn("1 layer keeps a state of 0.0 MiB, which no configuration changes and no column counts", text)
