// A claimed node as the runtime runs it.
#pragma once

#include <cstdint>
#include <vector>

#include "session_cache.hpp"

namespace winnow::ort {

class ComputedNode : public OrtNodeComputeInfo {
public:
    // fused: the node of the runtime that stands for this one; it has the same inputs and outputs in another order.
    ComputedNode(const Runtime& runtime, AttentionNode node, int64_t layer, const Node& fused, SessionCache& cache);

    void compute(OrtKernelContext* context);

    const AttentionNode& node() const { return node_; }
    int64_t layer() const { return layer_; }
    int64_t calls() const { return calls_; }
    int64_t tokens() const { return tokens_; }

private:
    // An input of a Run; without data it is absent.
    struct Tensor {
        const void* data = nullptr;
        std::vector<int64_t> shape;
    };
    struct Call;

    Tensor input(const OrtKernelContext* context, InputPlace place) const;
    Call read_call(const OrtKernelContext* context) const;
    void read_rows(Call& call, const OrtKernelContext* context) const;
    void read_positions(Call& call, const OrtKernelContext* context) const;
    void rotate_rows(Call& call, const OrtKernelContext* context) const;
    void read_sinks(Call& call, const OrtKernelContext* context) const;
    char* give_output(const Call& call, OrtKernelContext* context) const;
    void give_presents(const Call& call, OrtKernelContext* context) const;
    bool has_equal_rows(const Call& call) const;
    winnow_tensor view(const void* data, uint32_t type, int64_t heads, int64_t token_stride, const Call& call) const;
    int64_t element() const { return node_.type == WINNOW_TYPE_F32 ? 4 : 2; }
    bool is_half() const { return node_.type == WINNOW_TYPE_F16; }

    const Runtime& runtime_;
    const AttentionNode node_;
    const int64_t layer_;
    SessionCache& cache_;
    std::vector<int64_t> input_places_, output_places_; // in the fused node; -1: absent
    int64_t calls_ = 0, tokens_ = 0;
};

} // namespace winnow::ort
