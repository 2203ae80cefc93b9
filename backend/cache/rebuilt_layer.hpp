// A layer as it was when its rows were exported.
#pragma once

#include <vector>

#include "cache/incoming_rows.hpp"

namespace winnow::cache {

// Gives rows the bytes that they were exported with, where they lie in a packed segment of their format, and their
// importance. slots: as find_slots has them. has_its_means: the layer has the ledger's means, or neither has any.
void put_back(CacheState& cache, Layer& layer, const IncomingRows& rows, const std::vector<std::vector<int32_t>>& slots,
              bool has_its_means);

// A layer as rows with a ledger describe it, for one that has no tokens.
class RebuiltLayer {
public:
    // Throws Error where the ledger says what no layer of this cache can be.
    RebuiltLayer(CacheState& cache, const CacheRows& args, const std::vector<int32_t>& token_ids,
                 const IncomingRows& rows);
    // Whether rows and ledger are of the same tokens: a host may have left some out, or renumbered them.
    bool is_possible() const { return is_possible_; }
    void run();

private:
    void fill(Layer& layer);
    void check_facts() const;
    void check_tokens();
    void check_slots(int64_t head);
    void check_listed(int64_t head, const std::vector<bool>& taken) const;
    bool fits_slot(int64_t head, int64_t token, int64_t slot) const;
    int64_t packed_slots() const;
    Growth memory();
    std::vector<std::byte> state_bytes();
    std::span<const std::byte> packed_key(int64_t head, int64_t token) const;
    std::span<const std::byte> packed_value(int64_t head, int64_t token) const;
    void append(const Segment& segment, size_t which);
    void enter(const Rows& packed, size_t which) const;

    CacheState& cache_;
    const Geometry& geometry_;
    const CacheRows& args_;
    std::vector<int32_t> token_ids_;
    const IncomingRows& rows_;
    const Ledger& ledger_;
    TokenIndex::Saved index_;
    std::vector<std::vector<int32_t>> slots_; // of the segments
    std::vector<int64_t> in_packed_;          // of each head
    bool is_possible_ = true;
};

} // namespace winnow::cache
