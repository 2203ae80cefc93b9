"""One configuration of OpenVINO GenAI in a process of its own, whose memory is that configuration's.

    openvino_answers.py JSON      # requests on standard input, a line of JSON each; see _serve
"""

import importlib.metadata
import json
import re
import sys
import time

from python_process import MOST_WORDS, PythonProcess
import winnow_eval  # noqa: F401  which has tools/calibrate in the path
from winnow_calibrate import memory

SPARE = 64  # tokens that the cache has room for beyond prompt and answer
RECENT = 4  # an eviction keeps the first block, and of its tokens the last ones, one in so many
BLOCK = 32  # tokens of a block of the cache on a CPU
# Of what a pipeline counts as the bytes of its cache, those that there are: of u4 it counts a byte for each element,
# scales and zero points among them, while two share one (what the process reserves tells).
COUNTED = {"u4": 0.5}


class Refused(Exception):
    """Why a configuration cannot run."""


def version():
    return importlib.metadata.version("openvino-genai")


class Answers(PythonProcess):
    """The process; use as a context manager. Refused says why it does not start.

    settings: {"model": path, "properties": OpenVINO's, "evict": tokens or None, "tokens": of the longest prompt with
    its answer}.
    """

    def __init__(self, settings):
        super().__init__(__file__, json.dumps(settings))

    def _answer(self):
        answer = super()._answer()
        if "refused" in answer:
            raise Refused(answer["refused"])
        return answer

    def failure(self, said, status):
        return Refused(said.strip()[-MOST_WORDS:] or f"the process ended with status {status}")

    def answer(self, tokens, generate):
        """What follows some tokens, greedily, and what it took: see _serve."""
        return self.ask({"tokens": tokens, "generate": generate})


def _reason(error):
    """What OpenVINO says, without the paths of where it was built."""
    lines = [re.sub(r"Check '.*' failed at .*", "", line).strip() for line in str(error).splitlines()]
    lines = [line for line in lines if line and not line.startswith("Exception from ")]
    return f"OpenVINO: {' '.join(lines) or type(error).__name__}"[:MOST_WORDS]


def _pipeline(openvino_genai, settings):
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.num_kv_blocks = -(-(settings["tokens"] + SPARE) // BLOCK)
    scheduler.enable_prefix_caching = False
    if settings["evict"]:
        recent = max(BLOCK, settings["evict"] // RECENT // BLOCK * BLOCK)
        scheduler.use_cache_eviction = True
        scheduler.cache_eviction_config = openvino_genai.CacheEvictionConfig(
            BLOCK, recent, settings["evict"], openvino_genai.AggregationMode.NORM_SUM)
    pipeline = openvino_genai.ContinuousBatchingPipeline(settings["model"], scheduler, "CPU", settings["properties"])
    return pipeline, scheduler.num_kv_blocks


def _generate(pipeline, tensor, config, blocks, number):
    """One request, step by step; all but the bytes of the cache."""
    before = time.monotonic()
    handle = pipeline.add_request(number, tensor, config)
    times, held = [], []  # when each token came; tokens in blocks that are in use
    made = []
    while pipeline.has_non_finished_requests():
        pipeline.step()
        held.append(round(pipeline.get_metrics().cache_usage / 100 * blocks) * BLOCK)
        if handle.can_read():
            for output in handle.read().values():
                made += output.generated_ids
                times += [time.monotonic()] * len(output.generated_ids)
    return {"tokens": made, "prompt_seconds": times[0] - before, "generation_seconds": times[-1] - times[0],
            "resident_at_most": max(held), "resident_at_last": held[-1], "peak_bytes": memory.of("self", "VmHWM")}


def _serve(settings):
    """Answers {"tokens", "generate"} with {"tokens", "prompt_seconds", "generation_seconds", "resident_at_most" and
    "resident_at_last" in tokens of the cache, "cache_bytes_per_token", "peak_bytes"}, or with {"refused"}."""
    import numpy
    import openvino
    import openvino_genai

    counted = COUNTED.get(settings["properties"]["KV_CACHE_PRECISION"], 1)
    try:
        pipeline, blocks = _pipeline(openvino_genai, settings)
    except (RuntimeError, ValueError, TypeError) as error:
        print(json.dumps({"refused": _reason(error)}), flush=True)
        return
    print(json.dumps({"version": version()}), flush=True)
    for number, line in enumerate(sys.stdin):
        request = json.loads(line)
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = request["generate"]
        config.do_sample = config.apply_chat_template = False
        config.ignore_eos = True  # llama.cpp says where an answer ends
        try:
            tensor = openvino.Tensor(numpy.array([request["tokens"]], numpy.int64))
            answer = _generate(pipeline, tensor, config, blocks, number)
            size = counted * pipeline.get_metrics().kv_cache_size_in_bytes
            answer["cache_bytes_per_token"] = size / (blocks * BLOCK)
        except (RuntimeError, ValueError) as error:
            answer = {"refused": _reason(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _serve(json.loads(sys.argv[1]))
