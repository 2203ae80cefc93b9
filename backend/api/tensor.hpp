// From winnow_tensor to a checked Tensor: type, shape, strides, alignment and extent of one view.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "api/validate.hpp"

namespace winnow::api {

enum class Access { input, output };

struct TensorRules {
    const char* name; // as the message calls it: "sdpa: k"
    std::initializer_list<Type> types;
    Access access = Access::input;
};

// An absent tensor where desc is NULL.
Tensor to_tensor(const winnow_context& context, const winnow_tensor* desc, const TensorRules& rules, Memory memory);
// Reads a tensor that has to be there: NULL is an error.
Tensor to_required_tensor(const winnow_context& context, const winnow_tensor* desc, const TensorRules& rules,
                          Memory memory);

// Refuses strides by which rows share bytes. rows: which ones must not, in the message.
void check_no_self_overlap(const Tensor& tensor, const char* name, const char* rows);

std::string shape_text(const Tensor& tensor);
// Whether two views, both without gaps, share a byte. Views with gaps may interleave, so nothing is said of them, nor
// of views that lie in no memory yet, here and below.
bool certainly_overlap(const Tensor& a, const Tensor& b);
struct NamedTensor {
    const Tensor& tensor;
    const char* name;
};
// Refuses an output that certainly overlaps an input or another output. The time is that of sorting all of them.
void expect_apart(const std::vector<NamedTensor>& outputs, const std::vector<NamedTensor>& inputs);
// Whether their first bytes are the same.
bool begin_together(const Tensor& a, const Tensor& b);
// Whether they do, beyond doubt, also with gaps: they begin together, or both are without gaps.
bool certainly_share_a_byte(const Tensor& a, const Tensor& b);

} // namespace winnow::api
