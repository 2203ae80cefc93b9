"""What `winnow calibrate` makes of keys and queries: codebooks whose codes keep the order of scores, and their file.

    codebooks_test.py       needs requirements.txt
"""

import struct
import sys
import tempfile
import types
import unittest
import zlib
from pathlib import Path

import numpy

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from winnow_calibrate import Failure, codebooks  # noqa: E402

KV_HEADS, Q_HEADS, SIZE, CONTEXT, CONTEXTS = 2, 4, 32, 1200, 2
LAYERS = ["cache_k_l10", "cache_k_l2"]


def write_rows(path, seed=1, contexts=CONTEXTS):
    """As the plugin records them, in steps of 500 tokens: keys about a mean, queries large in other elements."""
    random = numpy.random.default_rng(seed)
    with open(path, "wb") as file:
        for _ in range(contexts):
            for first in range(0, CONTEXT, 500):
                for name in LAYERS:
                    tokens = min(500, CONTEXT - first)
                    keys = random.normal(3, 1 + numpy.arange(SIZE) / 8, (KV_HEADS, tokens, SIZE)).astype("<f4")
                    queries = random.normal(0, 8 / (1 + numpy.arange(SIZE)), (Q_HEADS, -(-tokens // 8), SIZE))
                    file.write(codebooks.RECORD.pack(codebooks.ROWS, name.encode(), 1, KV_HEADS, tokens, SIZE, 1, 0, 2,
                                                     Q_HEADS, queries.shape[1]))
                    file.write(keys.tobytes() + queries.astype("<f2").tobytes())


class Training(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.path = Path(folder.name) / "rows"
        write_rows(cls.path)
        cls.layers = codebooks.read(cls.path, CONTEXT)
        cls.steps = []
        cls.data, cls.left_out = codebooks.train(cls.layers, cls.steps.append)

    def records(self):
        data, found = self.data, []
        while data:
            magic, version, heads, size, name, context, checksum = struct.unpack("<8s6I", data[:32])
            self.assertEqual((magic, version, heads, size, context), (b"WNCODES\0", 1, KV_HEADS, SIZE, CONTEXT))
            end = 32 + name + 2 * heads * size * (2 * size + 256)
            self.assertEqual(checksum, zlib.crc32(data[:28], zlib.crc32(data[32:end])))
            found.append((data[32:32 + name].decode(), numpy.frombuffer(data[32 + name:end], "<f2").reshape(heads, -1)))
            data = data[end:]
        return found

    def test_rows_are_read_by_context(self):
        layer = self.layers["cache_k_l2"]
        self.assertEqual([keys.shape for keys in layer.contexts], [(KV_HEADS, CONTEXT, SIZE)] * CONTEXTS)
        self.assertEqual(layer.queries, 2 * CONTEXTS * (63 + 63 + 25))

    def test_codes_keep_the_order_of_scores(self):
        self.assertEqual((self.steps[-1], len(self.steps)), (1, KV_HEADS * len(LAYERS)))
        self.assertLess(self.left_out, 0.35)  # of 32 elements without a pattern, in two bytes
        for name, heads in self.records():
            for at, numbers in enumerate(heads.astype(float)):
                of_keys, of_queries = numbers[:2 * SIZE * SIZE].reshape(2, SIZE, SIZE)
                books = numbers[2 * SIZE * SIZE:].reshape(-1, 16, 256)
                rows = codebooks.pages(self.layers[name].contexts, at)[:300]
                query = numpy.random.default_rng(5).normal(0, 8 / (1 + numpy.arange(SIZE)))
                y, scores = rows @ of_keys, rows @ query
                numpy.testing.assert_allclose(y @ (query @ of_queries), scores, atol=0.05 * abs(scores).max())
                found = numpy.concatenate([book[:, ((book[:, :, None] - part.T[:, None]) ** 2).sum(0).argmin(0)].T for
                                           book, part in zip(books, numpy.split(y, 2, axis=1))], axis=1)
                self.assertGreater(numpy.corrcoef(found @ (query @ of_queries), scores)[0, 1], 0.75)

    def test_layers_are_in_their_order_and_it_repeats_itself(self):
        self.assertEqual([name for name, _ in self.records()], ["cache_k_l2", "cache_k_l10"])
        self.assertEqual(codebooks.train(codebooks.read(self.path, CONTEXT))[0], self.data)

    def test_what_is_too_little_or_broken_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows"
            write_rows(path, contexts=1)
            with self.assertRaisesRegex(Failure, "too few keys"):
                codebooks.train(codebooks.read(path, CONTEXT))
            whole = path.read_bytes()
            for end in (len(whole) - 5, codebooks.RECORD.size - 1, 1):
                path.write_bytes(whole[:end])
                with self.assertRaisesRegex(Failure, "cut short"):
                    codebooks.read(path, CONTEXT)
            path.write_bytes(whole[8:])  # as it was before it had a mark
            with self.assertRaisesRegex(Failure, "another version"):
                codebooks.read(path, CONTEXT)
            path.write_bytes(b"")
            with self.assertRaisesRegex(Failure, "no rows were recorded"):
                codebooks.read(path, CONTEXT)

    def test_a_model_of_other_heads_has_none(self):
        with self.assertRaisesRegex(codebooks.Unsuited, "cache_k_l0: keys of 40 elements, expected a multiple of 16"):
            codebooks.train({"cache_k_l0": types.SimpleNamespace(moment=numpy.zeros((1, 40, 40)))})

    def test_the_file_is_written(self):
        with tempfile.TemporaryDirectory() as folder:
            path = codebooks.write(self.data, Path(folder))
            self.assertEqual((path.name, path.read_bytes()), ("codebooks.bin", self.data))


if __name__ == "__main__":
    unittest.main()
