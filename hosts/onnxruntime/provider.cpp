// First the runtime asks what is claimed, then it has that compiled; a session that fails to be made ends after either.
#include "provider.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

namespace winnow::ort {

namespace {

constexpr const char *reset_option = "winnow.reset", *pressure_option = "winnow.pressure";

std::string joined(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
    return text;
}

} // namespace

Provider::Provider(const Runtime& runtime, const OrtSessionOptions* session, const OrtLogger* logger,
                   const Log& process_log)
    : OrtEp{}, runtime_(runtime), log_(logger), process_log_(process_log), options_(read_options(session)),
      backend_(options_, log_), cache_(backend_, options_, log_) {
    if (!options_.report.empty()) write_report(options_.report, ""); // or the session is refused
    set_callbacks();
}

Provider::~Provider() {
    log_ = process_log_; // ONNX Runtime 1.23 ends a session's logger before its execution providers
    if (options_.report.empty()) return;
    OrtStatus* status = guarded([&] {
        std::vector<const ComputedNode*> computed;
        for (const auto& each : computed_) computed.push_back(each.get());
        write_report(options_.report, to_json({backend_, cache_, computed, refused_}));
    });
    if (!status) return;
    log_.error(api().GetErrorMessage(status));
    api().ReleaseStatus(status);
}

void Provider::set_callbacks() {
    static constexpr auto runtime_of = [](OrtEp* self) -> const Runtime& {
        return static_cast<Provider*>(self)->runtime_;
    };
    ort_version_supported = ORT_API_VERSION;
    GetName = [](const OrtEp*) noexcept { return provider_name; };
    GetCapability = [](OrtEp* self, const OrtGraph* graph, OrtEpGraphSupportInfo* info) noexcept {
        return guarded(runtime_of(self), [&] { static_cast<Provider*>(self)->claim(graph, info); });
    };
    Compile = [](OrtEp* self, const OrtGraph** graphs, const OrtNode** fused, size_t count, OrtNodeComputeInfo** infos,
                 OrtNode**) noexcept {
        return guarded(runtime_of(self), [&] { static_cast<Provider*>(self)->compile(graphs, fused, count, infos); });
    };
    // The nodes stay until the report is written.
    ReleaseNodeComputeInfos = [](OrtEp*, OrtNodeComputeInfo**, size_t) noexcept {};
    OnRunStart = [](OrtEp* self, const OrtRunOptions* options) noexcept {
        return guarded(runtime_of(self), [&] { static_cast<Provider*>(self)->begin_run(options); });
    };
    OnRunEnd = [](OrtEp* self, const OrtRunOptions*, bool) noexcept -> OrtStatus* {
        static_cast<Provider*>(self)->cache_.end_run();
        return nullptr;
    };
}

void Provider::claim(const OrtGraph* graph, OrtEpGraphSupportInfo* info) {
    const bool is_in_body = is_body(graph);
    std::vector<RefusedNode> added;
    for (const OrtNode* each : nodes_of(graph)) {
        if (!is_attention(each)) continue;
        Node node = read_node(each);
        if (!is_in_body) read_uses(each, node);
        Capability capability = examine(node, is_in_body);
        if (!capability.node) {
            const RefusedNode made = {node.name, node.op, capability.refusal, node.output(attention_output).name};
            // The runtime asks again after it has inlined functions.
            if (std::find(refused_.begin(), refused_.end(), made) == refused_.end()) added.push_back(made);
            std::erase_if(refused_, [&](const RefusedNode& other) { return other.output == made.output; });
            refused_.push_back(made);
            // Without past the runtime's kernel could compute only a first prompt. A failure of this function would
            // only be logged, so the node is claimed, and its compilation fails.
            if (node.op != "GroupQueryAttention" || node.has_input(past_key_input)) continue;
        }
        OrtNodeFusionOptions fusion{};
        fusion.ort_version_supported = ORT_API_VERSION;
        check(ep_api().EpGraphSupportInfo_AddNodesToFuse(info, &each, 1, &fusion));
        if (!capability.node) continue;
        capability.node->has_key_bias = has_bias(each, capability.node->is_packed ? query_input : key_input);
        claims_.push_back(std::move(*capability.node));
    }
    tell_refused(added);
}

// A line for each reason.
void Provider::tell_refused(const std::vector<RefusedNode>& refused) const {
    std::map<std::string, std::vector<std::string>> names;
    for (const RefusedNode& node : refused) names[node.reason].push_back(node.name);
    for (const auto& [reason, its] : names)
        log_.warning(std::to_string(its.size()) + " attention nodes left to ONNX Runtime (" + joined(its) +
                     "): " + reason);
}

// Throws for a node without past that Winnow does not compute.
void Provider::expect_computable(const OrtGraph* graph) const {
    for (const OrtNode* each : nodes_of(graph)) {
        const std::string output = read_node(each).output(attention_output).name;
        for (const RefusedNode& node : refused_)
            if (node.output == output)
                throw Error("Winnow does not compute the attention node " + node.name + ": " + node.reason +
                            ". ONNX Runtime cannot compute it either, because it has no past");
    }
}

const AttentionNode& Provider::claimed(const OrtGraph* graph) const {
    const std::vector<const OrtNode*> nodes = nodes_of(graph);
    if (nodes.size() == 1) {
        const std::string output = read_node(nodes.front()).output(attention_output).name;
        const auto found = std::find_if(claims_.begin(), claims_.end(), [&](const AttentionNode& claim) {
            return claim.outputs[attention_output] == output;
        });
        if (found != claims_.end()) return *found;
    }
    throw Error("a graph was to be compiled that was not claimed, expected one attention node", ORT_FAIL);
}

void Provider::compile(const OrtGraph** graphs, const OrtNode** fused, size_t count, OrtNodeComputeInfo** infos) {
    struct Asked {
        const AttentionNode* claim;
        size_t index;
    };
    std::vector<Asked> asked;
    for (size_t i = 0; i < count; ++i) {
        expect_computable(graphs[i]);
        asked.push_back({&claimed(graphs[i]), i});
    }
    std::sort(asked.begin(), asked.end(), [](const Asked& a, const Asked& b) { return a.claim < b.claim; });
    int64_t layer = cache_.layers();
    std::vector<AttentionNode> nodes;
    nodes.reserve(count);
    for (const Asked& each : asked) nodes.push_back(*each.claim);
    if (nodes.empty()) return;
    cache_.add_layers(nodes);
    for (const Asked& each : asked) {
        computed_.push_back(
            std::make_unique<ComputedNode>(runtime_, *each.claim, layer++, read_node(fused[each.index]), cache_));
        infos[each.index] = computed_.back().get();
    }
    std::vector<std::string> names;
    for (const auto& each : computed_) names.push_back(each->node().name);
    log_.info(std::to_string(computed_.size()) + " attention nodes computed by Winnow (" + joined(names) + ") on " +
              backend_.device().name + ", cache " + cache_.config() + ", sequences of up to " +
              std::to_string(cache_.most_tokens()) + " tokens");
}

void Provider::begin_run(const OrtRunOptions* options) {
    const auto entry = [&](const char* name) { return options ? api().GetRunConfigEntry(options, name) : nullptr; };
    const char* given = entry(reset_option);
    const std::string_view reset = given ? given : "0";
    if (reset != "0" && reset != "1")
        throw Error("the run option " + std::string(reset_option) + " is " + std::string(reset) + ", expected 0 or 1");
    std::optional<double> pressure;
    if (const char* told = entry(pressure_option)) pressure = pressure_of(pressure_option, told);
    cache_.begin_run(reset == "1", pressure);
}

} // namespace winnow::ort
