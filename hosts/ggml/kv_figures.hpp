// What a virtual cache did, for the log and the report.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attention_profile.hpp"
#include "winnow_cache.h"

namespace winnow::ggml {

// By stream, layer and head the cells whose tokens are resident, ascending.
using ResidentCells = std::vector<std::vector<std::vector<std::vector<int32_t>>>>;

// What a layer holds now, in all streams together.
struct LayerFigures {
    std::string name;
    uint64_t tokens = 0;            // appended to it and not removed, evicted ones too
    std::vector<uint64_t> resident; // in each KV head
};

struct CacheFigures {
    std::string name;   // of its first tensor
    std::string asked;  // the string as it was given
    std::string config; // canonical
    std::string policy, profile_file;
    std::string device;       // in whose memory it lies
    bool has_windows = false; // of a model's layers with sliding windows, which it keeps apart from the others
    int64_t layers = 0, kv_heads = 0, streams = 0, cells = 0;
    // Over its life.
    uint64_t tokens_seen = 0;   // in all streams together
    uint64_t decoded = 0;       // of those, the tokens that WINNOW_DECODE_FROM made steps of their own
    uint64_t restored = 0;      // tokens of states that came back
    uint64_t reused = 0;        // tokens of prefixes that prompts went on from after another end was cut off
    double reused_resident = 0; // how many of those were still resident in a head, on average
    uint64_t evictions = 0, shortfall = 0, eviction_passes = 0, steps = 0;
    uint64_t picks = 0, misses = 0, bytes_read = 0, wait_ns = 0; // of recall
    uint64_t peak_bytes = 0, scratch_bytes = 0;                  // the most of each
    uint64_t full_bytes = 0;                                     // that llama.cpp has reserved
    winnow_cache_stats fullest{};                                // when it held most
    std::vector<uint64_t> resident_of_layers;                    // then, over KV heads and streams
    // Now, or when it ended: of llama-server a stream is a slot, unless its slots share their cells.
    std::vector<winnow_cache_stats> of_streams;
    std::vector<LayerFigures> of_layers; // at the same time
    // Where WINNOW_REPORT_WITH asks for it: of the newest tokens that there were.
    ResidentCells resident;
    std::vector<LayerProfile> profile;
};

// A buffer of caches that are not virtual in spite of the string that asks for it.
struct InPlaceCache {
    std::string name;  // of its first tensor
    std::string asked; // the string as it was given
    size_t tensors = 0, bytes = 0;
    std::string operation, node, reason; // what no virtual cache can carry out
};

// One line for the log.
std::string to_text(const CacheFigures& figures);
std::string to_text(const InPlaceCache& cache);

} // namespace winnow::ggml
