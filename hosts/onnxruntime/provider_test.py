"""The plugin for ONNX Runtime against ONNX Runtime's own kernels, and what it refuses.

    provider_test.py LIBRARY_OF_THE_PLUGIN BACKEND [all|sample]

A sample has a few forms of attention alone: a backend with kernels has to compile some for each.
"""

import copy
import ctypes
import itertools
import json
import os
import sys
import tempfile
import threading
import unittest
from pathlib import Path

import numpy as np
import onnxruntime

from attention_models import (POSITIONS, Shape, changed, into_branches, into_multi_head_attention, make_model,
                              random_rows)

LIBRARY, BACKEND, EXTENT = [*sys.argv[1:4], "all"][:3]
del sys.argv[1:4]
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
os.environ["WINNOW_PATH"] = str(Path(LIBRARY).parent)
import winnowkv.onnxruntime  # noqa: E402  once its folder is known

FOLDER, NUMBERS = tempfile.TemporaryDirectory(), itertools.count()
EXACT = "none:k=f32,v=f32"
# Two outputs of at most 8, each rounded to float16, differ by 4e-3; ONNX Runtime also rounds what it rotates.
TOLERANCE = {np.float32: 1e-4, np.float16: 6e-3}
onnxruntime.set_default_logger_severity(4)  # refusals are what is tested

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


def options(**provider):
    """Of a session with the plugin."""
    made = onnxruntime.SessionOptions()
    made.intra_op_num_threads = 1
    made.log_severity_level = 4
    return winnowkv.onnxruntime.session_options(
        made, **{"kv": EXACT, "backend": BACKEND, "max_tokens": POSITIONS} | provider)


def make_session(model, settings, **named):
    """Without the second try on the CPU's kernels that onnxruntime makes where a provider is refused."""
    return onnxruntime.InferenceSession(model, settings, enable_fallback=0, **named)


class Host:
    """A loop over a session: counts tokens by row, and hands present on as past."""

    def __init__(self, shape, session):
        self.shape, self.session = shape, session
        self.lengths, self.past = [], {}

    def run(self, rows, lengths, total=None, run_options=None):
        """The outputs of all layers. rows: queries, keys, values; lengths: of the rows of the batch after the Run."""
        batch, tokens = rows["q0"].shape[:2]
        total = max(lengths) if total is None else total
        feeds = {**rows, "seqlens_k": np.array(lengths, np.int32) - 1, "total": np.array(total, np.int32)}
        if self.shape.position_ids:
            feeds["position_ids"] = np.array([[length - tokens + i for i in range(tokens)] for length in lengths])
            if total == tokens:
                feeds["position_ids"][:] = np.arange(tokens)
        if self.shape.bias:
            feeds["bias"] = np.zeros((1, 1, tokens, total), self.shape.number)
        if self.shape.past:
            for layer, (_, kv_heads, size) in enumerate(self.shape.layers):
                for letter in "kv":
                    empty = np.zeros((batch, kv_heads, 0, size), self.shape.number)
                    past = self.past.get(f"present_{letter}{layer}", empty)
                    feeds[f"past_{letter}{layer}"] = past[:, :, :total - tokens]
        names = [output.name for output in self.session.get_outputs()]
        made = dict(zip(names, self.session.run(names, feeds, run_options)))
        self.past = {name: made[name] for name in names if name.startswith("present")}
        self.lengths = list(lengths)
        return [made[f"o{layer}"] for layer in range(len(self.shape.layers))]

    def prompt(self, rows, lengths):
        self.past = {}
        return self.run(rows, lengths, total=rows["q0"].shape[1])


class Session:
    """The plugin's session, with its report at the end."""

    def __init__(self, shape, **provider):
        self.path = Path(FOLDER.name) / f"report_{next(NUMBERS)}.json"
        self.session = make_session(make_model(shape), options(report=self.path, **provider))
        self.host = Host(shape, self.session)

    def report(self):
        self.session = self.host.session = None
        return json.loads(self.path.read_text())


