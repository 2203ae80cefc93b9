// A cache with recall, small enough that most of its rows are cold.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <system_error>
#include <vector>

#include "session.hpp"

namespace winnow::faults {

constexpr int64_t layers = 2, kv_heads = 2, group = 2, context_tokens = 256;

inline std::string text_of(int error) { return std::generic_category().message(error); }

// On the reference backend, which has no threads: a child process can have one, too. Without a bonus for hot pages,
// which are none any more after a failure, the same pages are picked again.
class RecallCache {
public:
    explicit RecallCache(const std::string& tier, const std::string& keys = "", const std::string& bonus = "0")
        : RecallCache(32, "winnow:budget=24000B,k=q8_0,v=q4_0,bonus=" + bonus + ",recall=" + tier + keys) {}
    RecallCache(int64_t head_size, const std::string& config, const char* backend = WINNOW_REFERENCE_BACKEND)
        : session_(backend), size_(head_size) {
        EXPECT_EQ(session_.create(true), WINNOW_OK) << session_.message();
        winnow_cache_desc desc{};
        desc.struct_size = sizeof desc;
        desc.config = config.c_str();
        desc.layers = layers;
        desc.q_num_heads = kv_heads * group;
        desc.kv_num_heads = kv_heads;
        desc.head_size = size_;
        desc.context = context_tokens;
        desc.max_sequences = 2;
        EXPECT_EQ(caches().create(session_.context(), &desc, &cache_), WINNOW_OK) << message();
    }

    // What is left of the output of a step where it succeeds. The last `others` of the tokens are sequence 1's.
    int32_t step(int64_t layer, int64_t tokens, uint64_t seed, std::string& output, int64_t others = 0) {
        HostTensor k(WINNOW_TYPE_F32, kv_heads, tokens, size_), v(WINNOW_TYPE_F32, kv_heads, tokens, size_),
            q(WINNOW_TYPE_F32, kv_heads * group, tokens, size_), out(WINNOW_TYPE_F32, kv_heads * group, tokens, size_);
        k.fill(seed);
        v.fill(seed + 1);
        q.fill(seed + 2);
        winnow_cache_step_desc desc{};
        desc.struct_size = sizeof desc;
        desc.layer = layer;
        std::array<winnow_cache_entry, 2> entries{};
        for (winnow_cache_entry& each : entries) each.struct_size = sizeof each;
        entries[0].count = entries[1].first = tokens - others;
        entries[1].count = others;
        entries[1].sequence = 1;
        desc.entries = entries.data();
        desc.entry_count = others > 0 ? 2 : 1;
        desc.entry_stride = sizeof entries[0];
        desc.k = k.get();
        desc.v = v.get();
        desc.q = q.get();
        desc.out = out.get();
        const int32_t status = caches().step(cache_, &desc, nullptr); // which, if it fails, uses nothing any more
        if (status == WINNOW_OK && api().finish(session_.context()) != WINNOW_OK) ADD_FAILURE() << message();
        output = out.digest();
        values_ = out.floats();
        return status;
    }

    // All rows and positions, and how many pages were picked.
    std::string portrait() {
        std::string text;
        HostTensor tokens(WINNOW_TYPE_I32, 1, 1, context_tokens);
        tokens.count_from(0);
        for (int64_t sequence = 0; sequence < 2; ++sequence)
            for (int64_t layer = 0; layer < layers; ++layer) {
                HostTensor k(WINNOW_TYPE_F32, kv_heads, context_tokens, size_),
                    v(WINNOW_TYPE_F32, kv_heads, context_tokens, size_);
                winnow_cache_rows_desc desc{};
                desc.struct_size = sizeof desc;
                desc.layer = layer;
                desc.sequence = sequence;
                desc.tokens = tokens.get();
                desc.k = k.get();
                desc.v = v.get();
                EXPECT_EQ(caches().read(cache_, &desc), WINNOW_OK) << message();
                text += k.digest() + " " + v.digest() + " ";
            }
        text += std::to_string(stats().picks);
        return text;
    }

    int32_t exchange(int64_t layer, const std::string& what) {
        HostTensor tokens(WINNOW_TYPE_I32, 1, 1, 60), k(WINNOW_TYPE_F32, kv_heads, 60, size_),
            v(WINNOW_TYPE_F32, kv_heads, 60, size_);
        tokens.count_from(0);
        k.fill(77);
        v.fill(78);
        winnow_cache_rows_desc desc{};
        desc.struct_size = sizeof desc;
        desc.layer = layer;
        desc.k = k.get();
        desc.v = v.get();
        if (what == "write") {
            desc.tokens = tokens.get();
            return caches().write(cache_, &desc);
        }
        desc.sequence = 1;
        return caches().import_rows(cache_, &desc);
    }

    // Exact rows of sequence 0's first tokens come behind what sequence 1 has.
    int32_t append_exact(int64_t layer, int64_t count) {
        HostTensor tokens(WINNOW_TYPE_I32, 1, 1, count), k(WINNOW_TYPE_F16, kv_heads, count, size_),
            v(WINNOW_TYPE_F16, kv_heads, count, size_);
        tokens.count_from(0);
        winnow_cache_rows_desc desc{};
        desc.struct_size = sizeof desc;
        desc.layer = layer;
        desc.tokens = tokens.get();
        desc.k = k.get();
        desc.v = v.get();
        const int32_t status = caches().export_rows(cache_, &desc);
        if (status != WINNOW_OK) return status;
        desc.tokens = nullptr;
        desc.sequence = 1;
        return caches().import_rows(cache_, &desc);
    }

    winnow_cache_stats stats() {
        winnow_cache_stats stats{};
        stats.struct_size = sizeof stats;
        EXPECT_EQ(caches().stats(cache_, -1, &stats), WINNOW_OK) << message();
        return stats;
    }

    const std::vector<std::string>& logged() const { return session_.logged; }
    const std::vector<float>& values() const { return values_; } // the output of the last step
    const winnow_api& api() const { return session_.api(); }
    const winnow_cache_api& caches() const { return session_.caches(); }
    winnow_cache* get() { return cache_; }
    std::string message() const { return session_.message(); }

private:
    Session session_;
    int64_t size_;
    std::vector<float> values_;
    winnow_cache* cache_ = nullptr;
};

} // namespace winnow::faults
