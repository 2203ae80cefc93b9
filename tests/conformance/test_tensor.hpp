// A tensor in an arena of canaries: laid out, placed and broadcast as a case asks, read back whole, and checked for
// bytes that somebody wrote beside it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sdpa_cases.hpp"
#include "session.hpp"
#include "winnow.h"

namespace winnow::conformance {

using Shape = std::array<int64_t, 4>;
using Index = std::array<int64_t, 4>;

class TestTensor {
public:
    TestTensor() = default; // absent: view() is NULL
    TestTensor(uint32_t type, Shape shape, Layout layout = Layout::packed, Memory memory = Memory::host);

    explicit operator bool() const { return view_.struct_size != 0; }
    uint32_t type() const { return view_.type; }
    Shape shape() const { return {view_.shape[0], view_.shape[1], view_.shape[2], view_.shape[3]}; }
    int64_t count() const { return view_.shape[0] * view_.shape[1] * view_.shape[2] * view_.shape[3]; }

    double get(Index index) const { return load_at(offset_of(index)); }
    void set(Index index, double value);
    const std::byte* element(Index index) const { return &arena_[offset_of(index)]; }
    std::byte* element(Index index) { return &arena_[offset_of(index)]; }
    // Calls f with every index, in order. Not for packed formats, whose rows have no single elements.
    void each(const std::function<void(const Index&)>& f) const;
    // Calls f with every row's first index, in order.
    void each_row(const std::function<void(const Index&)>& f) const;
    size_t row_size() const;
    // A tensor without gaps in host memory with the same rows, bit for bit.
    TestTensor packed_copy() const { return *this ? part({}, shape()) : TestTensor(); }
    // The same of the elements from `first` on, which begins a row.
    TestTensor part(const Index& first, const Shape& shape) const;

    // Hands the arena to a backend: makes the buffer that the placement asks for. Once per tensor.
    void bind(Session& session);
    // The view to put into a description; NULL when absent. Without memory before bind.
    const winnow_tensor* view() const { return *this ? &view_ : nullptr; }
    winnow_tensor* mutable_view() { return &view_; }
    // Brings back what the backend wrote. The work must have been finished.
    void fetch();
    // "" when every byte outside the elements is as bind left it, else where the first change is.
    std::string damage() const;
    // "" when no byte at all has changed since bind.
    std::string change() const;

private:
    size_t offset_of(const Index& index) const;
    double load_at(size_t offset) const;

    std::vector<std::byte> arena_, before_;
    size_t lead_ = 0;   // bytes of the arena before the first element
    size_t origin_ = 0; // bytes of the arena before host_data / data
    winnow_tensor view_{};
    Memory memory_ = Memory::host;
    Session* session_ = nullptr;
    std::shared_ptr<winnow_buffer> buffer_; // destroyed through the session's table
};

} // namespace winnow::conformance
