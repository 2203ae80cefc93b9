"""The plugin for ONNX Runtime against ONNX Runtime's own kernels, and what it refuses.

    provider_test.py LIBRARY_OF_THE_PLUGIN BACKEND [all|sample]

A sample has a few forms of attention alone: a backend with kernels has to compile some for each.
"""

import ctypes
import json
import os
import threading
import unittest
from pathlib import Path

import numpy as np
import onnxruntime

from attention_models import (POSITIONS, UNSERVED, Shape, changed, into_bfloat16, into_branches, into_loop,
                              into_multi_head_attention, make_model, random_rows, with_function)
from provider_session import (BACKEND, EXTENT, FOLDER, LIBRARY, NUMBERS, Session, Host, anew, logged, make_session,
                              options, reference)
from biased_keys import BiasedKeys  # noqa: F401: unittest finds it here
import winnowkv.onnxruntime  # noqa: E402  whose folder provider_session.py has told

# Two outputs of at most 8, each rounded to float16, differ by 4e-3; ONNX Runtime also rounds what it rotates.
TOLERANCE = {np.float32: 1e-4, np.float16: 6e-3}

CASES = {
    "plain": Shape(),
    "many_heads": Shape(layers=((8, 8, 16), (8, 1, 64))),
    "packed": Shape(packed=True),
    "rotary": Shape(rotary=True),
    "interleaved": Shape(rotary=True, interleaved=True),
    "packed_rotary": Shape(packed=True, rotary=True),
    "partial_rotary": Shape(layers=((4, 2, 32), (2, 2, 64)), rotary=True, partial=True),
    "position_ids": Shape(rotary=True, position_ids=True),
    "scale_softcap": Shape(scale=0.3, softcap=2.0),
    "window": Shape(rotary=True, local_window_size=7),
    "smooth_softmax": Shape(smooth_softmax=1),
    "head_sink": Shape(sink=True),
    "all_together": Shape(packed=True, rotary=True, interleaved=True, sink=True, softcap=3.0, local_window_size=9),
    "half": Shape(half=True),
    "half_rotary": Shape(half=True, packed=True, rotary=True, sink=True),
}
SAMPLE = ("all_together", "half_rotary")


