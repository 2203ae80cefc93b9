"""A made-up results.json with every kind of row, for tests of what reads one and for looking at the pictures."""

import math
import random

FORMATS = {"f16": (2.0, 2e-6), "q8_0": (1.0625, 0.0004), "q5_1": (0.75, 0.009), "q4_0": (0.5625, 0.041)}
VALUES_PER_TOKEN = 30 * 2 * 3 * 64  # layers, K and V, heads, head size
# {configuration: (its family, bytes of a value, KLD)}
POLICIES = {"h2o:budget=1/4,k=turbo4,v=turbo3": ("h2o:k=turbo4,v=turbo3", 0.12, 0.3),
            "stream:budget=1/4": ("stream", 0.5, 0.17),
            "winnow:budget=1/8,k=turbo4,v=turbo3,dense=32,sinks=4": ("winnow:k=turbo4,v=turbo3,dense=32,sinks=4", 0.25,
                                                                     0.055)}


def config(backend, k="f16", v="f16", rotate=True, kv=""):
    return {"backend": backend, "k": k, "v": v, "rotate": rotate, "kv": kv, "environment": {}}


def made_configs():
    """(name, role, config, bytes of a value, KLD that it shall have)"""
    yield "cpu:k=f16,v=f16", "control", config("cpu"), 2.0, 2e-6
    for backend, string in (("cpu", "cpu"), ("winnow", "inplace")):
        for name, (size, kld) in FORMATS.items():
            for rotate in (True, False):
                if name == "f16" and (backend == "cpu" or not rotate):
                    continue
                loss = kld * (1 if rotate else 3 if name == "q4_0" else 1.6) * (1 if backend == "winnow" else 1.12)
                yield (f"{string}:k={name},v={name}" + ("" if rotate else ",rotate=off"), "row",
                       config(backend, name, name, rotate), size, loss)
    yield "inplace:k=q8_0,v=q4_0", "row", config("winnow", "q8_0", "q4_0"), (1.0625 + 0.5625) / 2, 0.0068
    for kv, (_, size, kld) in POLICIES.items():
        yield kv, "row", config("winnow", kv=kv), size, kld


def spread(values):
    """(mean, its standard error)"""
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, None
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values))


