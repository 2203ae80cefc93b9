// The slots of a segment (device/slots.hpp) one by one: what the map says of them, their importance, and their rows.
#pragma once

#include <cstdint>
#include <vector>

#include "device/slots.hpp"

namespace winnow::reference {

// An entry of a slot map, a list of slots or of token ids: I32 [1, heads, 1, any].
int32_t entry(const Tensor& entries, int64_t head, int64_t at);
void set_entry(const Tensor& entries, int64_t head, int64_t at, int32_t value);

inline bool is_live(int32_t entry) { return entry >= 0; }
inline int32_t token_id_of(int32_t entry) { return entry & ~anchor_flag; } // of a live one

// 0 where the segment keeps none; setting it is then without effect.
double importance_of(const Segment& segment, int64_t head, int64_t slot);
void set_importance(const Segment& at, int64_t head, int64_t slot, double importance);

// The row that a slot stands for: what is stored there, plus the mean. The mean may be absent.
std::vector<double> slot_row(const Tensor& rows, const Tensor& mean, int64_t head, int64_t slot);
void set_slot_row(const Tensor& rows, const Tensor& mean, int64_t head, int64_t slot, std::vector<double> row,
                  Norm norm);

// Row, map entry and importance as they are, from a slot to a slot of the same formats.
void copy_slot(const Segment& from, int64_t from_slot, const Segment& to, int64_t to_slot, int64_t head);

HeadState head_state(const Tensor& states, int64_t head);
void set_head_state(const Tensor& states, int64_t head, const HeadState& state);

} // namespace winnow::reference
