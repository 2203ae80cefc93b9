// Asking for sizes, and then for what has them.
#include "cache_meaning.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "codebook_file.hpp"
#include "network_file.hpp"
#include "profile_file.hpp"

namespace winnow::ggml {

namespace {

struct Counts {
    int64_t layers = 1, heads = 1;
};

// One more than the largest number of a layer, and of a KV head of one, in the lists that a string has; what is no list
// is for the backend to refuse.
Counts counts_named(const std::string& config) {
    constexpr int64_t most = 1 << 20;
    Counts counts;
    for (const std::string key : {"fine=", "coarse="}) {
        for (size_t at = config.find(key); at != std::string::npos; at = config.find(key, at + 1)) {
            if (at == 0 || (config[at - 1] != ':' && config[at - 1] != ',')) continue; // k_fine=
            int64_t number = 0;
            bool is_head = false; // behind a point, up to the next item
            for (size_t i = at + key.size(); i < config.size() && config[i] != ','; ++i) {
                const bool is_digit = config[i] >= '0' && config[i] <= '9';
                number = is_digit ? std::min(10 * number + (config[i] - '0'), most) : 0;
                is_head = config[i] == '.' || (is_head && config[i] != '+');
                int64_t& count = is_head ? counts.heads : counts.layers;
                count = std::max(count, number + 1);
            }
        }
    }
    return counts;
}

// An array for the backend to fill in.
template <class T>
std::vector<T> structs(uint64_t count) {
    std::vector<T> all(count);
    for (T& each : all) each.struct_size = sizeof each;
    return all;
}

// How the file of a resource becomes its bytes.
struct Reader {
    const char* name;
    std::vector<std::byte> (*read)(const std::string& path, const std::vector<std::string>& layers, int64_t kv_heads);
};

using Layers = std::vector<std::string>;

std::vector<std::byte> bytes_of(const std::vector<double>& numbers) {
    const auto bytes = std::as_bytes(std::span(numbers));
    return {bytes.begin(), bytes.end()};
}

constexpr Reader readers[] = {
    {"profile",
     [](const std::string& path, const Layers& layers, int64_t) { return bytes_of(read_profile(path, layers)); }},
    {"network", [](const std::string& path, const Layers& layers,
                   int64_t kv_heads) { return bytes_of(read_network(path, layers, kv_heads)); }},
    {"codebooks",
     [](const std::string& path, const Layers& layers, int64_t) { return read_codebook_file(path, layers); }},
};

const Reader& reader_of(const std::string& name) {
    for (const Reader& each : readers)
        if (each.name == name) return each;
    throw std::runtime_error("the configuration wants the resource \"" + name + "\", which this host cannot read");
}

} // namespace

CacheMeaning meaning_of_any_shape(const char* config, const Ask& ask) {
    constexpr int64_t long_context = 1 << 20, short_context = 1 << 12;
    winnow_cache_desc desc{};
    desc.struct_size = sizeof desc;
    desc.config = config;
    const Counts counts = counts_named(config);
    desc.layers = counts.layers;
    desc.q_num_heads = desc.kv_num_heads = counts.heads;
    desc.head_size = 128;
    desc.context = long_context;
    try {
        return ask(desc);
    } catch (const std::runtime_error& refused) {
        desc.context = short_context;
        try {
            return ask(desc);
        } catch (const std::runtime_error&) {
            throw refused;
        }
    }
}

CacheMeaning meaning_of(const winnow_api& api, const winnow_cache_api& caches, winnow_context* context,
                        const winnow_cache_desc& desc) {
    winnow_cache_info info{};
    info.struct_size = sizeof info;
    const auto ask = [&] {
        if (caches.describe(context, &desc, &info) != WINNOW_OK) throw std::runtime_error(api.context_message(context));
    };
    const auto give_room = [](std::string& text, char*& target, uint64_t size) {
        text.resize(size);
        target = text.data();
    };
    ask(); // for the counts of the arrays, then for the sizes of all strings, then for all
    std::vector resources = structs<winnow_wanted_resource>(info.resource_count);
    std::vector segments = structs<winnow_cache_segment>(info.segment_count);
    info.resources = resources.data();
    info.resource_capacity = resources.size();
    info.resource_stride = sizeof resources.front();
    info.segments = segments.data();
    info.segment_capacity = segments.size();
    info.segment_stride = sizeof segments.front();
    ask();
    CacheMeaning meaning;
    give_room(meaning.config, info.config, info.config_size);
    give_room(meaning.storage_config, info.storage_config, info.storage_config_size);
    meaning.resources.resize(resources.size());
    for (size_t i = 0; i < resources.size(); ++i)
        give_room(meaning.resources[i].path, resources[i].path, resources[i].path_size);
    ask();
    for (std::string* text : {&meaning.config, &meaning.storage_config}) text->pop_back(); // the zero at the end
    for (size_t i = 0; i < resources.size(); ++i) {
        meaning.resources[i].name = resources[i].name;
        meaning.resources[i].path.pop_back();
    }
    meaning.policy = info.policy;
    meaning.sinks = info.sink;
    meaning.budget_tokens = info.budget_tokens;
    for (const winnow_cache_segment& each : segments)
        meaning.segments.push_back({each.tokens, each.k_type, each.v_type});
    meaning.evicts = (info.properties & WINNOW_CACHE_EVICTS) != 0;
    return meaning;
}

Resources::Resources(const CacheMeaning& meaning, const std::vector<std::string>& layers, int64_t kv_heads) {
    for (const WantedResource& wanted : meaning.resources) {
        const Reader& reader = reader_of(wanted.name);
        std::vector<std::byte> contents = reader.read(wanted.path, layers, kv_heads);
        if (contents.empty()) continue;
        resources_.push_back({sizeof(winnow_resource), 0, reader.name, contents.data(), contents.size()});
        contents_.push_back(std::move(contents));
    }
}

void Resources::hand_to(winnow_cache_desc& desc) const {
    desc.resources = resources_.data();
    desc.resource_count = resources_.size();
    desc.resource_stride = sizeof(winnow_resource);
}

} // namespace winnow::ggml
