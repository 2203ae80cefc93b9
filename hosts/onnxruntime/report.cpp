// Names of fields, in the order in which they stand in the report.
#include "report.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

namespace winnow::ort {

namespace {

using Json = nlohmann::ordered_json;

Json json_of(const ComputedNode& node) {
    return {{"name", node.node().name},
            {"layer", node.layer()},
            {"q_heads", node.node().q_num_heads},
            {"kv_heads", node.node().kv_num_heads},
            {"head_size", node.node().head_size},
            {"calls", node.calls()},
            {"tokens", node.tokens()}};
}

Json json_of(const RefusedNode& node) { return {{"name", node.name}, {"operator", node.op}, {"reason", node.reason}}; }

template <class Each>
Json array_of(const std::vector<Each>& all) {
    Json array = Json::array();
    for (const Each& each : all) {
        if constexpr (std::is_pointer_v<Each>)
            array.push_back(json_of(*each));
        else
            array.push_back(json_of(each));
    }
    return array;
}

} // namespace

std::string to_json(const ReportContents& contents) {
    const Backend& backend = contents.backend;
    const winnow_device_info device = backend.device();
    const winnow_stats stats = backend.stats();
    const winnow_cache_stats cache = contents.cache.stats();
    const Json report = {{"onnxruntime", runtime_version()},
                         {"backend", backend.api().backend_name},
                         {"backend_version", backend.api().backend_version},
                         {"device", device.name},
                         {"platform", device.platform},
                         {"kv", contents.cache.config()},
                         {"max_tokens", contents.cache.most_tokens()},
                         {"runs", contents.cache.runs()},
                         {"rewinds", contents.cache.rewinds()},
                         {"claimed", array_of(contents.computed)},
                         {"not_claimed", array_of(contents.refused)},
                         {"steps", cache.steps},
                         {"tokens", cache.tokens},
                         {"resident_slots", cache.resident_slots},
                         {"evictions", cache.evictions},
                         {"bytes", cache.bytes},
                         {"peak_bytes", cache.peak_bytes},
                         {"original_bytes", cache.original_bytes},
                         {"budget_bytes", cache.budget_bytes},
                         {"kernel_launches", stats.kernel_launches},
                         {"host_copies", stats.host_copies}};
    return report.dump(1, ' ', false, Json::error_handler_t::replace) + "\n"; // names may be no UTF-8
}

void write_report(const std::string& path, const std::string& text) {
    std::ofstream file(path);
    file << text << std::flush;
    if (!file) throw Error("report=" + path + ": cannot be written: " + std::strerror(errno));
}

} // namespace winnow::ort
