// Steps of a virtual cache: an attention of ggml's, and the rows that waited for it, slice by slice.
#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "ggml_api.hpp"
#include "tensors.hpp"
#include "virtual_cache.hpp"

namespace winnow::ggml {

namespace {

constexpr int64_t least_taken_back = 32; // tokens; fewer are drafts that were refused

// Whether a view of keys or values has the root's cells and streams as they lie, beginning with element `skip` of a
// row.
bool is_whole_view(const ggml_tensor* view, const ggml_tensor* root, int64_t skip) {
    const auto row = int64_t(root->nb[1]), stream = int64_t(root->nb[2]), element = int64_t(root->nb[0]);
    return view->type == root->type && int64_t(view->nb[1]) == row && view->ne[1] <= root->ne[1] &&
           (view->ne[3] == 1 || int64_t(view->nb[3]) == stream) &&
           (offset_in(root, view->data) - skip * element) % stream == 0 &&
           skip + (view->ne[2] - 1) * int64_t(view->nb[2]) / element + view->ne[0] <= root->ne[0];
}

// The node that computes a mask; NULL for one that the host has filled in, or a copy of such a one. Only those tell who
// is dead: a cell that is hidden from a batch's last token is taken for empty.
const ggml_tensor* computes(const ggml_tensor* mask) {
    for (const ggml_tensor* at = mask; at->op != GGML_OP_NONE; at = at->src[0]) {
        switch (at->op) {
        case GGML_OP_CPY:
        case GGML_OP_CONT:
        case GGML_OP_VIEW:
        case GGML_OP_RESHAPE: break;
        default: return at;
        }
    }
    return nullptr;
}

// HeadSlice `index` of the outermost axis.
winnow_tensor slice_of(const winnow_tensor& all, int64_t index) {
    winnow_tensor one = all;
    one.data = static_cast<char*>(all.data) + (index % all.shape[0]) * all.stride[0];
    one.shape[0] = 1;
    return one;
}

} // namespace

void VirtualCache::check(const Layer& layer, const ggml_tensor* node, const winnow_sdpa_desc& sdpa) const {
    const ggml_tensor *k = node->src[1], *v = node->src[2];
    const ggml_tensor* v_root = layer.roots.v ? layer.roots.v : layer.roots.k;
    if (root_of(k) != layer.roots.k || root_of(v) != v_root || !is_whole_view(k, layer.roots.k, 0) ||
        !is_whole_view(v, v_root, v_skip_) || k->ne[1] != v->ne[1] || k->ne[2] != v->ne[2] || k->ne[3] != v->ne[3]) {
        throw std::runtime_error(with_name(node, std::string("keys or values are other parts of ") +
                                                     layer.roots.k->name +
                                                     " than whole rows of cells from the first on"));
    }
    if (sdpa.q->shape[1] != shape_.q_num_heads || sdpa.k->shape[1] != shape_.kv_num_heads ||
        sdpa.k->shape[3] != shape_.head_size || sdpa.v->shape[3] != shape_.v_head_size) {
        throw std::runtime_error(
            with_name(node, std::to_string(sdpa.q->shape[1]) + " query heads, keys and values of " +
                                std::to_string(sdpa.k->shape[1]) + " heads of " + std::to_string(sdpa.k->shape[3]) +
                                " and " + std::to_string(sdpa.v->shape[3]) + "; expected as in the first layer, " +
                                std::to_string(shape_.q_num_heads) + ", " + std::to_string(shape_.kv_num_heads) + ", " +
                                std::to_string(shape_.head_size) + " and " + std::to_string(shape_.v_head_size)));
    }
    const ggml_tensor* mask = node->src[3];
    if (!mask || mask->ne[2] != 1 || mask->ne[0] < k->ne[1] || (mask->ne[3] != 1 && mask->ne[3] != k->ne[3])) {
        throw std::runtime_error(with_name(node, "expected a mask with a column for each cell"));
    }
    if (node->src[0]->ne[3] != k->ne[3]) {
        throw std::runtime_error(with_name(node, "queries of " + std::to_string(node->src[0]->ne[3]) +
                                                     " streams over keys of " + std::to_string(k->ne[3])));
    }
    if (const ggml_tensor* computed = computes(mask)) {
        throw std::runtime_error(with_name(node, std::string("the mask is computed (") + ggml().op_name(computed->op) +
                                                     " " + computed->name +
                                                     "): what one token does not see, the next may"));
    }
}

void VirtualCache::judge(const ggml_tensor* node, const SdpaNode& sdpa) {
    take_shape(node, sdpa.desc());
    check(layers_[layer_of_.at(root_of(node->src[1]))], node, sdpa.desc());
}

bool VirtualCache::is_aligned(const Layer& layer, int64_t first_stream, int64_t slices, int64_t tokens) const {
    if (layer.k->tokens() != slices * tokens) return false;
    for (int64_t i = 0; i < slices * tokens; ++i) {
        if (layer.k->stream_of(i) != first_stream + i / tokens) return false;
    }
    return true;
}

VirtualCache::Rows VirtualCache::rows_of(const Layer& layer, int64_t first, int64_t count) {
    const std::vector<int32_t> cells = layer.k->cells(first, count);
    if (layer.v && layer.v->cells(first, count) != cells) {
        throw std::runtime_error(std::string(layer.roots.v->name) + ": values for other cells than the keys");
    }
    const char* bytes = reinterpret_cast<const char*>(cells.data());
    staging_.emplace_back(bytes, bytes + cells.size() * sizeof(int32_t));
    Rows rows;
    rows.cells = flat(WINNOW_TYPE_I32, sizeof(int32_t), staging_.back().data(), count);
    rows.k = layer.k->tensor(first, count, shape_.kv_num_heads, shape_.head_size, shape_.head_size, 0);
    rows.v = layer.v
                 ? layer.v->tensor(first, count, shape_.kv_num_heads, shape_.v_head_size, shape_.v_head_size, 0)
                 : layer.k->tensor(first, count, shape_.kv_num_heads, shape_.v_head_size, shape_.head_size, v_skip_);
    return rows;
}

// Whether the layer is the first that has the stream's new batch.
bool VirtualCache::open(Layer& layer, int64_t number) {
    Stream& stream = streams_[size_t(number)];
    uint64_t& seen = layer.opened[size_t(number)];
    const bool is_first = seen == stream.opened;
    if (is_first) ++stream.opened;
    seen = stream.opened;
    return is_first;
}

void VirtualCache::prepare(int64_t number, std::span<const int32_t> cells, const ggml_tensor* mask, int64_t slice) {
    Stream& stream = streams_[size_t(number)];
    const MaskSlice view(mask, slice);
    const CellTracker::Opening opening = stream.tracker.open(cells, view);
    apply(opening, number);
    if (opening.taken_back >= least_taken_back) note_reuse(number, cells, view);
    stream.sees_ahead = CellTracker::sees_ahead(cells, view);
    stream.mask = nullptr;
    if (mask->ne[0] >= figures_.cells) return;
    stream.mask = mask->data;
    widen_mask(stream.wide_mask, mask, slice, int64_t(cells.size()));
}

// A prompt that goes on from a prefix, behind which another end was cut off: what the prefix's tokens were evicted for
// may be gone. Counts what of it is still resident.
void VirtualCache::note_reuse(int64_t number, std::span<const int32_t> cells, const MaskSlice& mask) {
    std::vector<bool> is_prefix(size_t(figures_.cells), false);
    uint64_t tokens = 0;
    for (int64_t cell = 0; cell < mask.columns() && cell < figures_.cells; ++cell) {
        const bool is_own = std::find(cells.begin(), cells.end(), int32_t(cell)) != cells.end();
        if (is_own || !mask.sees(0, cell)) continue;
        is_prefix[size_t(cell)] = true;
        ++tokens;
    }
    if (tokens == 0) return;
    uint64_t resident = 0;
    std::vector<int32_t> its(size_t(figures_.cells));
    for (int64_t layer = 0; layer < figures_.layers; ++layer) {
        for (int64_t head = 0; head < figures_.kv_heads; ++head) {
            uint64_t count = 0;
            expect(context_.api().cache_positions(cache_, number, layer, head, its.data(), its.size(), &count));
            for (uint64_t i = 0; i < count; ++i) resident += is_prefix[size_t(its[i])];
        }
    }
    figures_.reused += tokens;
    figures_.reused_resident += double(resident) / double(figures_.layers * figures_.kv_heads);
}

void VirtualCache::apply(const CellTracker::Opening& opening, int64_t stream) {
    for (const CellRange& range : opening.dead) {
        expect(context_.api().cache_remove(cache_, stream, range.begin, range.end));
    }
    if (!opening.anchors.empty() &&
        context_.api().cache_anchor(cache_, stream, opening.anchors.data(), opening.anchors.size()) != WINNOW_OK) {
        log_line(GGML_LOG_LEVEL_WARN, "%s: the first tokens of a sequence may be evicted: %s", figures_.name.c_str(),
                 context_.message());
    }
}

// Cells beyond the mask's columns are seen by nobody.
void VirtualCache::widen_mask(std::vector<char>& wide, const ggml_tensor* mask, int64_t slice, int64_t tokens) const {
    const MaskSlice view(mask, slice);
    const size_t element = view.element_bytes(), row = size_t(figures_.cells) * element;
    const size_t size = size_t(tokens) * row;
    if (wide.capacity() > 2 * size) wide = std::vector<char>(); // a long prompt's is not kept
    wide.resize(size);
    for (int64_t token = 0; token < tokens; ++token) {
        char* to = &wide[size_t(token) * row];
        const size_t known = size_t(view.columns()) * element;
        std::memcpy(to, view.row(token), known);
        view.hide(to + known, to + row);
    }
}

void VirtualCache::attend_slice(Layer& layer, const ggml_tensor* node, const winnow_sdpa_desc& sdpa,
                                const HeadSlice& slice) {
    const ggml_tensor* mask = node->src[3];
    Stream& stream = streams_[size_t(slice.stream)];
    winnow_cache_step_desc step{};
    step.struct_size = sizeof step;
    step.layer = number_of(layer);
    step.sequence = slice.stream;
    step.scale = sdpa.scale;
    step.softcap = sdpa.softcap;
    step.head_sink = sdpa.head_sink;
    step.mask_slopes = sdpa.mask_slopes;
    const winnow_tensor q = slice_of(*sdpa.q, slice.index), out = slice_of(*sdpa.out, slice.index);
    step.q = &q;
    step.out = &out;
    Rows rows{};
    if (layer.k) {
        rows = rows_of(layer, slice.index * slice.tokens, slice.tokens);
        const auto* cells = static_cast<const int32_t*>(rows.cells.data);
        if (open(layer, slice.stream)) {
            prepare(slice.stream, {cells, size_t(slice.tokens)}, mask, slice.index);
        }
        step.k = &rows.k;
        step.v = &rows.v;
        step.cells = &rows.cells;
    }
    winnow_tensor wide = slice_of(*sdpa.attn_mask, slice.index);
    if (mask->ne[0] < figures_.cells) {
        const void* data = stream.wide_mask.data();
        if (!layer.k || stream.mask != mask->data) {
            staging_.emplace_back();
            widen_mask(staging_.back(), mask, slice.index, slice.tokens);
            data = staging_.back().data();
        }
        const int64_t element = int64_t(mask->nb[0]);
        wide = rows_over(
            wide.type, data,
            {1, slice.tokens, figures_.cells, element, figures_.cells * element, slice.tokens * figures_.cells});
    }
    step.attn_mask = &wide;
    if (step.k && stream.sees_ahead) { // all of them have to be there before the first attends
        winnow_cache_step_desc append{};
        append.struct_size = sizeof append;
        append.layer = step.layer;
        append.sequence = step.sequence;
        append.k = step.k;
        append.v = step.v;
        append.cells = step.cells;
        expect(context_.api().cache_step(cache_, &append, nullptr));
        step.k = step.v = step.cells = nullptr;
    }
    if (profile_) step.scores_out = profile_->scores(slice.tokens);
    expect(context_.api().cache_step(cache_, &step, nullptr));
    if (profile_) {
        expect(context_.api().finish(context_.get()));
        profile_->add(step.layer, slice.stream);
    }
}

void VirtualCache::attend(const ggml_tensor* node, const SdpaNode& sdpa, Counters& counters) {
    const ggml_tensor* k = node->src[1];
    Layer& layer = layers_[layer_of_.at(root_of(k))];
    take_shape(node, sdpa.desc());
    if (!cache_) create();
    restore_pending();
    check(layer, node, sdpa.desc());
    if (layer.waits() && !layer.is_whole()) {
        throw std::runtime_error(with_name(node, "keys without values, or values without keys"));
    }
    const int64_t first = offset_in(layer.roots.k, k->data) / int64_t(layer.roots.k->nb[2]);
    const int64_t slices = k->ne[3], tokens = node->src[0]->ne[1];
    if (layer.k && !is_aligned(layer, first, slices, tokens)) append_all(layer, counters);
    // The allocator of the graph may have given the rows' memory, which is read, to the result.
    if (layer.k && layer.k->overlaps(node)) layer.k->detach();
    if (layer.v && layer.v->overlaps(node)) layer.v->detach();
    for (int64_t i = 0; i < slices; ++i) attend_slice(layer, node, sdpa.desc(), {i, first + i, tokens});
    counters.count_attention(node);
    if (layer.k) finish_rows(layer, counters);
}

void VirtualCache::finish_rows(Layer& layer, Counters& counters) {
    counters.count_append(layer.k->root(), layer.v ? layer.v->root() : nullptr);
    staging_.push_back(layer.k->take());
    if (layer.v) staging_.push_back(layer.v->take());
    layer.k.reset();
    layer.v.reset();
}

void VirtualCache::append_all(Layer& layer, Counters& counters) {
    const WaitingRows& keys = *layer.k;
    std::map<int64_t, std::vector<int32_t>> cells; // of each stream
    for (int64_t i = 0; i < keys.tokens(); ++i) cells[keys.stream_of(i)].push_back(keys.cells(i, 1).front());
    for (const auto& [stream, its] : cells) {
        if (open(layer, stream)) streams_[size_t(stream)].tracker.append(its);
    }
    for (int64_t first = 0, end = 0; first < keys.tokens(); first = end) {
        while (end < keys.tokens() && keys.stream_of(end) == keys.stream_of(first)) ++end;
        const Rows rows = rows_of(layer, first, end - first);
        winnow_cache_step_desc step{};
        step.struct_size = sizeof step;
        step.layer = number_of(layer);
        step.sequence = keys.stream_of(first);
        step.k = &rows.k;
        step.v = &rows.v;
        step.cells = &rows.cells;
        expect(context_.api().cache_step(cache_, &step, nullptr));
    }
    finish_rows(layer, counters);
}

} // namespace winnow::ggml
