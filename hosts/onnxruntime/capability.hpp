// Which nodes of a model Winnow computes, and why it leaves the others to the runtime's own kernels.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph.hpp"
#include "winnow.h"

namespace winnow::ort {

// Places of inputs and outputs of com.microsoft.GroupQueryAttention.
enum InputPlace : size_t {
    query_input,
    key_input,
    value_input,
    past_key_input,
    past_value_input,
    seqlens_input,
    total_input,
    cos_input,
    sin_input,
    positions_input,
    bias_input,
    sink_input,
    k_scale_input,
    input_count = k_scale_input // of those that are served
};
enum OutputPlace : size_t { attention_output, present_key_output, present_value_output, output_count };

// An attention node that Winnow computes: what does not change from Run to Run.
struct AttentionNode {
    std::string name;                         // as the log and the report have it
    std::vector<std::string> inputs, outputs; // names by place; "": absent
    uint32_t type = 0;                        // of query, key, value and output: WINNOW_TYPE_F32 or _F16
    int64_t q_num_heads = 0, kv_num_heads = 0, head_size = 0;
    bool is_packed = false; // query, key and value of a token lie one after the other in the query
    bool is_rotated = false, is_interleaved = false;
    bool has_smooth_softmax = false;
    bool has_key_bias = false;    // the model adds a bias to the keys
    float scale = 0, softcap = 0; // 0: 1/sqrt(head_size), none
    int64_t window_left = 0;      // as in winnow_cache_step_desc
    int64_t most_tokens = 0;      // rows of the cos cache; 0: not known
};

// Whether an operator attends, so that a user may expect Winnow to compute it.
bool is_attention(const OrtNode* node);

// Either the node, or why Winnow does not compute it.
struct Capability {
    std::optional<AttentionNode> node;
    std::string refusal;
};
Capability examine(const Node& node, bool is_in_body);

} // namespace winnow::ort
