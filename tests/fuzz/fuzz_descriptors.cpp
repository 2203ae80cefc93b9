// Descriptions: any bytes in any field are answered with a status; supports says what the call then does; a call that
// fails has written nothing.
//
//     operation (a byte), then the fields as they are drawn
#include <cstring>
#include <string>

#include "backend.hpp"
#include "descriptions.hpp"
#include "input.hpp"
#include "winnow_opencl.h"

using namespace winnow::fuzz;

namespace {

winnow_context* context() {
    static winnow_context* const one = new_context();
    return one;
}

constexpr uint32_t dense[] = {WINNOW_TYPE_F32, WINNOW_TYPE_F16, WINNOW_TYPE_BF16};
constexpr uint32_t storage[] = {
    WINNOW_TYPE_F32,         WINNOW_TYPE_F16,         WINNOW_TYPE_BF16,     WINNOW_TYPE_Q8_0,   WINNOW_TYPE_Q5_1,
    WINNOW_TYPE_Q5_0,        WINNOW_TYPE_Q4_1,        WINNOW_TYPE_Q4_0,     WINNOW_TYPE_IQ4_NL, WINNOW_TYPE_AFFINE8_G32,
    WINNOW_TYPE_AFFINE4_G64, WINNOW_TYPE_AFFINE4_G32, WINNOW_TYPE_TURBO4,   WINNOW_TYPE_TURBO3, WINNOW_TYPE_TURBO2,
    WINNOW_TYPE_TURBO3_5,    WINNOW_TYPE_TURBO2_5,    WINNOW_TYPE_SPARSE16, WINNOW_TYPE_SPARSE8};
constexpr uint32_t indices[] = {WINNOW_TYPE_I32, WINNOW_TYPE_I64};
constexpr uint32_t masks[] = {WINNOW_TYPE_F32, WINNOW_TYPE_F16, WINNOW_TYPE_BOOL};
constexpr int64_t rotatable[] = {32, 64, 16, 48, 80};

// Given now and then: NULL by the first byte else.
const winnow_tensor* maybe(Input& input, Descriptions& drawn, const Role& role) {
    return input.chance(80) ? drawn.tensor(role) : nullptr;
}

// Asks, calls, and compares the answers.
template <class Desc, class Call>
void ask_and_call(Descriptions& drawn, uint32_t operation, const Desc* desc, Call operate) {
    char variant[32];
    std::memset(variant, 0xa5, sizeof variant);
    const int32_t answer = api().supports(context(), operation, desc, variant, sizeof variant);
    const bool has_variant = std::memchr(variant, 0, sizeof variant) != nullptr && variant[0] != 0;
    require(has_variant == (answer == WINNOW_OK), "supports names a variant where it says yes, and there alone");
    const std::string reason = message_of(context());
    require(answer == WINNOW_OK || !reason.empty(), "supports says why not");
    if (!drawn.can_run()) return;
    drawn.remember();
    winnow_event* event = nullptr;
    const int32_t status = operate(context(), desc, &event);
    const std::string both = "supports says " + std::string(api().status_name(answer)) + " (" + reason +
                             "), the call " + api().status_name(status) + " (" + message_of(context()) + ")";
    // The call asks for memory first, and `supports` never does.
    const bool is_only_asked = drawn.lacks_memory() && status == WINNOW_ERROR_INVALID_ARGUMENT &&
                               (answer == WINNOW_OK || answer == WINNOW_ERROR_UNSUPPORTED);
    if (status != answer && !is_only_asked) broken(both);
    require(api().finish(context()) == WINNOW_OK, "finish");
    require((event != nullptr) == (status == WINNOW_OK), "an event is there if the call is carried out");
    require(api().event_destroy(event) == WINNOW_OK, "an event can be destroyed");
    drawn.expect_unchanged(status != WINNOW_OK, "memory is as it was, but that of outputs of a call that succeeds");
}

void sdpa(Input& input, Descriptions& drawn) {
    const int64_t batch = input.within(1, 2), kv_heads = input.within(1, 2), heads = kv_heads * input.within(1, 2);
    const int64_t q_len = input.within(1, 4), kv_len = input.within(1, 20);
    const int64_t size = input.choice(rotatable), v_size = input.chance(64) ? input.choice(rotatable) : size;
    const uint32_t k_type = input.choice(storage), v_type = input.chance(128) ? input.choice(storage) : k_type;
    winnow_sdpa_desc desc{};
    desc.struct_size = sizeof desc;
    desc.next = drawn.extensions();
    desc.q = drawn.tensor({input.choice(dense), {batch, heads, q_len, size}});
    desc.k = drawn.tensor({k_type, {batch, kv_heads, kv_len, size}});
    desc.v = drawn.tensor({v_type, {batch, kv_heads, kv_len, v_size}});
    desc.out = drawn.tensor({input.choice(dense), {batch, heads, q_len, v_size}, true});
    desc.attn_mask = maybe(input, drawn, {input.choice(masks), {1, heads, q_len, kv_len}});
    desc.mask_slopes = maybe(input, drawn, {WINNOW_TYPE_F32, {1, 1, 1, heads}});
    desc.alibi_slopes = maybe(input, drawn, {WINNOW_TYPE_F32, {1, 1, 1, heads}});
    desc.head_sink = maybe(input, drawn, {WINNOW_TYPE_F32, {1, 1, 1, heads}});
    desc.scores_out = maybe(input, drawn, {WINNOW_TYPE_F32, {batch, heads, q_len, kv_len}, true});
    desc.row_stats = maybe(input, drawn, {WINNOW_TYPE_F32, {batch, heads, q_len, 2}, true});
    desc.scores_mode = desc.scores_out != nullptr ? static_cast<uint32_t>(input.within(1, 4)) : 0;
    desc.is_causal = input.byte() & 1;
    desc.q_offset = input.within(-4, 40);
    desc.window_left = input.chance(64) ? input.within(0, 9) : 0;
    desc.v_threshold = input.chance(64) ? static_cast<float>(input.byte()) / 255 : 0;
    desc.v_rows_skipped = maybe(input, drawn, {WINNOW_TYPE_I32, {batch, heads, q_len, 1}, true});
    desc.slot_positions = maybe(input, drawn, {WINNOW_TYPE_I32, {batch, kv_heads, 1, kv_len}});
    desc.kv_lengths = maybe(input, drawn, {input.choice(indices), {1, 1, 1, batch}});
    desc.q_offsets = maybe(input, drawn, {input.choice(indices), {1, 1, 1, batch}});
    if (desc.q_offsets != nullptr && !input.chance(16)) desc.q_offset = 0;
    drawn.twist(desc.flags);
    drawn.twist(desc.scale);
    drawn.twist(desc.softcap);
    drawn.twist(desc.scores_mode);
    drawn.twist(desc.is_causal);
    drawn.twist(desc.q_offset);
    drawn.twist(desc.window_left);
    drawn.twist(desc.window_right);
    drawn.twist(desc.v_threshold);
    drawn.twist(desc.reserved);
    const winnow_sdpa_desc* const given = drawn.sized(desc);
    ask_and_call(drawn, WINNOW_OPERATION_SDPA, given, api().sdpa);
}

void kv_append(Input& input, Descriptions& drawn) {
    const int64_t batch = input.within(1, 2), heads = input.within(1, 2), tokens = input.within(1, 5);
    const int64_t slots = input.within(1, 24), size = input.choice(rotatable), v_size = input.choice(rotatable);
    winnow_kv_append_desc desc{};
    desc.struct_size = sizeof desc;
    desc.next = drawn.extensions();
    if (!input.chance(48)) {
        desc.k_src = drawn.tensor({input.choice(dense), {batch, heads, tokens, size}});
        desc.k_cache = drawn.tensor({input.choice(storage), {batch, heads, slots, size}, true});
    }
    if (!input.chance(48)) {
        desc.v_src = drawn.tensor({input.choice(dense), {batch, heads, tokens, v_size}});
        desc.v_cache = drawn.tensor({input.choice(storage), {batch, heads, slots, v_size}, true});
    }
    desc.k_row_indices = drawn.tensor({input.choice(indices), {1, heads, 1, tokens}});
    desc.v_row_indices = maybe(input, drawn, {input.choice(indices), {batch, 1, 1, tokens}});
    desc.k_norm = input.byte() % 4;
    desc.v_norm = input.byte() % 4;
    drawn.twist(desc.flags);
    drawn.twist(desc.k_norm);
    drawn.twist(desc.v_norm);
    const winnow_kv_append_desc* const given = drawn.sized(desc);
    ask_and_call(drawn, WINNOW_OPERATION_KV_APPEND, given, api().kv_append);
}

void kv_requantize(Input& input, Descriptions& drawn) {
    const int64_t batch = input.within(1, 2), heads = input.within(1, 2), slots = input.within(1, 24);
    const int64_t size = input.choice(rotatable), rows = input.within(1, 6);
    winnow_kv_requantize_desc desc{};
    desc.struct_size = sizeof desc;
    desc.next = drawn.extensions();
    desc.src = drawn.tensor({input.choice(storage), {batch, heads, slots, size}});
    desc.dst = drawn.tensor({input.choice(storage), {batch, heads, slots, size}, true});
    desc.row_indices = maybe(input, drawn, {input.choice(indices), {1, heads, 1, rows}});
    desc.norm = input.byte() % 4;
    drawn.twist(desc.flags);
    drawn.twist(desc.norm);
    drawn.twist(desc.reserved);
    const winnow_kv_requantize_desc* const given = drawn.sized(desc);
    ask_and_call(drawn, WINNOW_OPERATION_KV_REQUANTIZE, given, api().kv_requantize);
}

void kv_dequantize(Input& input, Descriptions& drawn) {
    const int64_t batch = input.within(1, 2), heads = input.within(1, 2), slots = input.within(1, 24);
    const int64_t size = input.choice(rotatable);
    const bool has_indices = input.chance(128);
    const int64_t rows = has_indices ? input.within(1, 6) : slots;
    winnow_kv_dequantize_desc desc{};
    desc.struct_size = sizeof desc;
    desc.next = drawn.extensions();
    desc.src = drawn.tensor({input.choice(storage), {batch, heads, slots, size}});
    desc.dst = drawn.tensor({input.choice(dense), {batch, heads, rows, size}, true});
    if (has_indices) desc.row_indices = drawn.tensor({input.choice(indices), {batch, 1, 1, rows}});
    drawn.twist(desc.flags);
    const winnow_kv_dequantize_desc* const given = drawn.sized(desc);
    ask_and_call(drawn, WINNOW_OPERATION_KV_DEQUANTIZE, given, api().kv_dequantize);
}

void hadamard(Input& input, Descriptions& drawn) {
    const std::array<int64_t, 4> shape = {input.within(1, 2), input.within(1, 2), input.within(1, 3),
                                          16 * input.within(1, 37)};
    winnow_hadamard_desc desc{};
    desc.struct_size = sizeof desc;
    desc.next = drawn.extensions();
    desc.src = drawn.tensor({input.choice(dense), shape});
    desc.dst = drawn.tensor({input.choice(dense), shape, true});
    desc.inverse = input.byte() & 1;
    drawn.twist(desc.flags);
    drawn.twist(desc.inverse);
    drawn.twist(desc.reserved);
    const winnow_hadamard_desc* const given = drawn.sized(desc);
    ask_and_call(drawn, WINNOW_OPERATION_HADAMARD, given, api().hadamard);
}

winnow_cache_stats stats_of(winnow_cache* cache) {
    winnow_cache_stats stats{};
    stats.struct_size = sizeof stats;
    require(caches().stats(cache, -1, &stats) == WINNOW_OK, "stats can be had");
    return stats;
}

// A call on a cache that fails leaves the cache and all memory as they were.
template <class Call>
void call_on(winnow_cache* cache, Descriptions& drawn, Call call) {
    if (!drawn.can_run()) return;
    drawn.remember();
    const winnow_cache_stats before = stats_of(cache);
    const int32_t status = call();
    drawn.expect_unchanged(status != WINNOW_OK, "memory is as it was, but that of outputs of a call that succeeds");
    if (status == WINNOW_OK) return;
    require(!message_of(context()).empty(), "a refusal has a reason");
    const winnow_cache_stats after = stats_of(cache);
    require(std::memcmp(&before, &after, sizeof before) == 0, "a call that fails leaves the cache as it was");
}

struct CacheShape {
    int64_t layers, heads, kv_heads, size, v_size, context, cells;
};

void cache_step(Input& input, Descriptions& drawn, winnow_cache* cache, const CacheShape& shape) {
    const int64_t tokens = input.within(1, 12);
    winnow_cache_entry entry{};
    entry.struct_size = sizeof entry;
    entry.count = tokens;
    winnow_cache_step_desc desc{};
    desc.struct_size = sizeof desc;
    desc.next = drawn.extensions();
    desc.layer = input.within(0, shape.layers - 1);
    const uint8_t sides = input.byte();
    if (sides % 8 != 1) {
        desc.k = drawn.tensor({input.choice(dense), {1, shape.kv_heads, tokens, shape.size}});
        desc.v = drawn.tensor({input.choice(dense), {1, shape.kv_heads, tokens, shape.v_size}});
        if (shape.cells > 0) desc.cells = drawn.tensor({input.choice(indices), {1, 1, 1, tokens}});
    }
    if (sides % 8 != 2) {
        desc.q = drawn.tensor({input.choice(dense), {1, shape.heads, tokens, shape.size}});
        desc.out = drawn.tensor({input.choice(dense), {1, shape.heads, tokens, shape.v_size}, true});
        const int64_t columns = shape.cells > 0 ? shape.cells : input.within(tokens, 60);
        entry.scores_out = maybe(input, drawn, {WINNOW_TYPE_F32, {1, shape.heads, tokens, columns}, true});
        desc.head_sink = maybe(input, drawn, {WINNOW_TYPE_F32, {1, 1, 1, shape.heads}});
        if (shape.cells > 0) {
            entry.attn_mask = drawn.tensor({input.choice(masks), {1, 1, tokens, shape.cells}});
            desc.mask_slopes = maybe(input, drawn, {WINNOW_TYPE_F32, {1, 1, 1, shape.heads}});
        } else {
            desc.alibi_slopes = maybe(input, drawn, {WINNOW_TYPE_F32, {1, 1, 1, shape.heads}});
        }
        entry.draft_tokens = input.chance(40) ? input.within(0, 5) : 0;
    }
    drawn.twist(entry.sequence);
    drawn.twist(entry.batch);
    drawn.twist(entry.first);
    drawn.twist(entry.count);
    drawn.twist(entry.draft_tokens);
    desc.entries = drawn.sized(entry);
    desc.entry_count = 1;
    desc.entry_stride = sizeof entry;
    if (input.chance(64)) desc.flags = WINNOW_STEP_NO_WAIT;
    drawn.twist(desc.flags);
    drawn.twist(desc.layer);
    drawn.twist(desc.scale);
    drawn.twist(desc.softcap);
    drawn.twist(desc.window_left);
    const winnow_cache_step_desc* const given = drawn.sized(desc);
    winnow_event* event = nullptr;
    call_on(cache, drawn, [&] { return caches().step(cache, given, &event); });
    require(api().event_destroy(event) == WINNOW_OK, "an event can be destroyed");
}

void cache_rows(Input& input, Descriptions& drawn, winnow_cache* cache, const CacheShape& shape) {
    const int64_t count = input.within(1, 12);
    const uint8_t which = input.byte() % 3;
    winnow_cache_rows_desc desc{};
    desc.struct_size = sizeof desc;
    desc.next = drawn.extensions();
    desc.layer = input.within(0, shape.layers - 1);
    if (which != 2 || shape.cells > 0) desc.tokens = drawn.tensor({input.choice(indices), {1, 1, 1, count}});
    const bool is_output = which == 0;
    if (!input.chance(16))
        desc.k = drawn.tensor({input.choice(dense), {1, shape.kv_heads, count, shape.size}, is_output});
    if (!input.chance(16))
        desc.v = drawn.tensor({input.choice(dense), {1, shape.kv_heads, count, shape.v_size}, is_output});
    drawn.twist(desc.flags);
    drawn.twist(desc.layer);
    drawn.twist(desc.sequence);
    const winnow_cache_rows_desc* const given = drawn.sized(desc);
    call_on(cache, drawn, [&] {
        if (which == 0) return caches().read(cache, given);
        return which == 1 ? caches().write(cache, given) : caches().import_rows(cache, given);
    });
}

// A stream of a host's, whose callbacks may fail.
struct HostStream {
    std::string bytes;
    uint64_t at = 0, calls_until_failure = UINT64_MAX;

