// What the runtime owns is copied, so that nothing here has to be released.
#include "graph.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>

namespace winnow::ort {

namespace {

void read_use(const OrtValueInfo* info, Value& value) {
    if (value.name.empty()) return;
    bool is_required = false, is_optional = false;
    check(api().ValueInfo_IsRequiredGraphInput(info, &is_required));
    check(api().ValueInfo_IsOptionalGraphInput(info, &is_optional));
    value.is_graph_input = is_required || is_optional;
    check(api().ValueInfo_IsGraphOutput(info, &value.is_graph_output));
    check(api().ValueInfo_GetValueNumConsumers(info, &value.consumers));
}

Value read_value(const OrtValueInfo* info) {
    Value value;
    if (!info) return value;
    const char* name = nullptr;
    check(api().GetValueInfoName(info, &name));
    value.name = name;
    if (value.name.empty()) return value;
    const OrtTypeInfo* type = nullptr;
    check(api().GetValueInfoTypeInfo(info, &type));
    const OrtTensorTypeAndShapeInfo* tensor = nullptr;
    if (type) check(api().CastTypeInfoToTensorInfo(type, &tensor));
    if (!tensor) return value; // no tensor, or of a type that is unknown
    check(api().GetTensorElementType(tensor, &value.type));
    size_t rank = 0;
    check(api().GetDimensionsCount(tensor, &rank));
    value.shape.resize(rank);
    check(api().GetDimensions(tensor, value.shape.data(), rank));
    return value;
}

std::vector<Value> read_values(const std::vector<const OrtValueInfo*>& infos) {
    std::vector<Value> values;
    values.reserve(infos.size());
    for (const OrtValueInfo* info : infos) values.push_back(read_value(info));
    return values;
}

// A list takes two calls: one for its length, one for what is in it.
template <class Each, class Owner>
std::vector<const Each*> list_of(const Owner* owner, OrtStatus* (*get_length)(const Owner*, size_t*),
                                 OrtStatus* (*get)(const Owner*, const Each**, size_t)) {
    size_t count = 0;
    check(get_length(owner, &count));
    std::vector<const Each*> list(count);
    check(get(owner, list.data(), count));
    return list;
}

std::vector<const OrtValueInfo*> inputs_of(const OrtNode* node) {
    return list_of(node, api().Node_GetNumInputs, api().Node_GetInputs);
}

std::vector<const OrtValueInfo*> outputs_of(const OrtNode* node) {
    return list_of(node, api().Node_GetNumOutputs, api().Node_GetOutputs);
}

bool reads_outer_value(const OrtNode* node) {
    for (const OrtValueInfo* info : inputs_of(node)) {
        bool is_outer = false;
        if (info) check(api().ValueInfo_IsFromOuterScope(info, &is_outer));
        if (is_outer) return true;
    }
    return false;
}

Attribute read_attribute(const OrtOpAttr* attribute) {
    Attribute made;
    check(api().OpAttr_GetType(attribute, &made.type));
    size_t size = 0;
    if (made.type == ORT_OP_ATTR_INT)
        check(api().ReadOpAttr(attribute, made.type, &made.integer, sizeof made.integer, &size));
    if (made.type == ORT_OP_ATTR_FLOAT)
        check(api().ReadOpAttr(attribute, made.type, &made.real, sizeof made.real, &size));
    if (made.type == ORT_OP_ATTR_STRING) {
        char text[64] = "";
        OrtStatus* status = api().ReadOpAttr(attribute, made.type, text, sizeof text - 1, &size);
        made.text = status ? "a longer text" : text;
        if (status) api().ReleaseStatus(status);
    }
    return made;
}

std::map<std::string, Attribute> read_attributes(const OrtNode* node) {
    std::map<std::string, Attribute> attributes;
    for (const OrtOpAttr* each : list_of(node, api().Node_GetNumAttributes, api().Node_GetAttributes)) {
        const char* name = nullptr;
        check(api().OpAttr_GetName(each, &name));
        attributes[name] = read_attribute(each);
    }
    return attributes;
}

bool is_there(const std::vector<const OrtValueInfo*>& inputs, size_t at) {
    return at < inputs.size() && !read_value(inputs[at]).name.empty();
}

// NULL for an input of the graph, and for a constant.
const OrtNode* producer_of(const OrtValueInfo* info) {
    const OrtNode* node = nullptr;
    check(api().ValueInfo_GetValueProducer(info, &node, nullptr));
    return node;
}

// Also one that is stored in another type.
bool is_constant(const OrtValueInfo* info) {
    if (!info) return false;
    bool is = false;
    check(api().ValueInfo_IsConstantInitializer(info, &is));
    const OrtNode* node = is ? nullptr : producer_of(info);
    return is || (node && (is_operator(node, "", "DequantizeLinear") || is_operator(node, "", "Cast")) &&
                  is_constant(inputs_of(node).front()));
}

// A bias has an element for each output of its layer; what guards a division has one alone.
bool is_bias(const OrtValueInfo* info) {
    if (!is_constant(info)) return false;
    const std::vector<int64_t> shape = read_value(info).shape;
    return !shape.empty() && shape.back() > 1 &&
           std::all_of(shape.begin(), shape.end() - 1, [](int64_t length) { return length == 1; });
}

// A layer's operator, and which of its inputs is a bias.
struct Layer {
    const char *domain, *op;
    size_t bias;
};
constexpr size_t none = ~size_t{0};
constexpr Layer layers[] = {{"", "MatMul", none},
                            {"", "MatMulInteger", none},
                            {"", "Gemm", 2},
                            {microsoft, "FusedMatMul", none},
                            {microsoft, "FusedGemm", 2},
                            {microsoft, "MatMulNBits", 5},
                            {microsoft, "DynamicQuantizeMatMul", 4},
                            {microsoft, "MatMulIntegerToFloat", 6}};

// What may lie between a layer and the attention, and has what it changes in an input that is no constant.
constexpr const char* passed[] = {"Add",
                                  "Cast",
                                  "Concat",
                                  "DequantizeLinear",
                                  "Expand",
                                  "Identity",
                                  "LayerNormalization",
                                  "Mul",
                                  "QuantizeLinear",
                                  "RMSNormalization",
                                  "Reshape",
                                  "RotaryEmbedding",
                                  "SimplifiedLayerNormalization",
                                  "Slice",
                                  "Split",
                                  "Squeeze",
                                  "Transpose",
                                  "Unsqueeze"};

bool is_passed(const OrtNode* node) {
    return std::any_of(std::begin(passed), std::end(passed),
                       [&](const char* op) { return is_operator(node, "", op) || is_operator(node, microsoft, op); });
}

} // namespace

const Value& Node::value_of(const std::vector<Value>& values, size_t index) {
    static const Value absent;
    return index < values.size() ? values[index] : absent;
}

int64_t Node::integer(const std::string& attribute, int64_t otherwise) const {
    const auto found = attributes.find(attribute);
    return found != attributes.end() && found->second.type == ORT_OP_ATTR_INT ? found->second.integer : otherwise;
}

float Node::real(const std::string& attribute, float otherwise) const {
    const auto found = attributes.find(attribute);
    return found != attributes.end() && found->second.type == ORT_OP_ATTR_FLOAT ? found->second.real : otherwise;
}

std::vector<const OrtNode*> nodes_of(const OrtGraph* graph) {
    return list_of(graph, api().Graph_GetNumNodes, api().Graph_GetNodes);
}

bool is_body(const OrtGraph* graph) {
    const OrtNode* parent = nullptr;
    check(api().Graph_GetParentNode(graph, &parent));
    if (parent) return true;
    size_t inputs = 0;
    check(api().Graph_GetNumInputs(graph, &inputs));
    const std::vector<const OrtNode*> nodes = nodes_of(graph);
    return inputs == 0 || std::any_of(nodes.begin(), nodes.end(), reads_outer_value);
}

bool is_operator(const OrtNode* node, const char* domain, const char* op) {
    const char *its_domain = nullptr, *its_op = nullptr;
    check(api().Node_GetDomain(node, &its_domain));
    check(api().Node_GetOperatorType(node, &its_op));
    return std::strcmp(domain, its_domain) == 0 && std::strcmp(op, its_op) == 0;
}

Node read_node(const OrtNode* node) {
    Node made;
    const char *name = nullptr, *op = nullptr, *domain = nullptr;
    check(api().Node_GetName(node, &name));
    check(api().Node_GetOperatorType(node, &op));
    check(api().Node_GetDomain(node, &domain));
    made.name = name;
    made.op = op;
    made.domain = domain;
    made.inputs = read_values(inputs_of(node));
    made.outputs = read_values(outputs_of(node));
    made.attributes = read_attributes(node);
    return made;
}

bool has_bias(const OrtNode* node, size_t input) {
    constexpr int longest = 16; // steps from the attention back to the layer
    for (int step = 0; step < longest; ++step) {
        std::vector<const OrtValueInfo*> inputs = inputs_of(node);
        node = is_there(inputs, input) ? producer_of(inputs[input]) : nullptr;
        if (!node) return false;
        inputs = inputs_of(node);
        for (const Layer& each : layers)
            if (is_operator(node, each.domain, each.op)) return is_there(inputs, each.bias);
        if (!is_passed(node)) return false;
        if (is_operator(node, "", "Add") && std::any_of(inputs.begin(), inputs.end(), is_bias)) return true;
        input = is_there(inputs, 1) && is_constant(inputs.front()) ? 1 : 0;
    }
    return false;
}

void read_uses(const OrtNode* node, Node& made) {
    const std::vector<const OrtValueInfo*> inputs = inputs_of(node), outputs = outputs_of(node);
    for (size_t i = 0; i < inputs.size(); ++i) read_use(inputs[i], made.inputs[i]);
    for (size_t i = 0; i < outputs.size(); ++i) read_use(outputs[i], made.outputs[i]);
}

} // namespace winnow::ort
