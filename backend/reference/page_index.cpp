// Signatures, bit by bit and byte by byte.
#include "reference/page_index.hpp"

#include "reference/element.hpp"
#include "reference/slot_rows.hpp"
#include "reference/view.hpp"

namespace winnow::reference {
namespace {

// The byte `run` of a page's signature.
std::byte* signature_byte(const PageIndex& index, int64_t head, int64_t page, int64_t run) {
    return address(index.signatures, 0, head, page / block_pages, 0) + run * block_pages + page % block_pages;
}

} // namespace

void set_signs(const PageIndex& index, int64_t head, int64_t page, const std::vector<bool>& signs) {
    for (size_t run = 0; run < signs.size() / 8; ++run) {
        int bits = 0;
        for (size_t bit = 0; bit < 8; ++bit) bits |= signs[8 * run + bit] << bit;
        *signature_byte(index, head, page, static_cast<int64_t>(run)) = static_cast<std::byte>(bits);
    }
}

std::vector<bool> signs_of(const PageIndex& index, int64_t head, int64_t page, int64_t elements) {
    std::vector<bool> signs;
    for (int64_t e = 0; e < elements; ++e)
        signs.push_back((std::to_integer<int>(*signature_byte(index, head, page, e / 8)) >> e % 8 & 1) != 0);
    return signs;
}

std::vector<double> center_of(const PageIndex& index, int64_t head) {
    std::vector<double> center;
    for (int64_t at = 0; at < index.centers.shape[3]; ++at)
        center.push_back(load(Type::f16, address(index.centers, 0, head, 0, at)));
    return center;
}

void set_codes(const PageIndex& index, int64_t head, int64_t page, const std::vector<int>& codes) {
    for (size_t run = 0; run < codes.size(); ++run)
        *signature_byte(index, head, page, static_cast<int64_t>(run)) = static_cast<std::byte>(codes[run]);
}

std::vector<int> codes_of(const PageIndex& index, int64_t head, int64_t page, int64_t elements) {
    std::vector<int> codes;
    for (int64_t run = 0; run < elements / centroid_elements; ++run)
        codes.push_back(std::to_integer<int>(*signature_byte(index, head, page, run)));
    return codes;
}

HeadCodebooks::HeadCodebooks(const PageIndex& index, int64_t head, int64_t elements)
    : elements_(static_cast<size_t>(elements)) {
    for (int64_t at = 0; at < codebook_numbers(elements); ++at)
        numbers_.push_back(load(Type::f16, address(index.codebooks, 0, head, 0, at)));
}

std::vector<double> HeadCodebooks::times(CodebookMatrix matrix, const std::vector<double>& x) const {
    const size_t first = matrix == CodebookMatrix::of_keys ? 0 : elements_ * elements_;
    std::vector<double> y(elements_, 0);
    for (size_t from = 0; from < elements_; ++from)
        for (size_t to = 0; to < elements_; ++to) y[to] += numbers_[first + from * elements_ + to] * x[from];
    return y;
}

double HeadCodebooks::centroid(size_t element, int code) const {
    return numbers_[2 * elements_ * elements_ + element * static_cast<size_t>(centroids) + static_cast<size_t>(code)];
}

void free_frame(const PageIndex& index, const Segment& hot, int64_t head, int64_t frame) {
    set_entry(index.frames, head, frame, -1);
    for (int64_t i = 0; i < index.page_slots; ++i) set_entry(hot.tokens, head, frame * index.page_slots + i, free_slot);
}

} // namespace winnow::reference
