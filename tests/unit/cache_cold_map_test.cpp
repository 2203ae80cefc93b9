// ColdMap against plain slot maps: random rows, edits and ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "cache/recall/cold_map.hpp"

namespace winnow::cache {
namespace {

constexpr int64_t heads = 3, slots = 60;
using Map = std::vector<int32_t>; // [heads][slots]
using Random = std::mt19937_64;

int64_t below(Random& random, int64_t end) { return static_cast<int64_t>(random() % static_cast<uint64_t>(end)); }

// Runs of neighbouring token ids with free slots between them; the same in all heads, or not.
Map random_map(Random& random, bool agree) {
    Map map(heads * slots, free_slot);
    int32_t token = 0;
    for (int64_t head = 0; head < heads; ++head)
        for (int64_t slot = 0; slot < slots; ++slot) {
            if (agree && head > 0) {
                map[static_cast<size_t>(head * slots + slot)] = map[static_cast<size_t>(slot)];
                continue;
            }
            if (below(random, 8) == 0) token += 1 + static_cast<int32_t>(below(random, 5));
            if (below(random, 6) == 0) continue;
            map[static_cast<size_t>(head * slots + slot)] = token++;
        }
    return map;
}

void edit(Map& map, SlotEdit::Action action, int64_t begin, int64_t end, int64_t delta) {
    for (int32_t& entry : map) {
        const int32_t token = entry & ~anchor_flag;
        if (entry < 0 || token < begin || token >= end) continue;
        if (action == SlotEdit::Action::free) entry = free_slot;
        if (action == SlotEdit::Action::shift) entry += static_cast<int32_t>(delta);
        if (action == SlotEdit::Action::anchor) entry |= anchor_flag;
    }
}

TEST(cache_cold_map, is_as_a_plain_slot_map) {
    Random random(1);
    for (int round = 0; round < 300; ++round) {
        const bool agree = round % 2 == 0;
        Map plain = random_map(random, agree);
        ColdMap map;
        map.set(plain, heads);
        EXPECT_EQ(map.maps(), agree ? 1 : heads);
        for (int change = 0; change < 12; ++change) {
            const int64_t begin = below(random, 200), end = begin + below(random, 40);
            const auto action = static_cast<SlotEdit::Action>(below(random, 3));
            edit(plain, action, begin, end, 1000);
            map.edit(action, begin, end, 1000);
            ASSERT_EQ(map.entries(heads, slots), plain) << "round " << round << ", change " << change;
            const int64_t first = below(random, slots), count = 1 + below(random, slots - first);
            Map part;
            for (int64_t head = 0; head < heads; ++head)
                part.insert(part.end(), plain.begin() + head * slots + first,
                            plain.begin() + head * slots + first + count);
            ASSERT_EQ(map.entries(heads, count, first), part) << "slots " << first << " to " << first + count;
        }
        // What an eviction pass appends replaces the end.
        const int64_t first = below(random, slots);
        const Map other = random_map(random, agree);
        Map appended;
        for (int64_t head = 0; head < heads; ++head)
            for (int64_t slot = first; slot < slots; ++slot) {
                plain[static_cast<size_t>(head * slots + slot)] = other[static_cast<size_t>(head * slots + slot)];
                appended.push_back(other[static_cast<size_t>(head * slots + slot)]);
            }
        map.set(appended, heads, first);
        ASSERT_EQ(map.entries(heads, slots), plain) << "round " << round << ", from slot " << first;
        int64_t last = 0;
        for (size_t i = 0; i < plain.size(); ++i)
            if (plain[i] >= 0) last = std::max(last, static_cast<int64_t>(i) % slots + 1);
        EXPECT_EQ(map.end(), last);
    }
}

TEST(cache_cold_map, knows_rows_that_lie_in_front) {
    ColdMap map;
    EXPECT_EQ(map.in_front(), 0);
    map.set(Map{4, 5, 6, 9, -1, 4, 5, 6, 9, -1}, 2);
    EXPECT_EQ(map.in_front(), 4);
    map.edit(SlotEdit::Action::free, 9, 10, 0);
    EXPECT_EQ(map.in_front(), 3);
    map.edit(SlotEdit::Action::free, 4, 5, 0);
    EXPECT_EQ(map.in_front(), -1);
    map.set(Map{4, 5, 4, -1}, 2);
    EXPECT_EQ(map.in_front(), -1) << "of one head one more";
}

} // namespace
} // namespace winnow::cache