class Outputs(unittest.TestCase):
    def compare(self, shape, got, wanted, counts, what):
        for layer, (one, other) in enumerate(zip(got, wanted)):
            for row, count in enumerate(counts):
                difference = np.abs(one[row, :count].astype(np.float64) - other[row, :count].astype(np.float64))
                self.assertLessEqual(difference.max(), TOLERANCE[shape.number], f"{what}, layer {layer}, row {row}")

    def play(self, shape, seed, batch, events=14):
        """A random schedule, on both sides, with past and present, and without."""
        generator = np.random.default_rng(seed)
        own = reference(shape)
        winnows = [Session(shape, max_batch=batch), Session(shape.without_past(), max_batch=batch)]
        tokens = calls = 0
        for event in range(events):
            shortest, longest = (min(own.lengths), max(own.lengths)) if own.lengths else (0, 0)
            kinds = ["prompt"] if longest == 0 or longest > POSITIONS - 12 else \
                ["prompt", "step", "step", "step", "step", "rewind"] + (["chunk"] * 2 if batch == 1 else [])
            kind = generator.choice(kinds)
            what = f"event {event}, {kind} after {own.lengths}"
            count = 1
            if kind == "prompt":
                count = int(generator.integers(2, 40))
                lengths = [count, *generator.integers(1, count + 1, batch - 1).tolist()]
                rows = random_rows(shape, generator, batch, count)
                wanted, counts = own.prompt(rows, lengths), lengths
                padded = {name: array.copy() for name, array in rows.items()}  # with what must not be read
                for array in padded.values():
                    for row, length in enumerate(lengths):
                        array[row, length:] = np.nan
                got = [winnow.host.prompt(padded, lengths) for winnow in winnows]
                for one in got:
                    for output in one:
                        self.assertTrue(all((output[row, length:] == 0).all() for row, length in enumerate(lengths)))
            else:
                lengths = own.lengths
                if kind == "rewind":  # at least two tokens stay, so that no row begins anew
                    lengths = [max(2, length - int(generator.integers(1, 6))) if shortest > 2 else length
                               for length in lengths]
                if kind == "chunk":
                    count = int(generator.integers(2, 9))
                rows, counts = random_rows(shape, generator, batch, count), [count] * batch
                lengths = [length + count for length in lengths]
                wanted = own.run(rows, lengths)
                got = [winnow.host.run(rows, lengths) for winnow in winnows]
            for one in got:
                self.compare(shape, one, wanted, counts, what)
            tokens, calls = tokens + sum(counts), calls + 1
        for winnow in winnows:
            for name, present in winnow.host.past.items():
                self.assertEqual(present.shape[2], 0, name)
            report = winnow.report()
            # These nodes do not depend on each other, so ONNX Runtime chooses their order.
            self.assertEqual(sorted(node["name"] for node in report["claimed"]),
                             [f"attention_{layer}" for layer in range(len(shape.layers))])
            self.assertEqual([node["layer"] for node in report["claimed"]], list(range(len(shape.layers))))
            self.assertEqual(report["not_claimed"], [])
            self.assertEqual(report["runs"], calls)
            for node in report["claimed"]:
                self.assertEqual((node["calls"], node["tokens"]), (calls, tokens))

    def test_a_checker_finds_a_difference(self):
        shape = CASES["plain"]
        with self.assertRaises(AssertionError):
            self.compare(shape, [np.full((1, 2, 3), 2e-4, np.float32)], [np.zeros((1, 2, 3), np.float32)], [2], "")

    def test_reset_with_one_token(self):
        shape = CASES["rotary"]
        generator = np.random.default_rng(3)
        own, winnow = reference(shape), Session(shape)
        winnow.host.prompt(random_rows(shape, generator, 1, 5), [5])
        rows = random_rows(shape, generator, 1, 1)
        self.compare(shape, winnow.host.run(rows, [1], run_options=anew()), own.prompt(rows, [1]), [1], "one token")
        rows = random_rows(shape, generator, 1, 1)
        self.compare(shape, winnow.host.run(rows, [2]), own.run(rows, [2]), [1], "the second")

    def test_one_token_begins_anew_without_past(self):
        shape = CASES["rotary"]
        generator = np.random.default_rng(8)
        own, winnow = reference(shape), Session(shape.without_past())
        for count, lengths in ((5, [5]), (1, [1]), (1, [2])):
            rows = random_rows(shape, generator, 1, count)
            if count == lengths[0]:
                own.past = {}
            self.compare(shape, winnow.host.run(rows, lengths), own.run(rows, lengths), [count], f"length {lengths}")

    def test_a_failed_run_is_taken_back(self):
        """It fails in the second node, after the first one has appended its tokens."""
        shape = CASES["rotary"]
        generator = np.random.default_rng(9)
        own, winnow = reference(shape), Session(shape)
        for count, length in ((1, 1), (4, 5), (1, 6)):
            rows = random_rows(shape, generator, 1, count)
            with self.assertRaisesRegex(Exception, "key has the shape"):
                winnow.host.run(rows | {"k1": np.repeat(rows["k1"], 2, axis=1)}, [length])
            self.compare(shape, winnow.host.run(rows, [length]), own.run(rows, [length]), [count], f"length {length}")
        self.assertEqual(winnow.report()["rewinds"], 0)

    def test_a_failed_run_under_a_policy_that_evicts(self):
        """The sequence has to begin anew, and then is as if nothing had failed."""
        shape = Shape(layers=((4, 2, 64),) * 2, rotary=True).without_past()
        generator = np.random.default_rng(10)
        prompt, more = (random_rows(shape, generator, 1, count) for count in (60, 20))
        outputs, evictions = [], []
        for fails in (False, True):
            winnow = Session(shape, kv="h2o:budget=40,k=q8_0,v=q8_0")
            winnow.host.prompt(prompt, [60])
            if fails:
                with self.assertRaisesRegex(Exception, "key has the shape"):
                    winnow.host.run(more | {"k1": more["k1"][:, :1]}, [80])
                winnow.host.prompt(prompt, [60])
            outputs.append(winnow.host.run(more, [80]))
            evictions.append(winnow.report()["evictions"])
        self.compare(shape, *outputs, [20], "after a failure")
        self.assertGreater(evictions[0], 0)

    def test_a_second_sequence_is_warned_of(self):
        """It takes the first one's place, which looks like going back when the first one goes on."""
        shape = Shape(layers=((4, 2, 32),), rotary=True).without_past()
        reports = []

        def take_turns(severity):
            generator = np.random.default_rng(11)
            winnow = Session(shape, severity)
            for count, length in ((5, 5), (9, 9), (1, 6), (1, 7), (1, 5)):
                winnow.host.run(random_rows(shape, generator, 1, count), [length])
            reports.append(winnow.report())

        text = logged(take_turns)
        self.assertEqual(text.count("goes back from"), 1, text)
        self.assertIn("row 0 goes back from 9 tokens to 5. A session holds one conversation for each row", text)
        self.assertEqual(reports[0]["rewinds"], 2)

    def test_equal_rows_are_warned_of(self):
        shape = Shape(layers=((4, 2, 32),), rotary=True)
        rows = random_rows(shape, np.random.default_rng(12), 2, 5)
        alike = {name: array[:1].repeat(2, axis=0) for name, array in rows.items()}
        for given, count in ((rows, 0), (alike, 1)):
            text = logged(lambda severity: Session(shape, severity, max_batch=2).host.prompt(given, [5, 5]))
            self.assertEqual(text.count("If they are beams, their tokens will be wrong"), count, text)

    def test_present_that_the_host_has_bound_is_left_alone(self):
        shape = Shape(layers=((4, 2, 32),), rotary=True)
        generator = np.random.default_rng(4)
        own, winnow = reference(shape), Session(shape)
        for count, length in ((6, 6), (1, 7), (1, 8)):
            rows = random_rows(shape, generator, 1, count)
            wanted = own.run(rows, [length])
            binding = winnow.session.io_binding()
            shared = {name: onnxruntime.OrtValue.ortvalue_from_numpy(np.full((1, 2, 20, 32), 7, np.float32))
                      for name in ("k0", "v0")}
            for name, array in {**rows, "seqlens_k": np.array([length - 1], np.int32),
                                "total": np.array(length, np.int32)}.items():
                binding.bind_cpu_input(name, array)
            for name, value in shared.items():
                binding.bind_ortvalue_input(f"past_{name}", value)
                binding.bind_ortvalue_output(f"present_{name}", value)
            binding.bind_output("o0")
            winnow.session.run_with_iobinding(binding)
            got = binding.copy_outputs_to_cpu()
            self.compare(shape, [got[-1]], wanted, [count], f"length {length}")
            for value in shared.values():
                self.assertTrue((value.numpy() == 7).all())
        winnow.host.prompt(rows, [1], anew())  # binds nothing
        self.assertEqual({name: present.shape for name, present in winnow.host.past.items()},
                         {"present_k0": (1, 2, 0, 32), "present_v0": (1, 2, 0, 32)})

    def test_nodes_that_are_computed_side_by_side(self):
        shape = Shape(layers=((4, 2, 32),) * 6, rotary=True)
        generator = np.random.default_rng(6)
        settings = options()
        settings.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
        settings.inter_op_num_threads = 4
        own, winnow = reference(shape), Host(shape, make_session(make_model(shape), settings))
        for count, length in ((9, 9), *((1, 10 + i) for i in range(20))):
            rows = random_rows(shape, generator, 1, count)
            self.compare(shape, winnow.run(rows, [length]), own.run(rows, [length]), [count], f"length {length}")

    def test_a_budget_is_kept(self):
        shape = Shape(layers=((4, 2, 64),), rotary=True).without_past()
        winnow = Session(shape, kv="h2o:budget=40,k=q8_0,v=q8_0")
        generator = np.random.default_rng(5)
        winnow.host.prompt(random_rows(shape, generator, 1, 60), [60])
        for length in range(61, 90):
            out = winnow.host.run(random_rows(shape, generator, 1, 1), [length])
            self.assertTrue(np.isfinite(out[0]).all())
        report = winnow.report()
        self.assertGreater(report["evictions"], 0)
        self.assertLessEqual(report["resident_slots"], 2 * 40)
        self.assertTrue(report["kv"].startswith("h2o:"), report["kv"])

    def test_memory_pressure(self):
        shape = Shape(layers=((4, 2, 64),), rotary=True).without_past()
        pressed = onnxruntime.RunOptions()
        pressed.add_run_config_entry("winnow.pressure", "0.9")
        for pressure, run_options, is_pressed in (("0", None, False), ("0", pressed, True), ("1", None, True)):
            winnow = Session(shape, kv="hierarchical:budget=1/1,recent_shallow=8,k=q8_0,v=q8_0", pressure=pressure)
            winnow.host.prompt(random_rows(shape, np.random.default_rng(5), 1, 40), [40])
            for length in range(41, 61):  # less than 7/10 of the budget
                winnow.host.run(random_rows(shape, np.random.default_rng(length), 1, 1), [length],
                                run_options=run_options if length == 41 else None)
            self.assertEqual(winnow.report()["evictions"] > 0, is_pressed, (pressure, run_options))

    def test_a_file_of_the_configuration_is_read(self):
        shape = Shape(layers=((4, 2, 64),) * 2, rotary=True).without_past()
        profile = Path(FOLDER.name) / "profile.txt"
        kv = f"adaptive_budget:budget=40,k=q8_0,v=q8_0,profile_file={profile}"
        for layers, error in ((1, "none that is called cache_k_l1"), (2, None)):
            profile.write_text("".join(f"cache_k_l{layer} {1 + layer} 0.5 0.25\n" for layer in range(layers)))
            if error:
                with self.assertRaisesRegex(Exception, error):
                    Session(shape, kv=kv)
            else:
                self.assertIn("profile_file=", Session(shape, kv=kv).report()["kv"])


