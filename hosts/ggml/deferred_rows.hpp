// A SET_ROWS into a virtual cache that is deferred: until the attention after it, or until its other half comes, keys
// or values.
#pragma once

#include <cstdint>
#include <vector>

#include "ggml.h"
#include "winnow.h"

namespace winnow::ggml {

class DeferredRows {
public:
    // Throws std::runtime_error where a node does not write whole rows of the root, whatever the rows are.
    static void check(const ggml_tensor* root, const ggml_tensor* node);
    // Throws std::runtime_error where these are not whole rows of the root, one for each token.
    DeferredRows(const ggml_tensor* root, const ggml_tensor* node);

    const ggml_tensor* root() const { return root_; }
    int64_t tokens() const { return static_cast<int64_t>(cells_.size()); }
    int64_t stream_of(int64_t token) const { return cells_[static_cast<size_t>(token)] / cells_of_stream_; }
    // As a stream counts its cells.
    std::vector<int32_t> cells(int64_t first, int64_t count) const;
    // [1, heads, count, size], of each head's elements those from `skip` on; heads are `stride` elements apart.
    winnow_tensor tensor(int64_t first, int64_t count, int64_t heads, int64_t size, int64_t stride, int64_t skip) const;

    bool overlaps(const ggml_tensor* other) const;
    // Copies the rows: the graph's memory is no longer theirs.
    void detach();
    // The copy, if there is one, for as long as an operation reads it.
    std::vector<char> take() { return std::move(own_); }

private:
    const ggml_tensor* root_;
    const char* data_;
    uint32_t type_;
    int64_t element_bytes_, row_bytes_, stride_;
    int64_t cells_of_stream_;
    std::vector<int64_t> cells_; // over all streams
    std::vector<char> own_;
};

} // namespace winnow::ggml
