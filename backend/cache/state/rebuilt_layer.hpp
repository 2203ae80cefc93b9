// A layer as it was when its rows were exported.
#pragma once

#include <utility>
#include <vector>

#include "cache/state/incoming_rows.hpp"

namespace winnow::cache {

// Gives rows the bytes that they were exported with, where they lie in a packed segment of their format, and their
// importance. slots: as find_slots has them. has_its_means: the layer has the ledger's means, or neither has any.
void put_back(CacheState& cache, Layer& layer, const IncomingRows& rows, const std::vector<std::vector<int32_t>>& slots,
              bool has_its_means);

// A layer as rows with a ledger describe it, for one that has no tokens.
class RebuiltLayer {
public:
    // Throws Error where the ledger says what no layer of this cache can be, so far as it would do harm here.
    RebuiltLayer(CacheState& cache, const CacheRows& args, const std::vector<int32_t>& token_ids,
                 const IncomingRows& rows);
    // Whether rows and ledger are of the same tokens: a host may have left some out, or renumbered them.
    bool is_possible() const { return is_possible_; }
    void run(); // throws Error, and replaces nothing, where it says what no layer can be

private:
    void fill(Layer& layer);
    void check_facts() const;
    void check_tokens();
    void check_slots(int64_t head);
    bool fits_slot(int64_t head, int64_t token, int64_t slot) const;
    int64_t ledger_slots(Part part) const; // of a packed segment
    bool has_possible_slots();
    // The segment of a ledger's slot, and its first slot there.
    std::pair<size_t, int64_t> segment_of(int64_t slot) const;
    int64_t slots_of(Part part) const; // as they are going to be
    std::vector<std::byte> state_bytes();
    bool has_bytes(Part part, int64_t head, int64_t token) const; // of a row that is packed there
    void append(const Segment& segment, Geometry::Heads heads, const std::vector<int32_t>& slots);
    void enter(const Rows& packed, Geometry::Heads heads, const std::vector<int32_t>& slots) const;

    CacheState& cache_;
    const Geometry& geometry_;
    const CacheRows& args_;
    std::vector<int32_t> token_ids_;
    const IncomingRows& rows_;
    const Ledger& ledger_;
    TokenIndex::Saved index_;
    int64_t packed_slots_ = 0;                // of all packed segments
    std::vector<std::vector<int32_t>> slots_; // of each segment of the configuration, [head][token]
    std::vector<int64_t> in_packed_;          // of each head
    bool is_possible_ = true;
};

} // namespace winnow::cache