    static int32_t WINNOW_CALL write(void* self, const void* from, uint64_t size) {
        auto& its = *static_cast<HostStream*>(self);
        require(size > 0, "write is given at least a byte");
        if (its.calls_until_failure-- == 0) return 5;
        its.bytes.append(static_cast<const char*>(from), size);
        return 0;
    }
    static int32_t WINNOW_CALL read(void* self, void* to, uint64_t size) {
        auto& its = *static_cast<HostStream*>(self);
        require(size > 0, "read is asked for at least a byte");
        if (its.calls_until_failure-- == 0 || size > its.bytes.size() - its.at) return 5;
        std::memcpy(to, &its.bytes[its.at], size);
        its.at += size;
        return 0;
    }
};

// Paths at which no file can be made.
const char* some_path(Input& input, const MemoryFile& file, std::string& text) {
    static constexpr const char* paths[] = {"", "/", "/nowhere/cache", "/dev/null"};
    if (!input.chance(32)) return nullptr;
    if (input.chance(128)) return input.choice(paths);
    text = file.path(); // a symbolic link, which load follows
    return text.c_str();
}

// Saves, and loads what was saved or something like it.
void cache_state(Input& input, Descriptions& drawn, winnow_cache* cache) {
    static const MemoryFile file;
    HostStream stream;
    std::string path;
    winnow_cache_state_desc desc{};
    desc.struct_size = sizeof desc;
    desc.next = drawn.extensions();
    desc.sequence = input.within(-1, 0);
    desc.path = some_path(input, file, path);
    if (desc.path == nullptr || input.chance(16)) desc.write = HostStream::write;
    desc.user_data = &stream;
    if (input.chance(32)) stream.calls_until_failure = input.byte();
    drawn.twist(desc.flags);
    drawn.twist(desc.sequence);
    const winnow_cache_state_desc* given = drawn.sized(desc);
    bool is_saved = false;
    call_on(cache, drawn, [&] {
        const int32_t status = caches().save(cache, given);
        is_saved = status == WINNOW_OK;
        return status;
    });
    require(!is_saved || desc.path == nullptr, "nothing is saved where no file can be made");
    if (is_saved) {
        uint64_t size = 0;
        require(caches().saved_size(cache, desc.sequence, &size) == WINNOW_OK && size == stream.bytes.size(),
                "as much is saved as was said");
        file.write(stream.bytes);
    }
    for (int changes = input.byte() % 3; changes > 0 && !stream.bytes.empty(); --changes)
        stream.bytes[input.number<uint16_t>() % stream.bytes.size()] = static_cast<char>(input.byte());
    stream.at = 0;
    stream.calls_until_failure = input.chance(32) ? input.byte() : UINT64_MAX;
    desc.write = nullptr;
    desc.path = some_path(input, file, path);
    if (desc.path == nullptr || input.chance(16)) desc.read = HostStream::read;
    if (desc.read != nullptr) desc.size = stream.bytes.size();
    drawn.twist(desc.sequence);
    drawn.twist(desc.size);
    given = drawn.sized(desc);
    call_on(cache, drawn, [&] { return caches().load(cache, given); });
}

void cache(Input& input) {
    static constexpr const char* configs[] = {"h2o:budget=24,sink=2,residual=6,k=q8_0,v=q4_0",
                                              "winnow:budget=20,residual=8,window_from=1/1",
                                              "none:k=f16,v=f32",
                                              "h2o:budget=16,residual=0,cadence=3",
                                              "scissorhands:budget=30,residual=10,center=on",
                                              "window:budget=18,sink=0,residual=0"};
    CacheShape shape{input.within(1, 2), 0, input.within(1, 2), 32, 32, 48, 0};
    shape.heads = shape.kv_heads * input.within(1, 2);
    if (input.chance(64)) shape.cells = 40;
    Descriptions drawn(input, context());
    winnow_cache_desc desc{};
    desc.struct_size = sizeof desc;
    desc.next = drawn.extensions();
    desc.config = input.choice(configs);
    desc.layers = shape.layers;
    desc.q_num_heads = shape.heads;
    desc.kv_num_heads = shape.kv_heads;
    desc.head_size = shape.size;
    desc.context = shape.context;
    desc.cells = shape.cells;
    const bool is_plain = !input.chance(32);
    if (!is_plain) {
        drawn.twist(desc.flags);
        for (int64_t* field : {&desc.layers, &desc.q_num_heads, &desc.kv_num_heads, &desc.head_size, &desc.v_head_size,
                               &desc.context, &desc.cells})
            drawn.twist(*field);
        keep_small(desc.layers, 20, 1 << 16);
        keep_small(desc.cells, 1 << 12, 1 << 30);
    }
    winnow_cache* made = nullptr;
    const int32_t status = caches().create(context(), is_plain ? &desc : drawn.sized(desc), &made);
    require((made != nullptr) == (status == WINNOW_OK), "a cache is there if it was made");
    for (int calls = 0; made != nullptr && is_plain && calls < 4 && !input.is_empty(); ++calls) {
        Descriptions of_call(input, context());
        const uint8_t which = input.byte();
        if (which > 191)
            cache_rows(input, of_call, made, shape);
        else if (which > 151)
            cache_state(input, of_call, made);
        else
            cache_step(input, of_call, made, shape);
    }
    if (made != nullptr) {
        auto* const stats = drawn.output_struct<winnow_cache_stats>();
        caches().stats(made, -1, stats);
    }
    require(caches().destroy(made) == WINNOW_OK, "a cache can be destroyed");
}

// Small, or so large that there is no such memory.
uint64_t buffer_size(Input& input) {
    if (!input.chance(64)) return static_cast<uint64_t>(input.within(0, 300));
    return (uint64_t{1} << 50) + static_cast<uint64_t>(input.hostile()) % (uint64_t{1} << 63);
}

void buffer(Input& input, Descriptions& drawn) {
    const auto memory = std::make_unique<std::byte[]>(300);
    winnow_buffer_desc desc{};
    desc.struct_size = sizeof desc;
    desc.next = drawn.extensions();
    desc.kind = input.byte() % 5;
    desc.size = buffer_size(input);
    if (desc.kind != WINNOW_BUFFER_ALLOCATE || input.chance(16)) desc.host_data = memory.get();
    winnow_buffer* made = nullptr;
    const int32_t status = api().buffer_create(context(), drawn.sized(desc), &made);
    require((made != nullptr) == (status == WINNOW_OK), "a buffer is there if it was made");
    if (made == nullptr || desc.size > 300) {
        require(api().buffer_destroy(made) == WINNOW_OK, "a buffer can be destroyed");
        return;
    }
    for (int calls = 0; calls < 3; ++calls) {
        const auto offset = static_cast<uint64_t>(input.chance(64) ? input.hostile() : input.within(0, 300));
        const auto size = static_cast<uint64_t>(input.chance(64) ? input.hostile() : input.within(0, 300));
        std::vector<std::byte> bytes(size <= desc.size ? size : 1, std::byte{7});
        const bool fits = size <= desc.size && offset <= desc.size - size;
        require((api().buffer_write(made, offset, bytes.data(), size) == WINNOW_OK) == fits, "a write fits or not");
        require((api().buffer_read(made, offset, bytes.data(), size) == WINNOW_OK) == fits, "a read fits or not");
        for (const std::byte each : bytes) require(each == std::byte{7}, "what was written is read");
    }
    require(api().buffer_destroy(made) == WINNOW_OK, "a buffer can be destroyed");
}

void make_context(Input& input, Descriptions& drawn) {
    static constexpr const char* devices[] = {nullptr, "", "cpu", "0", "reference", "gpu", "17", "nobody's"};
    winnow_context_desc desc{};
    desc.struct_size = sizeof desc;
    winnow_opencl_objects objects{}; // an unknown record to the backend that is fuzzed, which has no OpenCL
    objects.extension = {sizeof objects, WINNOW_EXTENSION_OPENCL_OBJECTS, 0, 0, drawn.extensions()};
    desc.next = input.chance(24) ? &objects.extension : objects.extension.next;
    desc.device = input.choice(devices);
    if (input.chance(24)) desc.variants = "kernel=vector";
    if (input.chance(128)) desc.log = [](void*, int32_t, const char* text) { require(text != nullptr, "a log text"); };
    drawn.twist(desc.flags);
    drawn.twist(desc.log_level);
    drawn.twist(desc.max_threads);
    char message[40] = {};
    winnow_context* made = nullptr;
    const int32_t status = api().context_create(drawn.sized(desc), &made, message, sizeof message);
    require((made != nullptr) == (status == WINNOW_OK), "a context is there if it was made");
    require(status == WINNOW_OK || message[0] != 0, "a refusal has a reason");
    if (made != nullptr) {
        api().context_info(made, drawn.output_struct<winnow_device_info>());
        api().context_stats(made, drawn.output_struct<winnow_stats>());
    }
    api().device_info(static_cast<uint32_t>(input.hostile()), drawn.output_struct<winnow_device_info>(), message, 40);
    require(api().context_destroy(made) == WINNOW_OK, "a context can be destroyed");
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static constexpr void (*operations[])(Input&, Descriptions&) = {
        sdpa,     kv_append, kv_requantize, kv_dequantize,
        hadamard, buffer,    make_context,  [](Input& input, Descriptions&) { cache(input); }};
    Input input(data, size);
    const auto operation = input.choice(operations);
    Descriptions drawn(input, context());
    operation(input, drawn);
    return 0;
}
