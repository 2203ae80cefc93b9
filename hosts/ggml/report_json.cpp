// Names of fields, in the order in which they stand in the report.
#include "report_json.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <unistd.h>

namespace winnow::ggml {

namespace {

using Json = nlohmann::ordered_json;

constexpr int indent = 1;

// Names of tensors and devices are the host's and the driver's; what is no UTF-8 in them becomes U+FFFD.
std::string text_of(const Json& json) { return json.dump(indent, ' ', false, Json::error_handler_t::replace); }

template <typename Each>
Json array_of(const std::vector<Each>& all);

Json json_of(const LayerProfile& layer) {
    Json object = {{"name", layer.name},
                   {"queries", layer.queries},
                   {"entropy", layer.entropy},
                   {"concentration", layer.concentration},
                   {"variance", layer.variance},
                   {"newest_50", layer.newest_50},
                   {"newest_100", layer.newest_100}};
    for (const std::vector<AttentionSample>& head : layer.samples) {
        Json& its = object["samples"].emplace_back(Json::array());
        for (const AttentionSample& each : head) its.push_back({each.importance, each.age, each.attention});
    }
    return object;
}

// Of a stream.
Json json_of(const winnow_cache_stats& stream) {
    return {{"tokens", stream.tokens},
            {"resident_slots", stream.resident_slots},
            {"bytes", stream.bytes},
            {"evictions", stream.evictions}};
}

Json json_of(const LayerFigures& layer) {
    return {{"name", layer.name}, {"tokens", layer.tokens}, {"resident", layer.resident}};
}

Json json_of(const CacheFigures& figures) {
    const winnow_cache_stats& fullest = figures.fullest;
    Json object = {{"name", figures.name},
                   {"config", figures.config},
                   {"policy", figures.policy},
                   {"device", figures.device},
                   {"profile_file", figures.profile_file},
                   {"layers", figures.layers},
                   {"kv_heads", figures.kv_heads},
                   {"streams", figures.streams},
                   {"cells", figures.cells},
                   {"tokens_seen", figures.tokens_seen},
                   {"decoded", figures.decoded},
                   {"restored", figures.restored},
                   {"reused", figures.reused},
                   {"reused_resident", std::llround(figures.reused_resident)},
                   {"evictions", figures.evictions},
                   {"shortfall", figures.shortfall},
                   {"eviction_passes", figures.eviction_passes},
                   {"steps", figures.steps},
                   {"tokens", fullest.tokens},
                   {"resident_slots", fullest.resident_slots},
                   {"bytes", fullest.bytes},
                   {"k_bytes", fullest.k_bytes},
                   {"v_bytes", fullest.v_bytes},
                   {"dense_bytes", fullest.dense_k_bytes + fullest.dense_v_bytes},
                   {"slot_map_bytes", fullest.slot_map_bytes},
                   {"importance_bytes", fullest.importance_bytes},
                   {"state_bytes", fullest.state_bytes},
                   {"signature_bytes", fullest.signature_bytes},
                   {"codebook_bytes", fullest.codebook_bytes},
                   {"cold_bytes", fullest.cold_bytes},
                   {"picks", figures.picks},
                   {"misses", figures.misses},
                   {"disk_bytes", fullest.disk_bytes},
                   {"bytes_read", figures.bytes_read},
                   {"wait_ns", figures.wait_ns},
                   {"original_bytes", fullest.original_bytes},
                   {"budget_bytes", fullest.budget_bytes},
                   {"peak_bytes", figures.peak_bytes},
                   {"scratch_bytes", figures.scratch_bytes},
                   {"full_bytes", figures.full_bytes},
                   {"resident_of_layers", figures.resident_of_layers},
                   {"of_streams", array_of(figures.of_streams)},
                   {"of_layers", array_of(figures.of_layers)}};
    if (!figures.resident.empty()) object["resident"] = figures.resident;
    if (!figures.profile.empty()) object["profile"] = array_of(figures.profile);
    return object;
}

Json json_of(const DeviceCounts& device) {
    return {{"name", device.name},
            {"kernel_launches", device.kernel_launches},
            {"host_copies", device.host_copies},
            {"waits", device.waits}};
}

Json json_of(const InPlaceCache& cache) {
    return {{"name", cache.name},           {"asked", cache.asked}, {"tensors", cache.tensors}, {"bytes", cache.bytes},
            {"operation", cache.operation}, {"node", cache.node},   {"reason", cache.reason}};
}

template <typename Each>
Json array_of(const std::vector<Each>& all) {
    Json array = Json::array();
    for (const Each& each : all) array.push_back(json_of(each));
    return array;
}

uint64_t waits_of(const std::vector<DeviceCounts>& devices) {
    return std::accumulate(devices.begin(), devices.end(), uint64_t{0},
                           [](uint64_t sum, const DeviceCounts& each) { return sum + each.waits; });
}

Json tensors_of(const Counters& counters) {
    Json tensors = Json::object();
    for (const auto& [name, counts] : counters.layers()) {
        tensors[name] = {
            {"type", counts.type}, {"attention_calls", counts.attention_calls}, {"append_calls", counts.append_calls}};
    }
    return tensors;
}

// The string that was carried out: of a model with windows, that of its other layers.
std::string asked_of(const std::vector<CacheFigures>& caches) {
    const auto other =
        std::find_if(caches.rbegin(), caches.rend(), [](const CacheFigures& each) { return !each.has_windows; });
    if (other != caches.rend()) return other->asked;
    return caches.empty() ? "" : caches.back().asked;
}

} // namespace

std::string to_json(const ReportContents& contents) {
    const auto& [ggml_version, api, device, totals, caches, living, in_place] = contents;
    const auto& [counters, stats, devices] = totals;
    const Json report = {{"backend", api.backend_name},
                         {"backend_version", api.backend_version},
                         {"ggml_version", ggml_version},
                         {"pid", getpid()},
                         {"device", device.name},
                         {"platform", device.platform},
                         {"driver_version", device.driver_version},
                         {"kernel_shape", device.kernel_shape},
                         {"kv", asked_of(living.empty() ? caches : living)},
                         {"graphs", counters.graphs()},
                         {"attention_calls", counters.attention_calls()},
                         {"append_calls", counters.append_calls()},
                         {"sdpa_calls", stats.sdpa_calls},
                         {"kv_append_calls", stats.kv_append_calls},
                         {"tokens_appended", stats.tokens_appended},
                         {"kernel_launches", stats.kernel_launches},
                         {"programs_built", stats.programs_built},
                         {"programs_loaded", stats.programs_loaded},
                         {"host_copies", stats.host_copies},
                         {"waits", waits_of(devices)},
                         {"devices", array_of(devices)},
                         {"tensors", tensors_of(counters)},
                         {"caches", array_of(caches)},
                         {"living", array_of(living)},
                         {"in_place", array_of(in_place)}};
    return text_of(report) + "\n";
}

std::string to_json(const std::vector<CacheFigures>& caches) { return text_of(array_of(caches)); }

} // namespace winnow::ggml
