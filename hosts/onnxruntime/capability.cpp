// Forms of attention are refused here, before the session exists: a node that is claimed has no other kernel.
#include "capability.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace winnow::ort {

namespace {

class Refusal : public std::exception {
public:
    explicit Refusal(std::string reason) : reason_(std::move(reason)) {}
    const char* what() const noexcept override { return reason_.c_str(); }

private:
    std::string reason_;
};

void expect(bool is_fulfilled, const std::string& reason) {
    if (!is_fulfilled) throw Refusal(reason);
}

// Why operators that attend are not served at all.
std::string reason_of_operator(const Node& node) {
    if (node.domain == microsoft && node.op == "MultiHeadAttention")
        return "MultiHeadAttention takes positions from the length of past, and Winnow returns an empty past";
    return node.op + " is not served, only GroupQueryAttention of com.microsoft is";
}

uint32_t type_of(const Node& node) {
    const ONNXTensorElementDataType type = node.input(query_input).type;
    expect(type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT || type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16,
           "the query is neither float nor float16");
    return type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT ? WINNOW_TYPE_F32 : WINNOW_TYPE_F16;
}

void check_inputs(const Node& node) {
    expect(node.has_input(key_input) == node.has_input(value_input), "key and value are not both there");
    expect(node.has_input(past_key_input) == node.has_input(past_value_input),
           "past_key and past_value are not both there");
    expect(node.has_input(cos_input) == node.has_input(sin_input), "cos_cache and sin_cache are not both there");
    expect(node.has_input(seqlens_input) && node.has_input(total_input),
           "seqlens_k or total_sequence_length is absent");
    expect(!node.has_input(bias_input), "it has an attention_bias");
    for (size_t i = input_count; i < node.inputs.size(); ++i)
        expect(!node.has_input(i), "its input " + std::to_string(i) + " (" + node.inputs[i].name + ") is not served");
    const ONNXTensorElementDataType type = node.input(query_input).type;
    for (const size_t i : {key_input, value_input, past_key_input, past_value_input, cos_input, sin_input, sink_input})
        expect(!node.has_input(i) || node.input(i).type == type,
               "its input " + node.input(i).name + " has another type than the query");
    for (size_t i = output_count; i < node.outputs.size(); ++i)
        expect(!node.has_output(i),
               "its output " + std::to_string(i) + " (" + node.outputs[i].name + ") is not served");
}

// Winnow does not read past, and writes nothing into present.
void check_uses(const Node& node) {
    for (const size_t i : {past_key_input, past_value_input}) {
        const Value& past = node.input(i);
        expect(past.name.empty() || past.is_graph_input, "its past " + past.name + " is computed in the model");
        expect(past.consumers <= 1, "another node reads its past " + past.name);
    }
    for (const size_t i : {present_key_output, present_value_output})
        expect(node.output(i).consumers == 0, "another node reads its present " + node.output(i).name);
    const Value& output = node.output(attention_output);
    expect(output.consumers > 0 || output.is_graph_output, "nobody reads its output " + output.name);
}

// What newer runtimes add to the operator comes with a default that means "as before".
bool is_unset(const Attribute& attribute) {
    switch (attribute.type) {
    case ORT_OP_ATTR_INT: return attribute.integer == 0 || attribute.integer == -1;
    case ORT_OP_ATTR_FLOAT: return attribute.real == 0;
    case ORT_OP_ATTR_STRING: return attribute.text.empty() || attribute.text == "NONE";
    default: return false;
    }
}

void check_attributes(const Node& node) {
    static constexpr std::array<std::string_view, 9> read = {
        "num_heads",      "kv_num_heads",      "scale", "softcap", "do_rotary", "rotary_interleaved",
        "smooth_softmax", "local_window_size", "causal"};
    static constexpr std::string_view without_its_inputs = "qk_norm_epsilon"; // counts with q_norm_weight alone
    for (const auto& [name, attribute] : node.attributes) {
        if (std::find(read.begin(), read.end(), name) == read.end() && name != without_its_inputs)
            expect(is_unset(attribute), "its attribute " + name + " is not served");
    }
    expect(node.integer("causal", 1) == 1, "it is not causal");
}

// Elements of a token in the query, which the model has to tell.
int64_t query_row(const Node& node) {
    const std::vector<int64_t>& shape = node.input(query_input).shape;
    expect(shape.size() == 3 && shape[2] > 0, "the model does not tell how long a row of the query is");
    return shape[2];
}

int64_t window_of(const Node& node) {
    const int64_t size = node.integer("local_window_size", -1);
    expect(size == -1 || size > 0, "its local_window_size is " + std::to_string(size));
    return std::max<int64_t>(size, 0);
}

float finite(const Node& node, const char* name) {
    const float number = node.real(name, 0);
    expect(std::isfinite(number), std::string("its attribute ") + name + " is no number");
    return number;
}

std::vector<std::string> names_of(const std::vector<Value>& values, size_t count) {
    std::vector<std::string> names(count);
    for (size_t i = 0; i < std::min(count, values.size()); ++i) names[i] = values[i].name;
    return names;
}

AttentionNode read_attention(const Node& node, bool is_in_body) {
    expect(node.domain == microsoft && node.op == "GroupQueryAttention", reason_of_operator(node));
    expect(!is_in_body, "it lies in the body of an If, a Loop or a Scan");
    check_inputs(node);
    check_uses(node);
    check_attributes(node);
    AttentionNode made;
    made.name = node.name.empty() ? node.output(attention_output).name : node.name;
    made.inputs = names_of(node.inputs, input_count);
    made.outputs = names_of(node.outputs, output_count);
    made.type = type_of(node);
    made.q_num_heads = node.integer("num_heads", 0);
    made.kv_num_heads = node.integer("kv_num_heads", 0);
    expect(made.q_num_heads > 0 && made.kv_num_heads > 0 && made.q_num_heads % made.kv_num_heads == 0,
           "num_heads is no multiple of kv_num_heads");
    made.is_packed = !node.has_input(key_input);
    const int64_t heads = made.q_num_heads + (made.is_packed ? 2 * made.kv_num_heads : 0);
    made.head_size = query_row(node) / heads;
    expect(made.head_size * heads == query_row(node), "a row of the query is no multiple of its heads");
    made.is_rotated = node.integer("do_rotary", 0) == 1;
    made.is_interleaved = node.integer("rotary_interleaved", 0) == 1;
    expect(!made.is_rotated || node.has_input(cos_input), "do_rotary is 1 and there is no cos_cache");
    made.has_smooth_softmax = node.integer("smooth_softmax", 0) == 1;
    made.scale = finite(node, "scale");
    made.softcap = std::max(finite(node, "softcap"), 0.0f);
    made.window_left = window_of(node);
    const std::vector<int64_t>& cos_shape = node.input(cos_input).shape;
    if (made.is_rotated && cos_shape.size() == 2) made.most_tokens = std::max<int64_t>(cos_shape[0], 0);
    return made;
}

} // namespace

bool is_attention(const OrtNode* node) {
    static constexpr std::array microsofts = {
        "GroupQueryAttention",        "MultiHeadAttention", "Attention",     "DecoderMaskedMultiHeadAttention",
        "DecoderMaskedSelfAttention", "SparseAttention",    "PagedAttention"};
    return is_operator(node, "", "Attention") || std::any_of(microsofts.begin(), microsofts.end(), [&](const char* op) {
               return is_operator(node, microsoft, op);
           });
}

Capability examine(const Node& node, bool is_in_body) {
    try {
        return {read_attention(node, is_in_body), ""};
    } catch (const Refusal& refusal) {
        return {std::nullopt, refusal.what()};
    }
}

} // namespace winnow::ort
