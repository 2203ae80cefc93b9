// What the runtime says of a node of a graph, as plain values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime.hpp"

namespace winnow::ort {

inline constexpr const char* microsoft = "com.microsoft"; // the domain of the runtime's own operators

// An input or an output of a node. An optional one that is left out has no name.
struct Value {
    std::string name;
    ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    std::vector<int64_t> shape; // -1: not known before a Run; empty also where the rank is unknown
    // From read_uses():
    bool is_graph_input = false, is_graph_output = false;
    size_t consumers = 0; // inputs of nodes that read it, those in bodies included
};

struct Attribute {
    OrtOpAttrType type = ORT_OP_ATTR_UNDEFINED;
    int64_t integer = 0;
    float real = 0;
    std::string text;
};

struct Node {
    std::string name, op, domain;
    std::vector<Value> inputs, outputs;
    std::map<std::string, Attribute> attributes;

    const Value& input(size_t index) const { return value_of(inputs, index); }
    const Value& output(size_t index) const { return value_of(outputs, index); }
    bool has_input(size_t index) const { return !input(index).name.empty(); }
    bool has_output(size_t index) const { return !output(index).name.empty(); }
    // Where there is no such attribute, or one of another type: `otherwise`.
    int64_t integer(const std::string& attribute, int64_t otherwise) const;
    float real(const std::string& attribute, float otherwise) const;

private:
    static const Value& value_of(const std::vector<Value>& values, size_t index);
};

// In an order in which they can be computed, which stays the same for a model.
std::vector<const OrtNode*> nodes_of(const OrtGraph* graph);
// Whether a graph is the body of an If, a Loop or a Scan. ONNX Runtime 1.23 does not tell. There a graph counts as a
// body if it has no inputs, or reads a value of another graph.
bool is_body(const OrtGraph* graph);
bool is_operator(const OrtNode* node, const char* domain, const char* op);
Node read_node(const OrtNode* node);
// Reads how its graph uses the node's values. A node that stands for a compiled graph has no such graph.
void read_uses(const OrtNode* node, Node& made);
// Whether the layer that computes this input adds a constant bias to it, in an Add or in the layer's own operator,
// before rotations, norms and reshapes.
bool has_bias(const OrtNode* node, size_t input);

} // namespace winnow::ort
