// Scaled dot product attention in plain double-precision loops: the executable definition of winnow_sdpa_desc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/device.hpp"

namespace winnow::reference {

// What a KV head has stored: row for row a key, its value, and the position of both.
struct Stored {
    std::vector<std::vector<double>> keys, values;
    std::vector<int64_t> positions; // negative: nothing is there
};

// The query heads [first_head, first_head + heads) of a batch entry attend over what their KV head has stored. k, v and
// slot_positions of args are not looked at.
void attend(const Sdpa& args, int64_t batch, int64_t first_head, int64_t heads, const Stored& stored);

// Of a row of Carry: maximum, sum, and the sum of weights times values, in double.
constexpr int64_t carried_floats_of(int64_t v_head_size) { return 2 * (v_head_size + 2); }

std::string validate_sdpa(const Sdpa& args); // the variant's name, or throws Error(UNSUPPORTED)
void sdpa(const Sdpa& args);

} // namespace winnow::reference