def reference(shape):
    """A loop over a session of the runtime's own kernels. Those of 1.23 see a token more than the window has."""
    if shape.attributes.get("local_window_size") and onnxruntime.__version__.startswith("1.23."):
        shape = copy.copy(shape)
        shape.attributes = shape.attributes | {"local_window_size": shape.attributes["local_window_size"] - 1}
    made = onnxruntime.SessionOptions()
    made.intra_op_num_threads = 1
    return Host(shape, make_session(make_model(shape), made, providers=["CPUExecutionProvider"]))


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
        anew = onnxruntime.RunOptions()
        anew.add_run_config_entry("winnow.reset", "1")
        rows = random_rows(shape, generator, 1, 1)
        self.compare(shape, winnow.host.run(rows, [1], run_options=anew), own.prompt(rows, [1]), [1], "one token")
        rows = random_rows(shape, generator, 1, 1)
        self.compare(shape, winnow.host.run(rows, [2]), own.run(rows, [2]), [1], "the second")

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
                            ({"kv": "h3o"}, "h3o"),
                            ({"backend": "/nonesuch/libwinnow.so"}, "cannot load backend"),
                            ({"device": "a device that is not there"}, "a device that is not there"),
                            ({"report": "/nonesuch/report.json"}, "report=/nonesuch/report.json: cannot be written")):
            if given.get("device") and "reference" in BACKEND:
                continue  # which takes any device
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
            run = winnow.host.run
            empty = winnow.host.past
            for text, rows, lengths, total in (
                    ("row 1 goes on from position 8, and the cache holds 4", two, [7, 9], None),
                    ("row 0 has one token at position 0, and the cache holds 6", two, [1, 1], None),
                    ("a batch of 1 rows goes on from one of 2", one, [7], None),
                    ("a batch of 3 rows goes on from one of 2", three, [7, 5, 5], None),
                    ("the batch has 4 rows, expected at most 3", four, [7, 5, 5, 5], None),
                    ("seqlens_k[1] is 8, with total_sequence_length 7", two, [7, 9], 7),
                    ("seqlens_k[0] is -1", two, [0, 5], 5),
                    ("a token has the position 399" if shape.rotary else "would have 400 tokens, expected at most 96",
                     two, [400, 5], None)):
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
        own = reference(CASES["rotary"])  # a Run that failed between two layers has changed nothing
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
        self.assertEqual(self.refused_nodes(changed(plain, into_branches)), sorted(
            (f"{branch}_attention_{layer}", "it lies in the body of an If, a Loop or a Scan")
            for branch in ("then", "else") for layer in range(2)))
        alike = make_model(Shape(layers=((4, 4, 32), (2, 2, 16))).without_past())
        for name, reason in self.refused_nodes(changed(alike, into_multi_head_attention)):
            self.assertIn("MultiHeadAttention says by the length of past alone", reason)

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
        super().__init__(self.GET(lambda number: ctypes.addressof(self.table) if number == 1 else 0),
                         self.TEXT(lambda: ctypes.addressof(self.text)))


class Library(unittest.TestCase):
    def test_an_older_runtime_is_refused_by_name(self):
        old, count, factories = OldRuntime(b"1.22.1"), ctypes.c_size_t(9), (ctypes.c_void_p * 4)()
        status = ctypes.CDLL(LIBRARY).CreateEpFactories(b"winnow", ctypes.byref(old), None, factories,
                                                        ctypes.c_size_t(4), ctypes.byref(count))
        self.assertEqual((status, count.value), (1, 0))
        self.assertEqual(old.texts, ["this is ONNX Runtime 1.22.1, expected 1.23 or later, which takes execution "
                                     "providers from libraries"])

    def test_it_can_be_unloaded_and_loaded_again(self):
        for _ in range(2):
            Session(CASES["plain"]).report()
            onnxruntime.unregister_execution_provider_library("winnow")
            self.assertEqual([device for device in onnxruntime.get_ep_devices()
                              if device.ep_name == winnowkv.onnxruntime.PROVIDER], [])
            winnowkv.onnxruntime.register()


if __name__ == "__main__":
    winnowkv.onnxruntime.register()
    print(f"onnxruntime {onnxruntime.__version__}, {BACKEND}")
    unittest.main(defaultTest=None if EXTENT == "all" else "Outputs")
