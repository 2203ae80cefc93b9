// Loads and stores.
#include "reference/slot_rows.hpp"

#include <cstring>

#include "reference/element.hpp"
#include "reference/row.hpp"
#include "reference/view.hpp"

namespace winnow::reference {

int32_t entry(const Tensor& entries, int64_t head, int64_t at) {
    int32_t value = 0;
    std::memcpy(&value, address(entries, 0, head, 0, at), sizeof value);
    return value;
}

void set_entry(const Tensor& entries, int64_t head, int64_t at, int32_t value) {
    std::memcpy(address(entries, 0, head, 0, at), &value, sizeof value);
}

double importance_of(const Segment& segment, int64_t head, int64_t slot) {
    return segment.importance ? load(segment.importance.type, address(segment.importance, 0, head, 0, slot)) : 0;
}

void set_importance(const Segment& at, int64_t head, int64_t slot, double importance) {
    if (at.importance) store(at.importance.type, address(at.importance, 0, head, 0, slot), importance);
}

std::vector<double> slot_row(const Tensor& rows, const Tensor& mean, int64_t head, int64_t slot) {
    std::vector<double> row(static_cast<size_t>(rows.shape[3]));
    decode_row(rows.type, row_address(rows, 0, head, slot), rows.shape[3], row.data());
    if (!mean) return row;
    for (size_t d = 0; d < row.size(); ++d)
        row[d] += load(mean.type, address(mean, 0, head, 0, static_cast<int64_t>(d)));
    return row;
}

void set_slot_row(const Tensor& rows, const Tensor& mean, int64_t head, int64_t slot, std::vector<double> row,
                  Norm norm) {
    for (size_t d = 0; mean && d < row.size(); ++d)
        row[d] -= load(mean.type, address(mean, 0, head, 0, static_cast<int64_t>(d)));
    encode_row(rows.type, row_address(rows, 0, head, slot), rows.shape[3], row.data(), norm);
}

void copy_slot(const Segment& from, int64_t from_slot, const Segment& to, int64_t to_slot, int64_t head) {
    for (const auto& rows : {&Segment::k, &Segment::v})
        std::memmove(row_address(to.*rows, 0, head, to_slot), row_address(from.*rows, 0, head, from_slot),
                     row_bytes((from.*rows).type, (from.*rows).shape[3]));
    set_entry(to.tokens, head, to_slot, entry(from.tokens, head, from_slot));
    set_importance(to, head, to_slot, importance_of(from, head, from_slot));
}

HeadState head_state(const Tensor& states, int64_t head) {
    HeadState state;
    static_assert(sizeof state == 4 * sizeof(int32_t));
    std::memcpy(&state, row_address(states, 0, head, 0), sizeof state);
    return state;
}

void set_head_state(const Tensor& states, int64_t head, const HeadState& state) {
    std::memcpy(row_address(states, 0, head, 0), &state, sizeof state);
}

} // namespace winnow::reference
