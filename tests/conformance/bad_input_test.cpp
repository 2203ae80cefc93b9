// Bad input of attention and appends: for each argument a wrong value.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "bad_input.hpp"
#include "sdpa_problem.hpp"
#include "session.hpp"
#include "test_tensor.hpp"

namespace winnow::conformance {
namespace {

// A description in which everything is given, and good until a fault is injected.
struct SdpaCall {
    SdpaProblem problem;
    winnow_sdpa_desc desc{};
    winnow_tensor q, k, v, out, mask, slopes, alibi, sink, slots, lengths, offsets, scores,
        stats; // to be damaged freely

    explicit SdpaCall(const SdpaCase& c = shape()) : problem(c, 11) {
        problem.bind(subject());
        desc = problem.desc();
        q = *desc.q;
        k = *desc.k;
        v = *desc.v;
        out = *desc.out;
        mask = *desc.attn_mask;
        slopes = *desc.mask_slopes;
        alibi = *desc.alibi_slopes;
        sink = *desc.head_sink;
        if (desc.slot_positions) slots = *desc.slot_positions;
        if (desc.kv_lengths) lengths = *desc.kv_lengths;
        if (desc.q_offsets) offsets = *desc.q_offsets;
        scores = *desc.scores_out;
        stats = *desc.row_stats;
        desc.q = &q;
        desc.k = &k;
        desc.v = &v;
        desc.out = &out;
        desc.attn_mask = &mask;
        desc.mask_slopes = &slopes;
        desc.alibi_slopes = &alibi;
        desc.head_sink = &sink;
        if (desc.slot_positions) desc.slot_positions = &slots;
        if (desc.kv_lengths) desc.kv_lengths = &lengths;
        if (desc.q_offsets) desc.q_offsets = &offsets;
        desc.scores_out = &scores;
        desc.row_stats = &stats;
    }
    SdpaCall(const SdpaCall&) = delete;
    SdpaCall& operator=(const SdpaCall&) = delete;

