// Selects the victims: the definition that select kernels are held to, in plain loops over one KV head's slots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "device/description.hpp"

namespace winnow {

struct Slot {
    int64_t position = 0;
    float importance = 0;
    int64_t queries_seen = 0;
    float value_distance = 0; // |v - mean output|
    bool anchor = false;      // named by the host
    double prediction = 0;    // of the head's network, where the ranking asks for it
};

// What an eviction pass has to free, and up to how much it may.
struct Demand {
    int64_t required = 0;
    int64_t allowed = 0;
    friend bool operator==(const Demand&, const Demand&) = default;
};

// For a head with `occupied` slots of a sequence of length `seen`, at most the context, and `incoming` tokens until the
// next eviction pass; those that the context has no room for do not count.
Demand demand(const Description& description, int64_t occupied, int64_t seen, int64_t incoming);

struct Selection {
    std::vector<size_t> victims; // indices of slots, in the order in which they are evicted
    int64_t shortfall = 0;       // how many of `required` could not be evicted: the rest is protected
};

// Evicts tokens of one sequence of length `seen` (no position is that large), in KV head `head`:
//  1. tokens that are not protected, within the eligible positions, and below the threshold, until `allowed` is
//  reached;
//  2. if that is less than `required`, any others that are not protected.
// Each of them by the ranking, the smallest first; ties by position, the older first, then by the slot's index. An
// importance or a rank that is NaN is the least there is. A protected token is never evicted.
Selection select(const Description& description, std::span<const Slot> slots, int64_t seen, int64_t head,
                 const Demand& wanted);

// Which `count` of these slots of one segment go down to the next: those that are not protected before those that are,
// among them the smallest by the ranking, or, by_age, the oldest; ties as in select.
std::vector<size_t> select_to_move(const Description& description, std::span<const Slot> slots, int64_t seen,
                                   int64_t head, int64_t count, bool by_age);

bool is_protected(const Description& description, const Slot& slot, int64_t seen);

} // namespace winnow
