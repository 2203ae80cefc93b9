// The bytes of signatures, and the frames of hot slots (device/pages.hpp).
#pragma once

#include <vector>

#include "device/pages.hpp"

namespace winnow::reference {

// With centers: of each element whether r is not negative.
void set_signs(const PageIndex& index, int64_t head, int64_t page, const std::vector<bool>& signs);
std::vector<bool> signs_of(const PageIndex& index, int64_t head, int64_t page, int64_t elements);

// c, and f behind it.
std::vector<double> center_of(const PageIndex& index, int64_t head);

// With codebooks: a code of each.
void set_codes(const PageIndex& index, int64_t head, int64_t page, const std::vector<int>& codes);
std::vector<int> codes_of(const PageIndex& index, int64_t head, int64_t page, int64_t elements);

enum class CodebookMatrix : uint8_t { of_keys, of_queries }; // A, B

// The codebooks of a KV head.
class HeadCodebooks {
public:
    HeadCodebooks(const PageIndex& index, int64_t head, int64_t elements);
    std::vector<double> times(CodebookMatrix matrix, const std::vector<double>& x) const;
    // An element of a centroid of the codebook that the element is of.
    double centroid(size_t element, int code) const;

private:
    size_t elements_;
    std::vector<double> numbers_;
};

void free_frame(const PageIndex& index, const Segment& hot, int64_t head, int64_t frame);

} // namespace winnow::reference
