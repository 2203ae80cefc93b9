// What a virtual cache did, for the log and the report.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attention_profile.hpp"

namespace winnow::ggml {

// By stream, layer and head the cells whose tokens are resident, ascending.
using ResidentCells = std::vector<std::vector<std::vector<std::vector<int32_t>>>>;

// What one stream has when it is asked: of llama-server that is a slot, unless its slots share their cells.
struct StreamFigures {
    uint64_t tokens = 0, resident_slots = 0, bytes = 0;
    uint64_t evictions = 0; // since it was empty, or became a copy
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
    uint64_t peak_bytes = 0, scratch_bytes = 0; // the most of each
    // When it held most.
    uint64_t resident_slots = 0; // over layers and KV heads
    uint64_t tokens = 0;
    uint64_t bytes = 0, original_bytes = 0, budget_bytes = 0, full_bytes = 0;
    uint64_t k_bytes = 0, v_bytes = 0, dense_bytes = 0, slot_map_bytes = 0, importance_bytes = 0, state_bytes = 0;
    uint64_t signature_bytes = 0, codebook_bytes = 0, cold_bytes = 0, picks = 0, misses = 0; // of recall
    uint64_t disk_bytes = 0, bytes_read = 0, wait_ns = 0;                                    // of recall with a folder
    std::vector<uint64_t> resident_of_layers; // over KV heads and streams
    std::vector<StreamFigures> of_streams;    // now, or when it ended
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
