// Which appends wait, and for which attention.
#include "opencl/deferred_append.hpp"

#include <algorithm>
#include <cstring>

#include "opencl/runtime_state.hpp"

namespace winnow::opencl {
namespace {

constexpr uint64_t bytes_of_rows = 32 << 10; // of a side's token; longer rows are launched at once
constexpr uint64_t place_of_v = bytes_of_rows, place_of_index = 2 * bytes_of_rows;

bool is_one_token(const AppendRows& side) {
    return side && !is_packed(side.cache.type) && side.src.shape[0] == 1 && side.src.shape[2] == 1 &&
           side.cache.shape[0] == 1 && side.row_indices.shape[1] == 1;
}

bool is_host_memory(const AppendRows& side) {
    return side.src.buffer == nullptr && side.cache.buffer == nullptr && side.row_indices.buffer == nullptr;
}

uint64_t row_size(const AppendRows& side) { return row_bytes(side.src.type, side.src.shape[3]); }

int64_t index_of(const AppendRows& side) {
    return load_index(side.row_indices.type, side.row_indices.data + side.row_indices.offset);
}

// The side over a dense copy of its token at `to`.
AppendRows copied(const AppendRows& side, std::byte* to) {
    AppendRows result = side;
    const auto bytes = static_cast<int64_t>(row_size(side));
    for (int64_t head = 0; head < side.src.shape[1]; ++head)
        std::memcpy(to + head * bytes, side.src.data + side.src.offset + head * side.src.stride[1],
                    static_cast<size_t>(bytes));
    result.src.data = to;
    result.src.offset = 0;
    result.src.stride = {side.src.shape[1] * bytes, bytes, bytes, side.src.stride[3]};
    return result;
}

bool is_same_place(const Tensor& a, const Tensor& b) {
    return a.buffer == b.buffer && a.data + a.offset == b.data + b.offset && a.type == b.type;
}

bool overlap(const Tensor& a, const Tensor& b) {
    if (!a || !b || a.buffer != b.buffer) return false;
    const std::byte *first = a.data + a.offset, *second = b.data + b.offset;
    return first < second + b.extent() && second < first + a.extent();
}

// Whether `attended` are the cache's rows: head by head, or, as ggml has them, all heads of a token in one.
bool is_cache_of(const AppendRows& side, const Tensor& attended) {
    const Tensor& cache = side.cache;
    if (!is_same_place(cache, attended) || cache.stride[2] != attended.stride[2]) return false;
    const int64_t heads = attended.shape[1], size = attended.shape[3];
    if (cache.shape[1] == heads && cache.shape[3] == size) return heads == 1 || cache.stride[1] == attended.stride[1];
    return cache.shape[1] == 1 && cache.shape[3] == heads * size &&
           attended.stride[1] == static_cast<int64_t>(row_bytes(cache.type, size));
}

} // namespace

bool DeferredAppend::defer(RuntimeState& state, const KvAppend& args) {
    if (state.owner == nullptr || !state.workers.is_divided() || !state.is_host_memory() || state.is_pending)
        return false;
    for (const AppendRows* side : {&args.k, &args.v})
        if (!is_one_token(*side) || !is_host_memory(*side) ||
            static_cast<uint64_t>(side->src.shape[1]) * row_size(*side) > bytes_of_rows)
            return false;
    const int64_t slot = index_of(args.k);
    if (slot != index_of(args.v) || slot < 0 || slot >= std::min(args.k.cache.shape[2], args.v.cache.shape[2]))
        return false;
    if (copies_ == nullptr) copies_ = std::make_unique<HostPages>(place_of_index + sizeof(int64_t));
    std::byte* copies = static_cast<std::byte*>(copies_->data());
    args_ = {copied(args.k, copies), copied(args.v, copies + place_of_v)};
    std::memcpy(copies + place_of_index, &slot, sizeof slot);
    for (AppendRows* side : {&args_.k, &args_.v}) {
        Tensor& index = side->row_indices;
        index.type = Type::i64;
        index.data = copies + place_of_index;
        index.offset = 0;
        index.shape = {1, 1, 1, 1};
        index.stride = {sizeof slot, sizeof slot, sizeof slot, sizeof slot};
    }
    slot_ = slot;
    give_back(state);
    return true;
}

bool DeferredAppend::can_ride(const Sdpa& args, const SdpaKernel& kernel) const {
    if (!is_deferred_ || kernel.slots || kernel.lengths || kernel.variant->entry_point != "sdpa_vector") return false;
    const Tensor &k = args.segments.front().k, &v = args.segments.front().v;
    if (args.batch() != 1 || k.shape[0] != 1 || args.q_len() != 1 || args.group() > kernel.rows) return false;
    if (slot_ >= args.kv_len() || !is_cache_of(args_.k, k) || !is_cache_of(args_.v, v)) return false;
    for (const Tensor* read : {&args.q, &args.mask, &args.mask_slopes, &args.alibi_slopes, &args.head_sink})
        if (overlap(*read, k) || overlap(*read, v)) return false;
    return !overlap(k, v);
}

void DeferredAppend::take(RuntimeState& state) {
    is_deferred_ = false;
    state.is_pending = false; // what is deferred waits for nothing
    --state.launches;         // the launch counts
}

void DeferredAppend::give_back(RuntimeState& state) {
    is_deferred_ = true;
    state.is_pending = true;
    ++state.launches; // of the call that is over: by what is counted another one knows whether it has launched anything
}

} // namespace winnow::opencl