    static SdpaCase shape() {
        SdpaCase c;
        c.batch = c.kv_batch = 2;
        c.q_len = 3;
        c.kv_len = 20;
        c.mask_shape = MaskShape::full;
        c.sink = Sink::random;
        c.alibi = c.mask_slopes = c.row_stats = true;
        c.scores_mode = WINNOW_SCORES_BIASED;
        c.memory = Memory::allocated;
        return c;
    }
    void expect_untouched(const std::string& name) {
        problem.fetch();
        EXPECT_EQ(problem.out.change(), "") << name << ": out";
        EXPECT_EQ(problem.scores_out.change(), "") << name << ": scores_out";
        EXPECT_EQ(problem.row_stats.change(), "") << name << ": row_stats";
    }
};

// With slot positions, too; a mask may then have any number of columns.
struct SdpaSlotsCall : SdpaCall {
    SdpaSlotsCall() : SdpaCall(shape_with_slots()) {}
    static SdpaCase shape_with_slots() {
        SdpaCase c = shape();
        c.slots = Slots::with_free;
        return c;
    }
};

struct SdpaLengthsCall : SdpaCall {
    SdpaLengthsCall() : SdpaCall(shape_with_lengths()) {}
    static SdpaCase shape_with_lengths() {
        SdpaCase c = shape();
        c.kv_lengths = {20, 3};
        c.q_offsets = {0, 5};
        return c;
    }
};

// The faults that any tensor can have.
template <typename Call>
void add_tensor_faults(std::vector<Fault<Call>>& faults, const char* argument, winnow_tensor Call::*tensor,
                       bool is_output) {
    auto add = [&](const char* name, std::function<void(winnow_tensor&)> damage, Seen seen = Seen::by_both) {
        faults.push_back({{name, argument}, [=](Call& call) { damage(call.*tensor); }, seen});
    };
    add("struct_size 0", [](winnow_tensor& t) { t.struct_size = 0; });
    add("struct_size too small", [](winnow_tensor& t) { t.struct_size = 40; });
    add("type 0", [](winnow_tensor& t) { t.type = 0; });
    add("type 99", [](winnow_tensor& t) { t.type = 99; });
    add("shape 0", [](winnow_tensor& t) { t.shape[3] = 0; });
    add("shape -1", [](winnow_tensor& t) { t.shape[1] = -1; });
    add("shape 2^62", [](winnow_tensor& t) { t.shape[2] = int64_t{1} << 62; });
    add("stride -4", [](winnow_tensor& t) { t.stride[0] = -4; });
    add("stride 2^62", [](winnow_tensor& t) {
        t.shape[2] = 1000;
        t.stride[2] = int64_t{1} << 62;
    });
    add("gap between elements", [](winnow_tensor& t) { t.stride[3] *= 2; });
    if (is_output) add("two rows in one place", [](winnow_tensor& t) { t.stride[1] = 0; });
    add(
        "no memory", [](winnow_tensor& t) { t.buffer = nullptr; }, Seen::by_execution);
    add("offset beyond the buffer", [](winnow_tensor& t) { t.offset = 1 << 20; });
    add("offset 2^64 - 8", [](winnow_tensor& t) { t.offset = UINT64_MAX - 7; });
    add("last byte beyond the buffer", [](winnow_tensor& t) {
        t.offset += 512;
        t.stride[0] += 1 << 14;
    });
    static int elsewhere;
    add("not a buffer of the context",
        [](winnow_tensor& t) { t.buffer = reinterpret_cast<winnow_buffer*>(&elsewhere); });
    add("a buffer and data", [](winnow_tensor& t) { t.data = &elsewhere; });
    add("data beyond the address space", [](winnow_tensor& t) {
        t.buffer = nullptr;
        t.data = &elsewhere;
        t.offset = UINT64_MAX - 7 - reinterpret_cast<uintptr_t>(&elsewhere);
    });
}

std::vector<Fault<SdpaCall>> sdpa_faults() {
    using C = SdpaCall;
    std::vector<Fault<C>> faults;
    const struct {
        const char* argument;
        winnow_tensor C::*tensor;
        bool is_output;
        uint32_t wrong_type;
    } tensors[] = {{"q", &C::q, false, WINNOW_TYPE_I32},
                   {"k", &C::k, false, WINNOW_TYPE_BOOL},
                   {"v", &C::v, false, WINNOW_TYPE_I64},
                   {"out", &C::out, true, WINNOW_TYPE_I32},
                   {"attn_mask", &C::mask, false, WINNOW_TYPE_I32},
                   {"mask_slopes", &C::slopes, false, WINNOW_TYPE_F16},
                   {"alibi_slopes", &C::alibi, false, WINNOW_TYPE_F16},
                   {"head_sink", &C::sink, false, WINNOW_TYPE_I32},
                   {"scores_out", &C::scores, true, WINNOW_TYPE_F16},
                   {"row_stats", &C::stats, true, WINNOW_TYPE_F16}};
    for (const auto& [argument, tensor, is_output, wrong_type] : tensors) {
        // The slopes and sinks have one row: their strides and middle axes are never used.
        const bool is_per_head = tensor == &C::slopes || tensor == &C::alibi || tensor == &C::sink;
        std::vector<Fault<C>> own;
        add_tensor_faults(own, argument, tensor, is_output);
        for (Fault<C>& fault : own)
            if (!is_per_head || fault.wrong.name != "last byte beyond the buffer") faults.push_back(fault);
        faults.push_back({{"wrong type", argument},
                          [tensor = tensor, wrong_type = wrong_type](C& c) { (c.*tensor).type = wrong_type; }});
    }
    auto add = [&](const char* name, const char* argument, std::function<void(C&)> inject,
                   int32_t status = WINNOW_ERROR_INVALID_ARGUMENT) {
        faults.push_back({{name, argument, status}, std::move(inject)});
    };
    add("NULL", "q", [](C& c) { c.desc.q = nullptr; });
    add("NULL", "k", [](C& c) { c.desc.k = nullptr; });
    add("NULL", "v", [](C& c) { c.desc.v = nullptr; });
    add("NULL", "out", [](C& c) { c.desc.out = nullptr; });
    add("struct_size 0", "desc", [](C& c) { c.desc.struct_size = 0; });
    add("struct_size too small", "desc",
        [](C& c) { c.desc.struct_size = offsetof(winnow_sdpa_desc, v_threshold) - 8; });
    add(
        "unknown flag", "flags", [](C& c) { c.desc.flags = 0x80; }, WINNOW_ERROR_UNSUPPORTED);
    add("batch not a multiple of k's", "k", [](C& c) { c.k.shape[0] = c.v.shape[0] = 3; });
    add("heads not a multiple of k's", "k", [](C& c) { c.k.shape[1] = c.v.shape[1] = 3; });
    add("another head size than q", "k", [](C& c) { c.k.shape[3] = 63; });
    add("another length than k", "v", [](C& c) { c.v.shape[2] = 19; });
    add("other heads than k", "v", [](C& c) { c.v.shape[1] = 1; });
    add("another batch than q", "out", [](C& c) { c.out.shape[0] = 1; });
    add("other heads than q", "out", [](C& c) { c.out.shape[1] = 2; });
    add("another length than q", "out", [](C& c) { c.out.shape[2] = 2; });
    add("another size than v", "out", [](C& c) { c.out.shape[3] = 63; });
    add("too few keys", "attn_mask", [](C& c) { c.mask.shape[3] = 19; });
    add("too few queries", "attn_mask", [](C& c) { c.mask.shape[2] = 2; });
    add("heads do not divide", "attn_mask", [](C& c) { c.mask.shape[1] = 3; });
    add("batch does not divide", "attn_mask", [](C& c) { c.mask.shape[0] = 3; });
    add("slopes without a mask", "mask_slopes", [](C& c) { c.desc.attn_mask = nullptr; });
    add("too few heads", "mask_slopes", [](C& c) { c.slopes.shape[3] = 3; });
    add("too few heads", "alibi_slopes", [](C& c) { c.alibi.shape[3] = 3; });
    add("too few heads", "head_sink", [](C& c) { c.sink.shape[3] = 3; });
    add("too few keys", "scores_out", [](C& c) { c.scores.shape[3] = 19; });
    add("too few heads", "scores_out", [](C& c) { c.scores.shape[1] = 2; });
    add("NULL with a mode", "scores_out", [](C& c) { c.desc.scores_out = nullptr; });
    add("given without a mode", "scores_out", [](C& c) { c.desc.scores_mode = WINNOW_SCORES_NONE; });
    add("mode 5", "scores_mode", [](C& c) { c.desc.scores_mode = 5; });
    add("one number a row", "row_stats", [](C& c) { c.stats.shape[3] = 1; });
    add("too few rows", "row_stats", [](C& c) { c.stats.shape[2] = 2; });
    add("NaN", "scale", [](C& c) { c.desc.scale = std::numeric_limits<float>::quiet_NaN(); });
    add("infinite", "scale", [](C& c) { c.desc.scale = std::numeric_limits<float>::infinity(); });
    add("negative", "softcap", [](C& c) { c.desc.softcap = -1; });
    add("NaN", "softcap", [](C& c) { c.desc.softcap = std::numeric_limits<float>::quiet_NaN(); });
    add("neither 0 nor 1", "is_causal", [](C& c) { c.desc.is_causal = 2; });
    for (const int64_t far : {(int64_t{1} << 48) + 1, -(int64_t{1} << 48) - 1, INT64_MAX, INT64_MIN})
        add("beyond 2^48", "q_offset", [far](C& c) { c.desc.q_offset = far; });
    add("negative", "window_left", [](C& c) { c.desc.window_left = -1; });
    add("negative", "window_right", [](C& c) { c.desc.window_right = -1; });
    faults.push_back({{"the same memory as q", "out"}, [](C& c) {
                          c.out.type = c.q.type;
                          c.out.buffer = c.q.buffer;
                          c.out.offset = c.q.offset;
                      }});
    return faults;
}

std::vector<Fault<SdpaSlotsCall>> sdpa_slots_faults() {
    using C = SdpaSlotsCall;
    std::vector<Fault<C>> faults;
    add_tensor_faults<C>(faults, "slot_positions", &C::slots, false);
    auto add = [&](const char* name, std::function<void(C&)> inject, Seen seen = Seen::by_both) {
        faults.push_back({{name, "slot_positions"}, std::move(inject), seen});
    };
    add("wrong type", [](C& c) { c.slots.type = WINNOW_TYPE_F32; });
    add("another batch than k", [](C& c) { c.slots.shape[0] = 3; });
    add("other heads than k", [](C& c) { c.slots.shape[1] = 3; });
    add("two rows", [](C& c) { c.slots.shape[2] = 2; });
    add("too few keys", [](C& c) { c.slots.shape[3] = 19; });
    add("too many keys", [](C& c) { c.slots.shape[3] = 21; });
    add("the memory of an output", [](C& c) {
        c.stats.buffer = c.slots.buffer;
        c.stats.offset = c.slots.offset;
    });
    return faults;
}

std::vector<Fault<SdpaLengthsCall>> sdpa_lengths_faults() {
    using C = SdpaLengthsCall;
    std::vector<Fault<C>> faults;
    const std::pair<const char*, winnow_tensor C::*> tensors[] = {{"kv_lengths", &C::lengths},
                                                                  {"q_offsets", &C::offsets}};
    for (const auto& [argument, tensor] : tensors) {
        std::vector<Fault<C>> own;
        add_tensor_faults<C>(own, argument, tensor, false);
        for (Fault<C>& fault : own) // one row, whose strides are never used
            if (fault.wrong.name != "last byte beyond the buffer") faults.push_back(fault);
        auto add = [&, argument = argument, tensor = tensor](const char* name, auto damage) {
            faults.push_back({{name, argument}, [=](C& c) { damage(c.*tensor, c); }});
        };
        add("wrong type", [](winnow_tensor& t, C&) { t.type = WINNOW_TYPE_F32; });
        add("too few entries", [](winnow_tensor& t, C&) { t.shape[3] = 1; });
        add("too many entries", [](winnow_tensor& t, C&) { t.shape[3] = 3; });
        add("an entry to a row", [](winnow_tensor& t, C&) {
            t.shape[0] = 2;
            t.shape[3] = 1;
        });
        add("the memory of an output", [](winnow_tensor& t, C& c) {
            t.buffer = c.stats.buffer;
            t.offset = c.stats.offset;
        });
    }
    faults.push_back({{"given with q_offsets", "q_offset"}, [](C& c) { c.desc.q_offset = 1; }});
    return faults;
}

struct AppendCall {
    TestTensor tensors[6];
    winnow_kv_append_desc desc{};
    winnow_tensor k_src, v_src, k_cache, v_cache, k_rows, v_rows;

