// Arenas of canaries.
#include "test_tensor.hpp"

#include <stdexcept>

#include "elements.hpp"

namespace winnow::conformance {
namespace {

std::byte canary(size_t at) { return static_cast<std::byte>(0x5b + 37 * at); }

std::string changed_at(size_t at, size_t lead) {
    return "byte " + std::to_string(static_cast<int64_t>(at) - static_cast<int64_t>(lead)) +
           " from the first element was written";
}

} // namespace

TestTensor::TestTensor(uint32_t type, Shape shape, Layout layout, Memory memory) : memory_(memory) {
    const int64_t element = is_packed(type) ? 2 : static_cast<int64_t>(element_size(type)); // what gaps are made of
    const bool is_padded = layout == Layout::padded || layout == Layout::permuted_padded;
    std::array<int, 3> outer_to_inner = {0, 1, 2};
    if (layout == Layout::permuted || layout == Layout::permuted_padded) outer_to_inner = {0, 2, 1};
    if (layout == Layout::tokens_outer) outer_to_inner = {2, 0, 1};

    view_.struct_size = sizeof view_;
    view_.type = type;
    view_.stride[3] = is_packed(type) ? 0 : element;
    int64_t step = static_cast<int64_t>(conformance::row_size(type, shape[3])) + (is_padded ? 3 : 0) * element;
    for (int place = 2; place >= 0; --place) {
        const int axis = outer_to_inner[static_cast<size_t>(place)];
        const bool is_repeated =
            (layout == Layout::one_head && axis == 1) || (layout == Layout::one_batch && axis == 0);
        view_.stride[axis] = is_repeated ? 0 : step;
        if (!is_repeated) step *= shape[static_cast<size_t>(axis)];
        if (is_padded) step += 5 * element;
    }
    for (int axis = 0; axis < 4; ++axis) view_.shape[axis] = shape[static_cast<size_t>(axis)];

    // An odd number of elements before the first, part of it before the address that the backend gets to know.
    const size_t margin = 32;
    origin_ = margin + (is_padded ? static_cast<size_t>(element) : 0);
    lead_ = origin_ + (is_padded ? 5 * static_cast<size_t>(element) : 0);
    view_.offset = lead_ - origin_;
    arena_.resize(lead_ + static_cast<size_t>(step) + margin);
    for (size_t at = 0; at < arena_.size(); ++at) arena_[at] = canary(at);
    before_ = arena_;
}

size_t TestTensor::offset_of(const Index& index) const {
    size_t at = lead_;
    for (int axis = 0; axis < 4; ++axis)
        at += static_cast<size_t>(index[static_cast<size_t>(axis)] * view_.stride[axis]);
    return at;
}

double TestTensor::load_at(size_t offset) const { return load_element(view_.type, &arena_[offset]); }

void TestTensor::set(Index index, double value) { store_element(view_.type, &arena_[offset_of(index)], value); }

void TestTensor::each(const std::function<void(const Index&)>& f) const {
    for (int64_t a = 0; a < view_.shape[0]; ++a)
        for (int64_t b = 0; b < view_.shape[1]; ++b)
            for (int64_t c = 0; c < view_.shape[2]; ++c)
                for (int64_t d = 0; d < view_.shape[3]; ++d) f({a, b, c, d});
}

void TestTensor::each_row(const std::function<void(const Index&)>& f) const {
    for (int64_t a = 0; a < view_.shape[0]; ++a)
        for (int64_t b = 0; b < view_.shape[1]; ++b)
            for (int64_t c = 0; c < view_.shape[2]; ++c) f({a, b, c, 0});
}

size_t TestTensor::row_size() const { return conformance::row_size(view_.type, view_.shape[3]); }

TestTensor TestTensor::part(const Index& first, const Shape& shape) const {
    TestTensor copy(type(), shape);
    copy.each_row([&](const Index& row) {
        const Index from = {first[0] + row[0], first[1] + row[1], first[2] + row[2], 0};
        std::memcpy(copy.element(row), element(from), copy.row_size());
    });
    return copy;
}

void TestTensor::bind(Session& session) {
    if (!*this) return;
    session_ = &session;
    before_ = arena_;
    std::byte* const first = arena_.data() + origin_;
    const uint64_t size = arena_.size() - origin_;
    if (memory_ == Memory::host) {
        view_.data = first;
        return;
    }
    winnow_buffer_desc desc{};
    desc.struct_size = sizeof desc;
    desc.kind = memory_ == Memory::allocated ? WINNOW_BUFFER_ALLOCATE : WINNOW_BUFFER_IMPORT_HOST;
    desc.size = size;
    desc.host_data = memory_ == Memory::imported ? first : nullptr;
    winnow_buffer* buffer = nullptr;
    const winnow_api& api = session.api();
    if (api.buffer_create(session.context(), &desc, &buffer) != WINNOW_OK)
        throw std::runtime_error("buffer_create: " + session.message());
    buffer_ = std::shared_ptr<winnow_buffer>(buffer, [&api](winnow_buffer* it) { api.buffer_destroy(it); });
    view_.buffer = buffer;
    if (api.buffer_write(buffer, 0, first, size) != WINNOW_OK)
        throw std::runtime_error("buffer_write: " + session.message());
}

void TestTensor::fetch() {
    if (!buffer_) return;
    std::byte* const first = arena_.data() + origin_;
    if (session_->api().buffer_read(buffer_.get(), 0, first, arena_.size() - origin_) != WINNOW_OK)
        throw std::runtime_error("buffer_read: " + session_->message());
}

std::string TestTensor::damage() const {
    if (!*this) return "";
    std::vector<bool> is_ours(arena_.size(), false);
    each_row([&](const Index& row) {
        std::fill_n(is_ours.begin() + static_cast<std::ptrdiff_t>(offset_of(row)), row_size(), true);
    });
    for (size_t at = 0; at < arena_.size(); ++at)
        if (!is_ours[at] && arena_[at] != before_[at]) return changed_at(at, lead_);
    return "";
}

std::string TestTensor::change() const {
    for (size_t at = 0; at < arena_.size(); ++at)
        if (arena_[at] != before_[at]) return changed_at(at, lead_);
    return "";
}

} // namespace winnow::conformance
