// The slot map of a cold segment whose rows lie in a file: neighbouring slots mostly have neighbouring token ids, so
// that some runs say which token's row each slot has, and no map of all tokens stays in memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/slots.hpp"

namespace winnow::cache {

class ColdMap {
public:
    // Entries as slot maps have them, [heads][slots]. All slots from `first` on are as these say, free behind them.
    void set(std::span<const int32_t> entries, int64_t heads, int64_t first = 0);
    // The first maps() of `heads` maps, each of so many slots: one where all heads have the same.
    std::vector<int32_t> entries(int64_t slots) const;
    std::vector<int32_t> entries(int64_t heads, int64_t slots, int64_t first = 0) const; // of each head, from a slot on
    int64_t maps() const { return static_cast<int64_t>(heads_.size()); }
    int64_t end() const; // one past the last slot with a row
    // If in every head the rows fill the same first slots without a gap: how many; else -1.
    int64_t in_front() const;

    friend bool operator==(const ColdMap&, const ColdMap&) = default;

    void edit(SlotEdit::Action action, int64_t begin, int64_t end, int64_t delta);

private:
    struct Run {
        int32_t slot, count, entry; // of the first; those of the next ones follow
        friend bool operator==(const Run&, const Run&) = default;
    };
    using Runs = std::vector<Run>;
    static void add(Runs& runs, const Run& run);
    static void fill(const Runs& runs, int64_t first, std::span<int32_t> entries);
    void join_heads();

    std::vector<Runs> heads_ = std::vector<Runs>(1); // one where all heads have the same
};

} // namespace winnow::cache