for number, (name, shape) in enumerate(CASES.items()):
    for batch in (1, 3) if EXTENT == "all" else (3,) if name in SAMPLE else ():
        def play(self, shape=shape, seed=10 * number + batch, batch=batch):
            self.play(shape, seed, batch)
        setattr(Outputs, f"test_{name}_batch_{batch}", play)


class Refusals(unittest.TestCase):
    def refused(self, text, call, *arguments, **named):
        with self.assertRaises(Exception) as caught:
            call(*arguments, **named)
        self.assertIn(text, str(caught.exception))

    def test_options(self):
        shape = CASES["plain"]
        for given, text in (({"budget": "1/4"}, "has no option budget, expected kv, device, backend, report"),
                            ({"max_tokens": "many"}, "max_tokens=many, expected a number from 1 to"),
                            ({"max_batch": "0"}, "max_batch=0, expected a number from 1 to 4096"),
                            ({"pressure": "1.5"}, "pressure=1.5, expected auto, or a share from 0 to 1"),
                            ({"kv": "h3o"}, "h3o"),
                            ({"backend": "/nonesuch/libwinnow.so"}, "cannot load backend"),
                            ({"report": "/nonesuch/report.json"}, "report=/nonesuch/report.json: cannot be written")):
            self.refused(text, make_session, make_model(shape), options(**given))

    def test_how_long_a_sequence_may_become(self):
        rotated = Session(Shape(rotary=True), max_tokens=8)
        self.refused("row 0 would have 9 tokens, expected at most 8", rotated.host.prompt,
                     random_rows(rotated.host.shape, np.random.default_rng(0), 1, 9), [9])
        made = onnxruntime.SessionOptions()
        winnowkv.onnxruntime.session_options(made, backend=BACKEND)
        self.refused("expected the provider option max_tokens", make_session, make_model(CASES["plain"]), made)

    def test_runs_that_do_not_fit_what_is_held(self):
        for shape in (CASES["rotary"], CASES["rotary"].without_past(), CASES["plain"]):
            generator = np.random.default_rng(1)
            own, winnow = reference(shape if shape.past else CASES["rotary"]), Session(shape, max_batch=3)
            prompt = random_rows(shape, generator, 2, 6)
            own.prompt(prompt, [6, 4])
            winnow.host.prompt(prompt, [6, 4])
            one, two, three, four = (random_rows(shape, generator, batch, 1) for batch in (1, 2, 3, 4))
            chunk, run = random_rows(shape, generator, 2, 3), winnow.host.run
            empty = winnow.host.past
            for text, rows, lengths, total in (
                    ("row 1 goes on from position 8, but the cache holds only 4 tokens of this row; expected a "
                     "position from 0 to 4. Winnow does not read past.", two, [7, 9], None),
                    ("row 0 has one token at position 0, but the cache holds 6 tokens; expected position 6.", two,
                     [1, 1], None),
                    ("a batch of 2 rows goes on with 3 tokens in each, expected one", chunk, [9, 6], None),
                    ("seqlens_k[0] is 2147483647", two, [2**31, 5], 7),
                    ("a batch of 1 rows goes on from one of 2", one, [7], None),
                    ("a batch of 3 rows goes on from one of 2", three, [7, 5, 5], None),
                    ("the batch has 4 rows, expected at most 3", four, [7, 5, 5, 5], None),
                    ("seqlens_k[1] is 8, with total_sequence_length 7", two, [7, 9], 7),
                    ("seqlens_k[0] is -1", two, [0, 5], 5),
                    ("a token has the position 399" if shape.rotary else "would have 400 tokens, expected at most 96",
                     two, [400, 5], None)):
                if lengths == [1, 1] and not shape.past:
                    continue  # which begins anew
                winnow.host.past = {}
                self.refused(text, run, rows, lengths, total)
            winnow.host.past = empty
            self.refused("seqlens_k has the shape [3]", run, two, [7, 5, 5])
            wanted = own.run(two, [7, 5])
            for got, expected in zip(run(two, [7, 5]), wanted):  # nothing of that has changed anything
                self.assertLessEqual(np.abs(got - expected).max(), 1e-4)

    def test_run_options(self):
        winnow = Session(CASES["plain"])
        rows = random_rows(CASES["plain"], np.random.default_rng(0), 1, 3)
        winnow.host.prompt(rows, [3])
        for value, text in (("yes", "the run option winnow.reset is yes, expected 0 or 1"),
                            ("1", "goes on from position 3 in a Run with winnow.reset=1")):
            given = onnxruntime.RunOptions()
            given.add_run_config_entry("winnow.reset", value)
            self.refused(text, winnow.host.run, random_rows(CASES["plain"], np.random.default_rng(0), 1, 1), [4],
                         run_options=given)

    def test_shapes(self):
        winnow = Session(CASES["rotary"])
        rows = random_rows(CASES["rotary"], np.random.default_rng(0), 1, 3)
        self.refused("key has the shape [1, 2, 64], expected [1, 3, 64]", winnow.host.prompt,
                     rows | {"k0": rows["k0"][:, :2]}, [3])
        own = reference(CASES["rotary"])  # a Run that failed between two layers is taken back by the next one
        for got, wanted in zip(winnow.host.prompt(rows, [3]), own.prompt(rows, [3])):
            self.assertLessEqual(np.abs(got - wanted).max(), 1e-4)
        more = random_rows(CASES["rotary"], np.random.default_rng(1), 1, 2)
        for name in ("k0", "k1"):
            self.refused("has the shape", winnow.host.run, more | {name: more[name][:, :1]}, [5])
            for got, wanted in zip(winnow.host.run(more, [5]), own.run(more, [5])):
                self.assertLessEqual(np.abs(got - wanted).max(), 1e-4)
            own.past = {key: present[:, :, :3] for key, present in own.past.items()}
        positions = Session(CASES["position_ids"])
        rows = random_rows(CASES["position_ids"], np.random.default_rng(0), 1, 3)
        feeds = {**rows, "seqlens_k": np.array([2], np.int32), "total": np.array(3, np.int32),
                 "position_ids": np.array([[POSITIONS - 1, 0, 0]])}
        for layer, (_, kv_heads, size) in enumerate(CASES["position_ids"].layers):
            feeds |= {f"past_{letter}{layer}": np.zeros((1, kv_heads, 0, size), np.float32) for letter in "kv"}
        self.refused(f"a token has the position {POSITIONS}, expected 0 to {POSITIONS - 1}",
                     positions.session.run, None, feeds)

    def test_two_runs_at_once(self):
        shape = Shape(layers=((8, 8, 64),) * 3).without_past()
        winnow = Session(shape)
        rows = random_rows(shape, np.random.default_rng(0), 1, POSITIONS)
        lines = []

        def run_some():
            host = Host(shape, winnow.session)
            for _ in range(5):
                try:
                    host.prompt(rows, [POSITIONS])
                except Exception as error:  # noqa: BLE001  of the runtime's own class
                    lines.append(str(error))

        threads = [threading.Thread(target=run_some) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertTrue(lines)
        for line in lines:
            self.assertIn("another Run of this session is going on", line)
        winnow.host.prompt(rows, [POSITIONS])


class Claims(unittest.TestCase):
    def refused_nodes(self, model):
        """(name, reason) of each attention node, of a model of which none is claimed."""
        path = Path(FOLDER.name) / f"report_{next(NUMBERS)}.json"
        make_session(model, options(report=path))
        report = json.loads(path.read_text())
        self.assertEqual(report["claimed"], [])
        return sorted((node["name"], node["reason"]) for node in report["not_claimed"])

    def test_other_nodes(self):
        plain = make_model(CASES["plain"])
        zero_window = make_model(Shape(local_window_size=0))
        self.assertEqual(self.refused_nodes(zero_window),
                         [(f"attention_{layer}", "its local_window_size is 0") for layer in range(2)])
        for computed in (False, True):
            model = changed(plain, lambda graph: into_branches(graph, computed))
            self.assertEqual(self.refused_nodes(model), sorted(
                (f"{branch}_attention_{layer}", "it lies in the body of an If, a Loop or a Scan")
                for branch in ("then", "else") for layer in range(2)))
        self.assertEqual(self.refused_nodes(changed(plain, into_loop)), [
            (f"attention_{layer}", "it lies in the body of an If, a Loop or a Scan") for layer in range(2)])
        alike = make_model(Shape(layers=((4, 4, 32), (2, 2, 16))).without_past())
        reason = "MultiHeadAttention takes positions from the length of past, and Winnow returns an empty past"
        self.assertEqual(self.refused_nodes(changed(alike, into_multi_head_attention)),
                         [("attention_0", reason), ("attention_1", reason)])

    def test_what_strip_cache_refuses_too(self):
        for name, (model, reason, _) in UNSERVED.items():
            with self.subTest(name):
                self.assertEqual(self.refused_nodes(model), [("attention_0", reason)])

    def test_a_node_is_reported_once_where_functions_are_inlined(self):
        self.assertEqual(self.refused_nodes(with_function(make_model(Shape(bias=True)))),
                         [(f"attention_{layer}", "it has an attention_bias") for layer in range(2)])

    def test_a_session_that_nobody_could_compute(self):
        plain = CASES["plain"].without_past()
        for model, reason in ((make_model(Shape(bias=True).without_past()), "it has an attention_bias"),
                              (make_model(Shape(hidden="hidden").without_past()),
                               "the model does not tell how long a row of the query is"),
                              (changed(make_model(plain), into_bfloat16), "the query is neither float nor float16")):
            with self.assertRaisesRegex(Exception, "Winnow does not compute the attention node attention_.: "
                                                   f"{reason}. ONNX Runtime cannot compute it either"):
                make_session(model, options())

    def test_the_log_names_all_nodes(self):
        for shape, text in ((CASES["plain"], "computed by Winnow"), (Shape(bias=True), "left to ONNX Runtime")):
            self.assertRegex(logged(lambda severity: Session(shape, severity), 1),
                             rf"2 attention nodes {text} \((attention_0, attention_1|attention_1, attention_0)\)")

    def test_what_is_not_served_stays_with_the_runtime(self):
        for shape, reason in ((Shape(bias=True), "it has an attention_bias"),
                              (Shape(hidden="hidden"), "the model does not tell how long a row of the query is")):
            generator = np.random.default_rng(7)
            own, winnow = reference(shape), Session(shape)
            rows = random_rows(shape, generator, 1, 5)
            for got, wanted in zip(winnow.host.prompt(rows, [5]), own.prompt(rows, [5])):
                np.testing.assert_array_equal(got, wanted)
            report = winnow.report()
            self.assertEqual(report["claimed"], [])
            self.assertEqual(sorted((node["name"], node["reason"]) for node in report["not_claimed"]),
                             [("attention_0", reason), ("attention_1", reason)])


class OldRuntime(ctypes.Structure):
    """ONNX Runtime's first table, as an older one has it: with version 1 of the interface alone."""

    TEXT = ctypes.CFUNCTYPE(ctypes.c_ssize_t)
    CREATE = ctypes.CFUNCTYPE(ctypes.c_ssize_t, ctypes.c_int, ctypes.c_char_p)
    GET = ctypes.CFUNCTYPE(ctypes.c_ssize_t, ctypes.c_uint32)
    _fields_ = [("get_api", GET), ("version", TEXT)]

    def __init__(self, version):
        self.text, self.texts = ctypes.create_string_buffer(version), []
        create = self.CREATE(lambda code, text: self.texts.append(text.decode()) or 1)
        self.table = (self.CREATE * 1)(create)  # the interface begins with it
        self.asked = []
        super().__init__(self.GET(lambda number: self.asked.append(number) or
                                  (ctypes.addressof(self.table) if number == 1 else 0)),
                         self.TEXT(lambda: ctypes.addressof(self.text)))


@unittest.skipIf("reference" in BACKEND, "the reference backend takes any device")
class Devices(unittest.TestCase):
    def test_a_device_that_is_not_there(self):
        with self.assertRaisesRegex(Exception, "a device that is not there"):
            make_session(make_model(CASES["plain"]), options(device="a device that is not there"))


class Library(unittest.TestCase):
    def test_an_older_runtime_is_refused_by_name(self):
        for version, asked in (("1.22.1", [1]), ("0.23.0", [1]), ("2.0.0", [23, 1])):
            old, count, factories = OldRuntime(version.encode()), ctypes.c_size_t(9), (ctypes.c_void_p * 4)()
            status = ctypes.CDLL(LIBRARY).CreateEpFactories(b"winnow", ctypes.byref(old), None, factories,
                                                            ctypes.c_size_t(4), ctypes.byref(count))
            self.assertEqual((status, count.value), (1, 0))
            self.assertEqual(old.texts, [f"this is ONNX Runtime {version}, expected 1.23 or later, which takes "
                                         "execution providers from libraries"])
            self.assertEqual(old.asked, asked)

    def test_it_can_be_unloaded_and_loaded_again(self):
        for library in (os.path.relpath(LIBRARY), None):
            Session(CASES["plain"]).report()
            onnxruntime.unregister_execution_provider_library("winnow")
            self.assertEqual([device for device in onnxruntime.get_ep_devices()
                              if device.ep_name == winnowkv.onnxruntime.PROVIDER], [])
            winnowkv.onnxruntime.register(library=library)


if __name__ == "__main__":
    winnowkv.onnxruntime.register()
    print(f"onnxruntime {onnxruntime.__version__}, {BACKEND}")
    unittest.main(defaultTest=None if EXTENT == "all" else ["Outputs", "Devices"])