    AppendCall() {
        const uint32_t f32 = WINNOW_TYPE_F32, f16 = WINNOW_TYPE_F16;
        tensors[0] = TestTensor(f32, {2, 3, 5, 16}, Layout::packed, Memory::allocated);
        tensors[1] = TestTensor(f32, {2, 3, 5, 24}, Layout::packed, Memory::allocated);
        tensors[2] = TestTensor(f16, {2, 3, 9, 16}, Layout::packed, Memory::allocated);
        tensors[3] = TestTensor(f16, {2, 3, 9, 24}, Layout::packed, Memory::allocated);
        tensors[4] = TestTensor(WINNOW_TYPE_I32, {2, 3, 1, 5}, Layout::packed, Memory::allocated);
        tensors[5] = TestTensor(WINNOW_TYPE_I64, {2, 3, 1, 5}, Layout::packed, Memory::allocated);
        for (int which : {0, 1})
            tensors[which].each([&](const Index& at) { tensors[which].set(at, static_cast<double>(at[3])); });
        for (int which : {4, 5})
            tensors[which].each([&](const Index& at) { tensors[which].set(at, static_cast<double>(at[3])); });
        winnow_tensor* const views[] = {&k_src, &v_src, &k_cache, &v_cache, &k_rows, &v_rows};
        for (int which = 0; which < 6; ++which) {
            tensors[which].bind(subject());
            *views[which] = *tensors[which].view();
        }
        desc.struct_size = sizeof desc;
        desc.k_src = &k_src;
        desc.v_src = &v_src;
        desc.k_cache = &k_cache;
        desc.v_cache = &v_cache;
        desc.k_row_indices = &k_rows;
        desc.v_row_indices = &v_rows;
    }
    AppendCall(const AppendCall&) = delete;
    AppendCall& operator=(const AppendCall&) = delete;

