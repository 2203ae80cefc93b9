// The ledger of a layer: what exact rows do not tell of their tokens and of the layer. It has the tokens' places, their
// importances, and the layer's counters, sums and means; row records carry its bytes in their room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace winnow::cache {

struct Ledger {
    // The counters of the layer's token index and of its memory.
    struct Facts {
        int64_t next = 0, moved = 0, newest = 0;
        int64_t packed_slots = 0, most_in_packed = 0, free_listed = 0, outputs = 0;
        friend bool operator==(const Facts&, const Facts&) = default;
    };
    struct Token {
        int64_t position = -1; // -1: the layer has no such token
        int64_t place = 0; // 0: neither sink nor newest; 1 + its sink's slot; 1 + sinks + its index among the newest
    };

    uint64_t digest = 0; // of the configuration, the shape and the layer
    Facts facts;
    std::vector<int64_t> lower_slots; // of packed segments below the first
    std::vector<Token> tokens;
    // [head][token]: the slot, or -1; those of the dense segment come first, then those of packed ones
    std::vector<std::vector<int64_t>> slots;
    std::vector<std::vector<float>> importance;    // [head]: of the tokens that it holds; empty where none is kept
    std::vector<std::vector<int32_t>> free_listed; // [head]: the slots that the last eviction pass free-listed
    std::vector<float> output_sum, k_mean, v_mean;

    // Takes the tokens of another one of the same layer, as it was at the same time; false where it is not.
    bool append(const Ledger& other);
};

// The bytes of a ledger, with their length before them and a check behind them.
std::vector<std::byte> to_bytes(const Ledger& ledger);
// How many bytes the ledger has whose first ledger_head bytes are these; 0 where no ledger begins with them.
inline constexpr size_t ledger_head = 8;
size_t ledger_size(std::span<const std::byte> bytes);
// Reads the ledger of a layer with so many KV heads and at most so many tokens. Nothing where rows that carried a part
// of it are missing, or tokens; throws Error where it is damaged.
std::optional<Ledger> to_ledger(std::span<const std::byte> bytes, int64_t heads, int64_t tokens);

} // namespace winnow::cache