def made_row(name, role, settings, size, kld, context, mode, count):
    generator = random.Random(f"{name} {context}")
    kld *= 1 if role == "control" else (context / 2048) ** 0.2
    klds = [kld * generator.uniform(0.5, 1.5) for _ in range(count)]
    ratios = [1.2 * kld + generator.gauss(0, 0.02) * math.sqrt(kld) for _ in range(count)]
    same = [100 - 60 * math.sqrt(value) for value in klds]
    (increase, increase_se), (mean, mean_se), (top, top_se) = spread(ratios), spread(klds), spread(same)
    base = 20.468 if context == 2048 else 24.9
    winnow = settings["backend"] == "winnow"
    told = {"family": POLICIES[settings["kv"]][0]} if settings["kv"] else {}
    return {"name": name, "role": role, "config": settings, "mode": mode, **told, "context": context, "contexts": count,
            "scored_tokens": count * (context - context // 2 - 1), "kv_bytes_per_token": size * VALUES_PER_TOKEN,
            "kv_bytes": round(size * VALUES_PER_TOKEN * context), "ppl": base * math.exp(increase), "ppl_base": base,
            "ppl_increase_percent": 100 * math.expm1(increase),
            "ppl_increase_se": None if increase_se is None else 100 * increase_se,
            "kld": mean, "kld_se": mean_se, "kld_p99": 9 * kld, "same_top_percent": top, "same_top_se": top_se,
            "prompt_tokens_per_second": generator.uniform(150, 250),
            "generation_tokens_per_second": generator.uniform(50, 100) if role == "row" else None,
            "attention_calls": context * count // 512 if winnow else 0,
            "per_context": {"ln_ratio": ratios, "kld": klds, "same_top": same}}


def made_task(name="needle", contexts=(512, 1024, 2048), depths=(0, 0.25, 0.5, 0.75, 1), number=3):
    known = [(context, depth, n) for context in contexts for depth in depths for n in range(number + (depth == 0.5))]
    trials = [{"id": f"{name}-{context}-{depth}-{n}", "context": context, "depth": depth,
               "questions": ["The pass number of Oskar is"], "answers": [[str(4800 + n)]], "tokens": context - 4,
               "full_cache_finds": [[n < number]]} for context, depth, n in known]
    counted = [trial for trial in trials if trial["full_cache_finds"] == [[True]]]
    results = []
    for config_name, _, settings, _, kld in made_configs():
        generator = random.Random(f"{name} {config_name}")
        right = {trial["id"]: generator.random() > 4 * kld * (1.2 - (trial["depth"] or 0)) for trial in counted}
        answers = {trial["id"]: {"texts": [f"{trial['answers'][0][0] if right[trial['id']] else 1234}. The"],
                                 "found": [[right[trial["id"]]]]} for trial in counted}
        held = {}
        if settings["kv"]:
            held = {"resident": {"tokens": 12, "layers": [[generator.randrange(13) for _ in range(3)]
                                                          for _ in range(30)]}}
            for answer in answers.values():
                answer["resident"] = {"tokens": 12, "share": generator.random()}
        results.append({"name": config_name, "config": settings, "retrieved": sum(right.values()),
                        "trials": len(counted), "answers": answers} | held)
    return {"task": name, "meaning": f"made up {name}", "contexts": list(contexts), "depths": list(depths),
            "trials": trials, "results": results}


def made_results(contexts=(512, 2048), count=16, needle=True, modes=("batch",)):
    rows = [made_row(*made, context, mode, count) for context in contexts for mode in modes for made in made_configs()]
    return {"format": 4, "command": ["winnow", "eval", "--model", "made-up.gguf", "--text", "made-up.txt", "--contexts",
                                     ",".join(map(str, contexts)), "inplace:k=q8_0,v=q4_0"],
            "model": {"file": "made-up.gguf", "sha256": "0" * 64, "weights": "f32"},
            "text": {"file": "made-up.txt", "sha256": "1" * 64, "part": "second"},
            "host": {"version": "1 (made up)", "batch": 512, "ubatch": 512, "threads": 2},
            "device": {"device": "a device", "platform": "a platform", "driver_version": "3.1"},
            "base": "inplace:k=f16,v=f16", "rows": rows, "tasks": [made_task()] if needle else []}


def made_others():
    """A file of another tool's rows, of the same model and text as made_results."""
    def row(name, share, kld, mode):
        settings = {"backend": "", "kv": ""}
        made = made_row(name, "other", settings, 2 * share, kld, 2048, mode, 8)
        return {key: made[key] for key in made if key not in ("role", "config", "attention_calls")}

    return {"format": "winnow-eval-rows", "version": 1, "tool": {"name": "squeeze", "version": "1.2"},
            "command": ["squeeze", "made-up.gguf"], "remarks": ["it is made up"],
            "model": {"file": "made-up.gguf", "sha256": "0" * 64},
            "text": {"file": "made-up.txt", "sha256": "1" * 64, "part": "second"},
            "rows": [row("squeeze:keep=512", 1 / 4, 0.2, "batch"), row("squeeze:keep=1024", 1 / 2, 0.04, "batch"),
                     {"name": "squeeze:tight", "context": 2048, "mode": "decode", "refused": "it does not decode"}],
            "tasks": [{"task": "needle", "name": "squeeze:keep=512", "retrieved": 30, "trials": 44},
                      {"task": "riddle", "name": "squeeze:keep=512", "retrieved": 2, "trials": 3},
                      {"task": "chat", "name": "squeeze:keep=512", "refused": "it does not chat"}]}