    void expect_untouched(const std::string& name) {
        for (int which : {2, 3}) {
            tensors[which].fetch();
            EXPECT_EQ(tensors[which].change(), "") << name << (which == 2 ? ": k_cache" : ": v_cache");
        }
    }
};

std::vector<Fault<AppendCall>> append_faults() {
    using C = AppendCall;
    std::vector<Fault<C>> faults;
    const struct {
        const char* argument;
        winnow_tensor C::*tensor;
        bool is_output;
        uint32_t wrong_type;
    } tensors[] = {
        {"k_src", &C::k_src, false, WINNOW_TYPE_I32},          {"v_src", &C::v_src, false, WINNOW_TYPE_BOOL},
        {"k_cache", &C::k_cache, true, WINNOW_TYPE_I64},       {"v_cache", &C::v_cache, true, WINNOW_TYPE_I32},
        {"k_row_indices", &C::k_rows, false, WINNOW_TYPE_F32}, {"v_row_indices", &C::v_rows, false, WINNOW_TYPE_BOOL}};
    for (const auto& [argument, tensor, is_output, wrong_type] : tensors) {
        add_tensor_faults(faults, argument, tensor, is_output);
        faults.push_back({{"wrong type", argument},
                          [tensor = tensor, wrong_type = wrong_type](C& c) { (c.*tensor).type = wrong_type; }});
    }
    auto add = [&](const char* name, const char* argument, std::function<void(C&)> inject,
                   int32_t status = WINNOW_ERROR_INVALID_ARGUMENT) {
        faults.push_back({{name, argument, status}, std::move(inject)});
    };
    add("struct_size 0", "desc", [](C& c) { c.desc.struct_size = 0; });
    add(
        "unknown flag", "flags", [](C& c) { c.desc.flags = 1; }, WINNOW_ERROR_UNSUPPORTED);
    add("NULL with a cache", "k_src", [](C& c) { c.desc.k_src = nullptr; });
    add("NULL with a cache", "v_src", [](C& c) { c.desc.v_src = nullptr; });
    add("NULL with a source", "k_cache", [](C& c) { c.desc.k_cache = nullptr; });
    add("NULL with a source", "v_cache", [](C& c) { c.desc.v_cache = nullptr; });
    add("NULL", "k_row_indices", [](C& c) { c.desc.k_row_indices = nullptr; });
    add("nothing to append", "k_src",
        [](C& c) { c.desc.k_src = c.desc.v_src = c.desc.k_cache = c.desc.v_cache = nullptr; });
    add("another size than k_src", "k_cache", [](C& c) { c.k_cache.shape[3] = 15; });
    add("other heads than v_src", "v_cache", [](C& c) { c.v_cache.shape[1] = 2; });
    add("another batch than k_src", "k_cache", [](C& c) { c.k_cache.shape[0] = 1; });
    add("too few indices", "k_row_indices", [](C& c) { c.k_rows.shape[3] = 4; });
    add("heads do not divide", "k_row_indices", [](C& c) { c.k_rows.shape[1] = 2; });
    add("batch does not divide", "v_row_indices", [](C& c) { c.v_rows.shape[0] = 3; });
    add("two rows of indices", "v_row_indices", [](C& c) { c.v_rows.shape[2] = 2; });
    return faults;
}

TEST(sdpa_bad_input, the_call_is_good_before_it_is_damaged) {
    SdpaCall call;
    if (!is_offered(call.desc)) GTEST_SKIP() << "NOT OFFERED: the call";
    EXPECT_EQ(subject().run(call.desc), WINNOW_OK) << subject().message();
}

TEST(sdpa_bad_input, is_refused_by_name) {
    for (const auto& fault : sdpa_faults()) expect_refused(fault);
}

TEST(sdpa_bad_input, of_slot_positions_is_refused_by_name) {
    SdpaSlotsCall good;
    good.mask.shape[3] = 19;
    if (!is_offered(good.desc)) GTEST_SKIP() << "NOT OFFERED: the call";
    EXPECT_EQ(subject().run(good.desc), WINNOW_OK) << subject().message();
    for (const auto& fault : sdpa_slots_faults()) expect_refused(fault);
}

TEST(sdpa_bad_input, of_lengths_is_refused_by_name) {
    SdpaLengthsCall good;
    if (!is_offered(good.desc)) GTEST_SKIP() << "NOT OFFERED: the call";
    EXPECT_EQ(subject().run(good.desc), WINNOW_OK) << subject().message();
    for (const auto& fault : sdpa_lengths_faults()) expect_refused(fault);
}

TEST(kv_append_bad_input, the_call_is_good_before_it_is_damaged) {
    AppendCall call;
    if (!is_offered(call.desc)) GTEST_SKIP() << "NOT OFFERED: the call";
    EXPECT_EQ(subject().run(call.desc), WINNOW_OK) << subject().message();
}

TEST(kv_append_bad_input, is_refused_by_name) {
    for (const auto& fault : append_faults()) expect_refused(fault);
}

TEST(sdpa_bad_input, an_absent_description_is_refused) {
    const winnow_api& api = subject().api();
    EXPECT_EQ(api.sdpa(subject().context(), nullptr, nullptr), WINNOW_ERROR_INVALID_ARGUMENT);
    EXPECT_TRUE(names_argument(subject().message(), "desc")) << subject().message();
    EXPECT_EQ(api.supports(subject().context(), WINNOW_OPERATION_SDPA, nullptr, nullptr, 0),
              WINNOW_ERROR_INVALID_ARGUMENT);
    EXPECT_TRUE(names_argument(subject().message(), "desc")) << subject().message();
}

TEST(kv_append_bad_input, an_absent_description_is_refused) {
    const winnow_api& api = subject().api();
    EXPECT_EQ(api.kv_append(subject().context(), nullptr, nullptr), WINNOW_ERROR_INVALID_ARGUMENT);
    EXPECT_TRUE(names_argument(subject().message(), "desc")) << subject().message();
    EXPECT_EQ(api.supports(subject().context(), WINNOW_OPERATION_KV_APPEND, nullptr, nullptr, 0),
              WINNOW_ERROR_INVALID_ARGUMENT);
    EXPECT_TRUE(names_argument(subject().message(), "desc")) << subject().message();
}

TEST(supports_bad_input, an_unknown_operation_is_refused_by_name) {
    SdpaCall call;
    for (const uint32_t operation : {0u, WINNOW_OPERATION_HADAMARD + 1u, UINT32_MAX}) {
        char answer[8] = "as was";
        EXPECT_EQ(subject().api().supports(subject().context(), operation, &call.desc, answer, sizeof answer),
                  WINNOW_ERROR_INVALID_ARGUMENT);
        EXPECT_TRUE(names_argument(subject().message(), "operation")) << subject().message();
        EXPECT_STREQ(answer, "as was");
    }
}

TEST(supports_bad_input, the_answer_is_cut_to_fit) {
    SdpaCall call;
    char answer[8];
    for (size_t size = 0; size < sizeof answer; ++size) {
        std::memset(answer, '#', sizeof answer);
        EXPECT_EQ(subject().api().supports(subject().context(), WINNOW_OPERATION_SDPA, &call.desc, answer, size),
                  WINNOW_OK);
        EXPECT_EQ(answer[size], '#');
        EXPECT_TRUE(size == 0 || std::memchr(answer, 0, size) != nullptr);
    }
}

TEST(context_message, is_of_the_last_failure_and_successes_leave_it) {
    const winnow_api& api = subject().api();
    winnow_context* const context = subject().context();
    winnow_buffer* buffer = nullptr;
    EXPECT_NE(api.buffer_create(context, nullptr, &buffer), WINNOW_OK);
    const char* const kept = api.context_message(context);
    const std::string text = kept;
    EXPECT_TRUE(names_argument(text, "desc")) << text;
    SdpaCall call;
    char answer[64] = "";
    if (!is_offered(call.desc)) GTEST_SKIP() << "NOT OFFERED: the call";
    EXPECT_EQ(subject().run(call.desc), WINNOW_OK);
    EXPECT_EQ(api.supports(context, WINNOW_OPERATION_SDPA, &call.desc, answer, sizeof answer), WINNOW_OK);
    EXPECT_EQ(api.finish(context), WINNOW_OK);
    EXPECT_EQ(api.context_message(context), kept) << "it is valid until the next failure";
    EXPECT_EQ(kept, text);
    EXPECT_NE(api.supports(context, 0, &call.desc, answer, sizeof answer), WINNOW_OK);
    EXPECT_TRUE(names_argument(subject().message(), "operation")) << subject().message();
}

// A refused call leaves no trace: the next good one gives what it gave before.
TEST(sdpa_bad_input, a_good_call_after_many_bad_ones_is_good) {
    const winnow_stats before = subject().stats();
    for (int at = 0; at < 50; ++at) {
        SdpaCall bad;
        bad.k.shape[3] = 63;
        EXPECT_NE(subject().run(bad.desc), WINNOW_OK);
    }
    EXPECT_EQ(subject().stats().sdpa_calls, before.sdpa_calls) << "refused calls are not counted";
    std::string refusal;
    EXPECT_EQ(judge_sdpa(SdpaCall::shape(), 3, &refusal), "");
}

} // namespace
} // namespace winnow::conformance
