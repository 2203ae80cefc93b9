"""What messages_test.py finds in the sources and docs/troubleshooting.md does not need, with the reason.

(path, "all" | "inside" | "text", pattern, why): all texts of a source, those inside of brackets before which the
pattern is found, or those in which it is found. An exception that nothing needs any more has to go.
"""

EXCEPTIONS = (
    # No messages.
    ("*", "inside", r"add_(option|flag|subcommand)$|CLI::App app$", "help of a command line"),
    ("backend/cache/*", "inside", r"\bKey( \w+=)?$", "what a key of the configuration is, for docs/policies.md"),
    ("backend/opencl/quirks.cpp", "inside", r"KnownQuirk", "why a quirk is there, for who reads the table"),
    ("backend/opencl/*", "text", r"^-D|^\.\.\. ?-D|kernel void|^ifdef |^kernel=", "options and sources of kernels"),
    ("backend/opencl/*", "text", r"(?i)^(portable computing language|amd accelerated.*|intel\(r\) opencl|.*amd epyc)$",
     "names of drivers and devices"),
    ("bench/plain_kernels.hpp", "all", "", "kernels"),
    ("bench/*", "inside", r"(print_row|push_back|report|Policy|clBuildProgram|all=|\badd)$",
     "rows and headings of tables"),
    ("bench/*", "inside", r"std::printf$", "what a program prints of its work"),
    ("bench/tune.cpp", "text", r"about \.\.\. s left$", "what a program prints of its work"),
    ("bench/compare.cpp", "text", r"^(another|only now|only before|limits of the machine)|before, us",
     "the comparison that was asked for"),
    ("bench/*_bench.cpp", "text", r"^% binds|D=\.\.\. tokens", "what stands below and in tables"),
    ("bench/*.py", "all", "", "programs for measurements of docs/, which ship with no installation"),
    ("hosts/c/*", "all", "", "an example, which prints what it does"),
    ("hosts/ggml/*", "text", r"^kernels, (caches in place|virtual caches)$", "names of tracks of WINNOW_TRACE"),
    ("hosts/ggml/layout_facts.cpp", "all", "", "what the build reads; CMake says it, as a part of its message"),
    ("hosts/ggml/threads.cpp", "text", r"^pthread cpu$", "a value of POCL_DEVICES"),
    ("hosts/python/external_policy.py", "all", "", "an example"),
    ("hosts/python/winnowkv/__init__.py", "text", r"^module \.\.\. has no attribute", "what Python says of any module"),
    ("*_test.py", "all", "", "a test"),
    ("tools/eval/tests/*", "all", "", "a test"),
    ("tools/eval/adapters/*", "all", "", "programs that run other projects, for docs/quality.md"),
    ("tools/doctor.cpp", "all", "", "lines that name their cure beside them"),
    ("tools/main.cpp", "text", r"^winnow run \[OPTIONS\]", "help of a command line"),
    ("tools/main.cpp", "text", r"^Leave caches to llama\.cpp", "help of a command line"),
    ("tools/run.cpp", "text", r"^\.\.\.winnow run: \.\.\.", "with what messages of winnow run begin"),
    ("tools/info.cpp", "text", r"compute units|nothing special|kernels: shape|^winnow info$", "what winnow info lists"),
    ("tools/measure/main.cpp", "text", r"^Runs configurations", "help of a command line"),
    ("tools/plan/measured.py", "all", "", "makes data of the tree"),
    ("tools/plan/recommend.cpp", "all", "", "the advice of winnow plan, which docs/plan.md explains"),
    ("tools/plan/svg.cpp", "all", "", "a picture"),
    ("tools/plan/text.cpp", "text", r"(?s)^(?!not with this model)", "the table of winnow plan, for docs/plan.md"),
    ("tools/plan/where_tokens_lie.cpp", "all", "", "a line of winnow plan, which docs/plan.md explains"),
    ("tools/probe_shapes.cpp", "all", "", "names of what winnow info asks for"),

    ("backend/api/api.cpp", "text", r"^unknown status$", "the name of a status that there is not"),
    ("backend/device/device.hpp", "text", r"^this device has no OpenCL$", "a defect: no such device is asked"),

    # Parts of messages: the page has the whole, in which they are "...".
    ("backend/*", "text", r"^\w+: (\w+|row indices of v|.* segment's)$", "the argument with which a message begins"),
    ("backend/api/*", "text", r"^(rows of an output|the cells|an extension in next|of another entry)$",
     "the argument with which a message begins"),
    ("backend/api/*", "text", r"^: (rows are contiguous|the row is packed)$|^where has_v_in_k is 1$|^rows that are "
     "rewritten in place$", "why something is expected"),
    ("backend/cache/state/check_loaded.cpp", "all", "", "what a damaged file has, behind `is damaged:`"),
    ("backend/cache/plan/codebooks.cpp", "text", r"^(KV heads|elements of a key)$", "of what there are too many"),
    ("backend/cache/state/export_rows.cpp", "text", r"^and may be less a mean$", "the end of a reason"),
    ("backend/cache/state/incoming_rows.cpp", "text", r"^\.\.\. of token \.\.\. in head \.\.\.$",
     "which row a record is of"),
    ("backend/cache/state/ledger.cpp", "inside", r"\bin\.count$", "which number of a ledger is damaged"),
    ("backend/cache/state/rebuilt_layer.cpp", "all", "", "what a damaged ledger has, behind `is damaged:`"),
    ("backend/cache/calls/set_config.cpp", "text",
     r"^(what is older|division among|in KV head|format of layer|not kept)", "what would become another"),
    ("backend/cache/calls/layer_call.cpp", "text", r"together, the cache's context$", "the end of a reason"),
    ("plugin_api/winnow_loader.c", "text", r"^no reason was given$", "dlerror gives one when dlopen has failed"),
    ("backend/opencl/launch.cpp", "all", "", "of which call of OpenCL the error is"),
    ("backend/opencl/operation.cpp", "text", r"^the operation behind the event$", "of which call the error is"),
    ("backend/opencl/*self_test*", "text", r"\bof (head|page|the state|outputs|v|turbo4)\b|and should be|slot$|"
     r"^(tensor cores|the shape|attention (of|over)|a step of)|with the shape", "which number a self-test found wrong"),
    ("hosts/ggml/kv_figures.cpp", "text", r"^\.\.\. tensors, \.\.\. MiB$", "how large a cache is that stays in place"),
    ("hosts/ggml/network_file.cpp", "text", r"^(hidden unit|biases of layer) \.\.\.$", "which part of a file is wrong"),
    ("tools/eval/winnow_eval/allocate.py", "text", r"^(its KV heads|the whole layer)$", "of what a number is"),
    ("tools/plan/gguf_header.cpp", "text", r"^(a|the|key) |numbers of 64 bits$", "what is read at a byte of a file"),
    ("tools/plan/plan.cpp", "text", r"^\.\.\.winnow plan: ", "with what all messages of winnow plan begin"),
    ("*", "text", r"^winnow-(bench|measure): \.\.\.$", "with what all messages of a program begin"),

    # Met by nobody.
    ("cmake/embed_kernels.cmake", "all", "", "a mistake in Winnow's own kernels"),
    ("cmake/source_digest.cmake", "all", "", "a mistake in Winnow's own CMakeLists.txt"),
    ("backend/cache/plan/config.cpp", "text", r"has no value for its key|^no policy \.\.\.$", "a mistake in Winnow"),
    ("backend/opencl/*", "text", r"its launcher gives|bytes of arguments$|^an entry of a launch has",
     "a mistake in Winnow"),
    ("backend/opencl/programs.cpp", "text", r"^no kernel file", "a mistake in Winnow"),
    ("backend/opencl/s*.cpp", "text", r"^(slot_\w+: up to|attention over) .*segments|there is no statistic",
     "a cache makes no such call"),
    ("backend/opencl/self_test.cpp", "text", r"^there is no self-test of", "a mistake in Winnow"),
    ("bench/ggml_absent.cpp", "all", "", "what is built without ggml asks for nothing of it"),
    ("bench/harness.cpp", "text", r"^quartiles of no values$", "a mistake in Winnow"),
    ("bench/read_limit.cpp", "all", "", "a mistake in Winnow"),

    # Of WINNOW_LOG_DEBUG, which llama.cpp hides and hosts do not ask for by default.
    ("backend/opencl/operation.cpp", "text", r"^first launch of", "for who looks for what takes time"),
    ("backend/opencl/programs.cpp", "text", r"^\.\.\. \(\.\.\.\) in \.\.\. ms$", "for who looks for what takes time"),
)
