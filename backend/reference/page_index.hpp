// The bytes of signatures, and the frames of hot slots (device/pages.hpp).
#pragma once

#include <vector>

#include "device/pages.hpp"

namespace winnow::reference {

struct Signature {
    std::vector<bool> signs; // of each element: whether it is not negative
    double factor = 0;
};

void set_signature(const PageIndex& index, int64_t head, int64_t page, const Signature& signature);
Signature signature_of(const PageIndex& index, int64_t head, int64_t page, int64_t elements);

void free_frame(const PageIndex& index, const Segment& hot, int64_t head, int64_t frame);

} // namespace winnow::reference
