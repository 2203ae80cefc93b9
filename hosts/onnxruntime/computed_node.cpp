// Every size is checked here, because the runtime does not check inputs of a fused node against each other.
#include "computed_node.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "rotation.hpp"

namespace winnow::ort {

// What a Run brings to the node.
struct ComputedNode::Call {
    int64_t batch = 0, tokens = 0; // of the tensors; a row of the batch may use fewer tokens
    int64_t total = 0;             // total_sequence_length
    bool is_first = false;         // all rows begin at position 0, padded on the right
    std::vector<RowSpan> rows;
    std::vector<int64_t> positions; // for the rotation, of each token by row

    const void *q = nullptr, *k = nullptr, *v = nullptr;
    uint32_t qk_type = 0;                             // F32 once they are rotated
    int64_t q_stride = 0, k_stride = 0, v_stride = 0; // elements from token to token
    int64_t past_length = 0;                          // of the tensor past_key
    std::vector<float> rotated_q, rotated_k, sinks;   // gone with the call: a long prompt's are large
};

namespace {

std::string shape_text(const std::vector<int64_t>& shape) {
    std::string text = "[";
    for (size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
    return text + "]";
}

void expect_shape(const char* name, const std::vector<int64_t>& shape, const std::vector<int64_t>& expected) {
    if (shape != expected)
        throw Error(std::string(name) + " has the shape " + shape_text(shape) + ", expected " + shape_text(expected));
}

std::vector<int64_t> places_in(const std::vector<std::string>& names, const std::vector<Value>& fused) {
    std::vector<int64_t> places;
    places.reserve(names.size());
    for (const std::string& name : names) {
        const auto found =
            std::find_if(fused.begin(), fused.end(), [&](const Value& value) { return value.name == name; });
        places.push_back(name.empty() || found == fused.end() ? -1 : found - fused.begin());
    }
    return places;
}

// Strides are in bytes.
winnow_tensor tensor_of(const void* data, uint32_t type, const std::array<int64_t, 4>& shape,
                        const std::array<int64_t, 4>& stride) {
    winnow_tensor tensor{};
    tensor.struct_size = sizeof tensor;
    tensor.type = type;
    tensor.data = const_cast<void*>(data); // inputs are not written
    std::copy(shape.begin(), shape.end(), tensor.shape);
    std::copy(stride.begin(), stride.end(), tensor.stride);
    return tensor;
}

void* mutable_data(OrtValue* value) {
    void* data = nullptr;
    check(api().GetTensorMutableData(value, &data));
    return data;
}

} // namespace

ComputedNode::ComputedNode(const Runtime& runtime, AttentionNode node, int64_t layer, const Node& fused,
                           SessionCache& cache)
    : OrtNodeComputeInfo{}, runtime_(runtime), node_(std::move(node)), layer_(layer), cache_(cache),
      input_places_(places_in(node_.inputs, fused.inputs)), output_places_(places_in(node_.outputs, fused.outputs)) {
    ort_version_supported = ORT_API_VERSION;
    CreateState = [](OrtNodeComputeInfo* self, OrtNodeComputeContext*, void** state) noexcept -> OrtStatus* {
        *state = self;
        return nullptr;
    };
    Compute = [](OrtNodeComputeInfo* self, void*, OrtKernelContext* context) noexcept {
        ComputedNode& node = *static_cast<ComputedNode*>(self);
        return guarded(node.runtime_, [&] { node.compute(context); });
    };
    ReleaseState = [](OrtNodeComputeInfo*, void*) noexcept {};
}

ComputedNode::Tensor ComputedNode::input(const OrtKernelContext* context, InputPlace place) const {
    Tensor tensor;
    const int64_t index = input_places_[place];
    if (index < 0) return tensor;
    const OrtValue* value = nullptr;
    check(api().KernelContext_GetInput(context, static_cast<size_t>(index), &value));
    if (!value) return tensor;
    OrtTensorTypeAndShapeInfo* info = nullptr;
    check(api().GetTensorTypeAndShape(value, &info));
    size_t rank = 0;
    OrtStatus* status = api().GetDimensionsCount(info, &rank);
    tensor.shape.resize(rank);
    if (!status) status = api().GetDimensions(info, tensor.shape.data(), rank);
    api().ReleaseTensorTypeAndShapeInfo(info);
    check(status);
    check(api().GetTensorData(value, &tensor.data));
    return tensor;
}

ComputedNode::Call ComputedNode::read_call(const OrtKernelContext* context) const {
    Call call;
    const Tensor query = input(context, query_input);
    const int64_t q_size = node_.q_num_heads * node_.head_size, kv_size = node_.kv_num_heads * node_.head_size;
    if (query.shape.size() != 3 || query.shape[0] < 1 || query.shape[1] < 1)
        throw Error("query has the shape " + shape_text(query.shape) + ", expected a batch of tokens, none empty");
    call.batch = query.shape[0];
    call.tokens = query.shape[1];
    call.q = query.data;
    call.qk_type = node_.type;
    if (node_.is_packed) {
        call.q_stride = call.k_stride = call.v_stride = q_size + 2 * kv_size;
        call.k = static_cast<const char*>(call.q) + q_size * element();
        call.v = static_cast<const char*>(call.k) + kv_size * element();
    } else {
        const Tensor key = input(context, key_input), value = input(context, value_input);
        expect_shape("key", key.shape, {call.batch, call.tokens, kv_size});
        expect_shape("value", value.shape, {call.batch, call.tokens, kv_size});
        call.q_stride = q_size;
        call.k_stride = call.v_stride = kv_size;
        call.k = key.data;
        call.v = value.data;
    }
    expect_shape("query", query.shape, {call.batch, call.tokens, call.q_stride});
    const Tensor past = input(context, past_key_input);
    if (past.shape.size() == 4) call.past_length = past.shape[2];
    read_rows(call, context);
    return call;
}

// seqlens_k has each row's tokens with the new ones, less one. A first prompt has its rows padded on the right; other
// rows are whole.
void ComputedNode::read_rows(Call& call, const OrtKernelContext* context) const {
    const Tensor seqlens = input(context, seqlens_input), total = input(context, total_input);
    if (total.data == nullptr || !std::all_of(total.shape.begin(), total.shape.end(), [](int64_t n) { return n == 1; }))
        throw Error("total_sequence_length has the shape " + shape_text(total.shape) + ", expected one element");
    call.total = *static_cast<const int32_t*>(total.data);
    if (seqlens.shape != std::vector{call.batch, int64_t{1}}) expect_shape("seqlens_k", seqlens.shape, {call.batch});
    call.is_first = call.total == call.tokens;
    if (!call.is_first && call.batch > 1 && call.tokens > 1)
        throw Error("a batch of " + std::to_string(call.batch) + " rows goes on with " + std::to_string(call.tokens) +
                    " tokens in each, expected one: only rows of a first prompt may be padded, and nothing tells "
                    "whether these are");
    for (int64_t i = 0; i < call.batch; ++i) {
        const int64_t length = int64_t{1} + static_cast<const int32_t*>(seqlens.data)[i];
        const RowSpan row = call.is_first ? RowSpan{0, length} : RowSpan{length - call.tokens, call.tokens};
        if (row.past < 0 || row.count < 1 || length > call.total)
            throw Error("seqlens_k[" + std::to_string(i) + "] is " + std::to_string(length - 1) +
                        ", with total_sequence_length " + std::to_string(call.total) + " and " +
                        std::to_string(call.tokens) + " new tokens; expected " +
                        std::to_string(call.is_first ? 0 : call.tokens - 1) + " to " + std::to_string(call.total - 1));
        call.rows.push_back(row);
    }
}

void ComputedNode::read_positions(Call& call, const OrtKernelContext* context) const {
    const Tensor given = input(context, positions_input);
    const int64_t* ids = static_cast<const int64_t*>(given.data);
    const int64_t count = call.batch * call.tokens;
    if (ids) expect_shape("position_ids", given.shape, {call.batch, call.tokens});
    for (int64_t i = 0; i < count; ++i) {
        const int64_t row = i / call.tokens, token = i % call.tokens;
        const int64_t own = call.rows[static_cast<size_t>(row)].past + token;
        // Of a first prompt the operator reads the first number alone. Unsigned, because a sum may overflow.
        const auto in_first = [&] {
            return static_cast<int64_t>(static_cast<uint64_t>(ids[0]) + static_cast<uint64_t>(token));
        };
        call.positions.push_back(!ids ? own : call.is_first ? in_first() : ids[i]);
    }
}

void ComputedNode::rotate_rows(Call& call, const OrtKernelContext* context) const {
    const Tensor cos = input(context, cos_input), sin = input(context, sin_input);
    if (cos.shape.size() != 2 || cos.shape[1] < 1 || 2 * cos.shape[1] > node_.head_size)
        throw Error("cos_cache has the shape " + shape_text(cos.shape) +
                    ", expected positions, each with at most half as many elements as a head has");
    expect_shape("sin_cache", sin.shape, cos.shape);
    read_positions(call, context);
    for (const int64_t position : call.positions)
        if (position < 0 || position >= cos.shape[0])
            throw Error("a token has the position " + std::to_string(position) + ", expected 0 to " +
                        std::to_string(cos.shape[0] - 1) + ", for which cos_cache has rows");
    const RotationTables tables = {cos.data, sin.data, is_half(), cos.shape[0], cos.shape[1]};
    const auto rotate_heads = [&](const void* data, int64_t heads, int64_t stride, std::vector<float>& out) {
        rotate({data, is_half(), call.batch, call.tokens, heads, node_.head_size, stride}, tables, call.positions,
               node_.is_interleaved, out);
    };
    rotate_heads(call.q, node_.q_num_heads, call.q_stride, call.rotated_q);
    rotate_heads(call.k, node_.kv_num_heads, call.k_stride, call.rotated_k);
    call.q = call.rotated_q.data();
    call.k = call.rotated_k.data();
    call.qk_type = WINNOW_TYPE_F32;
    call.q_stride = node_.q_num_heads * node_.head_size;
    call.k_stride = node_.kv_num_heads * node_.head_size;
}

// The logit without a value of each head; a smooth softmax is one of 0.
void ComputedNode::read_sinks(Call& call, const OrtKernelContext* context) const {
    const Tensor given = input(context, sink_input);
    if (!given.data && !node_.has_smooth_softmax) return;
    call.sinks.assign(static_cast<size_t>(node_.q_num_heads), 0.0f);
    if (!given.data) return;
    expect_shape("head_sink", given.shape, {node_.q_num_heads});
    to_floats(given.data, is_half(), node_.q_num_heads, call.sinks.data());
}

winnow_tensor ComputedNode::view(const void* data, uint32_t type, int64_t heads, int64_t token_stride,
                                 const Call& call) const {
    const int64_t bytes = type == WINNOW_TYPE_F32 ? 4 : 2;
    return tensor_of(data, type, {call.batch, heads, call.tokens, node_.head_size},
                     {call.tokens * token_stride * bytes, node_.head_size * bytes, token_stride * bytes, bytes});
}

// Rows of padding, which no step writes, are zeros.
char* ComputedNode::give_output(const Call& call, OrtKernelContext* context) const {
    const int64_t shape[3] = {call.batch, call.tokens, node_.q_num_heads * node_.head_size};
    OrtValue* value = nullptr;
    check(api().KernelContext_GetOutput(context, static_cast<size_t>(output_places_[attention_output]), shape, 3,
                                        &value));
    char* out = static_cast<char*>(mutable_data(value));
    const int64_t row_bytes = shape[2] * element();
    for (int64_t i = 0; i < call.batch; ++i) {
        const int64_t count = call.rows[static_cast<size_t>(i)].count;
        std::memset(out + (i * call.tokens + count) * row_bytes, 0,
                    static_cast<size_t>((call.tokens - count) * row_bytes));
    }
    return out;
}

// Nothing is written into present. It has no token, unless the host has bound memory for it: then the runtime refuses
// this shape. A refusal is slow, an exception in the runtime, so the first one of a Run decides for all presents.
void ComputedNode::give_presents(const Call& call, OrtKernelContext* context) const {
    for (const OutputPlace place : {present_key_output, present_value_output}) {
        if (output_places_[place] < 0) continue;
        const size_t index = static_cast<size_t>(output_places_[place]);
        const auto give = [&](bool is_bound) {
            const int64_t length = is_bound ? std::max(call.past_length, call.total) : 0;
            const int64_t shape[4] = {call.batch, node_.kv_num_heads, length, node_.head_size};
            OrtValue* value = nullptr;
            return api().KernelContext_GetOutput(context, index, shape, 4, &value);
        };
        const bool is_bound = cache_.is_present_bound;
        if (OrtStatus* status = give(is_bound)) {
            api().ReleaseStatus(status);
            check(give(!is_bound));
            cache_.is_present_bound = !is_bound;
        }
    }
}

// Whether a row of a first prompt is that of another, as those of beams are.
bool ComputedNode::has_equal_rows(const Call& call) const {
    const size_t bytes = static_cast<size_t>(call.tokens * call.q_stride * element());
    const char* data = static_cast<const char*>(call.q);
    for (int64_t i = 1; call.is_first && i < call.batch; ++i)
        if (std::memcmp(data, data + static_cast<size_t>(i) * bytes, bytes) == 0) return true;
    return false;
}

void ComputedNode::compute(OrtKernelContext* context) {
    Call call = read_call(context);
    if (layer_ == 0 && has_equal_rows(call)) cache_.tell_equal_rows();
    if (node_.is_rotated) rotate_rows(call, context);
    read_sinks(call, context);
    const winnow_tensor q = view(call.q, call.qk_type, node_.q_num_heads, call.q_stride, call),
                        k = view(call.k, call.qk_type, node_.kv_num_heads, call.k_stride, call),
                        v = view(call.v, node_.type, node_.kv_num_heads, call.v_stride, call),
                        out = view(give_output(call, context), node_.type, node_.q_num_heads,
                                   node_.q_num_heads * node_.head_size, call);
    winnow_tensor sinks{};
    winnow_cache_step_desc step{};
    step.struct_size = sizeof step;
    step.q = &q;
    step.k = &k;
    step.v = &v;
    step.out = &out;
    step.scale = node_.scale;
    step.softcap = node_.softcap;
    step.window_left = node_.window_left;
    if (!call.sinks.empty()) {
        const int64_t bytes = node_.q_num_heads * 4;
        sinks = tensor_of(call.sinks.data(), WINNOW_TYPE_F32, {1, 1, 1, node_.q_num_heads}, {bytes, bytes, bytes, 4});
        step.head_sink = &sinks;
    }
    give_presents(call, context);
    cache_.step(layer_, call.tokens, call.rows, step);
    ++calls_;
    for (const RowSpan& row : call.rows) tokens_ += row.count;
}

} // namespace winnow::ort
