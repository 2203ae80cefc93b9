// Asking for the sizes of the strings, and then for the strings.
#include "cache_meaning.hpp"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <string>

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
    ask();
    CacheMeaning meaning;
    const auto give_room = [](std::string& text, char*& target, uint64_t size) {
        text.resize(size);
        target = text.data();
    };
    give_room(meaning.config, info.config, info.config_size);
    give_room(meaning.storage_config, info.storage_config, info.storage_config_size);
    give_room(meaning.profile_file, info.profile_file, info.profile_file_size);
    ask();
    for (std::string* text : {&meaning.config, &meaning.storage_config, &meaning.profile_file})
        text->pop_back(); // the zero at the end
    meaning.policy = info.policy;
    meaning.sinks = info.sink;
    meaning.budget_tokens = info.budget_tokens;
    for (size_t i = 0; i < std::size(info.segment_tokens) && info.segment_k_types[i] != 0; ++i)
        meaning.segments.push_back({info.segment_tokens[i], info.segment_k_types[i], info.segment_v_types[i]});
    meaning.needs_network = (info.properties & WINNOW_CACHE_NEEDS_NETWORK) != 0;
    meaning.needs_codebooks = (info.properties & WINNOW_CACHE_NEEDS_CODEBOOKS) != 0;
    meaning.evicts = (info.properties & WINNOW_CACHE_EVICTS) != 0;
    return meaning;
}

void FileContents::hand_to(winnow_cache_desc& desc) const {
    desc.profile = profile.empty() ? nullptr : profile.data();
    desc.network = network.empty() ? nullptr : network.data();
    desc.network_count = network.size();
    desc.codebooks = codebooks.empty() ? nullptr : codebooks.data();
    desc.codebooks_size = codebooks.size();
}

FileContents read_file_of(const CacheMeaning& meaning, const std::vector<std::string>& layers, int64_t kv_heads) {
    if (meaning.needs_network) return {{}, read_network(meaning.profile_file, layers, kv_heads), {}};
    if (meaning.needs_codebooks) return {{}, {}, read_codebook_file(meaning.profile_file, layers)};
    return {read_profile(meaning.profile_file, layers), {}, {}};
}

} // namespace winnow::ggml
