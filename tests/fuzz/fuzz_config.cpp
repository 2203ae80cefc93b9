// Configurations: what is accepted has one canonical spelling, estimate and create agree, and neither of them hangs.
//
//     shape (a byte, and more where it is hostile), then the string; after a newline another one for set_config
#include <algorithm>
#include <cstring>
#include <vector>

#include "../made_codebooks.hpp"
#include "backend.hpp"
#include "input.hpp"

using namespace winnow::fuzz;

namespace {

struct Request {
    winnow_cache_desc desc{};
    std::vector<double> profile;
    std::vector<uint8_t> codebooks;
    std::vector<winnow_resource> resources;
    int64_t tokens = 0;
};

void plain_shape(Input& input, winnow_cache_desc& desc) {
    static constexpr int64_t sizes[] = {64, 16, 32, 128, 100, 576, 640, 7};
    static constexpr int64_t contexts[] = {2048, 64, 300, 1, 40, 1 << 20, 1 << 30, 513};
    desc.layers = input.within(1, 4);
    desc.kv_num_heads = input.within(1, 3);
    desc.q_num_heads = desc.kv_num_heads * input.within(1, 2);
    desc.head_size = input.choice(sizes);
    desc.v_head_size = input.chance(64) ? input.choice(sizes) : 0;
    desc.context = input.choice(contexts);
    desc.cells = input.chance(48) ? std::min<int64_t>(input.choice(contexts), 2048) : 0;
}

void hostile_shape(Input& input, winnow_cache_desc& desc) {
    for (int64_t* field : {&desc.layers, &desc.kv_num_heads, &desc.q_num_heads, &desc.head_size, &desc.v_head_size,
                           &desc.context, &desc.cells}) {
        if (input.chance(64)) *field = input.hostile();
    }
    keep_small(desc.layers, 20, 1 << 16);
    keep_small(desc.cells, 1 << 12, 1 << 30);
}

void add_resource(Request& request, const char* name, const void* data, size_t size) {
    request.resources.push_back({sizeof(winnow_resource), 0, name, data, size});
    request.desc.resources = request.resources.data();
    request.desc.resource_count = request.resources.size();
    request.desc.resource_stride = sizeof(winnow_resource);
}

// As a cache takes them, or damaged: cut short, or with another byte.
void draw_codebooks(Input& input, Request& request, bool is_damaged) {
    winnow_cache_desc& desc = request.desc;
    const bool is_small = desc.layers > 0 && desc.layers <= 2 && desc.kv_num_heads > 0 && desc.kv_num_heads <= 2 &&
                          desc.head_size > 0 && desc.head_size <= 64;
    request.codebooks = is_small ? winnow::made_codebooks(desc.layers, desc.kv_num_heads, desc.head_size)
                                 : winnow::made_codebooks(1, 1, 16);
    if (is_damaged) {
        const int64_t at = input.within(0, 63);
        if (input.chance(128))
            request.codebooks.resize(static_cast<size_t>(at));
        else
            request.codebooks[static_cast<size_t>(at)] = input.byte();
    }
    request.codebooks.shrink_to_fit(); // no byte more
    add_resource(request, "codebooks", request.codebooks.data(), request.codebooks.size());
}

Request draw(Input& input) {
    Request request;
    winnow_cache_desc& desc = request.desc;
    desc.struct_size = sizeof desc;
    const uint8_t kind = input.byte();
    plain_shape(input, desc);
    if ((kind & 3) == 3) hostile_shape(input, desc);
    if ((kind & 4) != 0) {
        // The profile has no layers where their number is refused, because it is not read then.
        request.profile.assign(desc.layers > 0 && desc.layers <= 20 ? 3 * static_cast<size_t>(desc.layers) : 0, 0.5);
        for (size_t at = 0; at < std::min<size_t>(request.profile.size(), 12); ++at) {
            request.profile[at] = (kind & 8) != 0 ? input.number<double>() : input.byte() / 16.0;
        }
        add_resource(request, "profile", request.profile.data(), request.profile.size() * sizeof(double));
    }
    if ((kind & 32) != 0) draw_codebooks(input, request, (kind & 64) != 0);
    desc.max_sequences = input.within(0, 2);
    request.tokens = (kind & 16) != 0 ? input.hostile() : std::min<int64_t>(input.within(0, 999), desc.context);
    return request;
}

std::string canonical(winnow_context* context, const Request& request) {
    winnow_cache_info info{};
    info.struct_size = sizeof info;
    require(caches().describe(context, &request.desc, &info) == WINNOW_OK, "what a cache has is described");
    std::vector<char> text(info.config_size); // no byte more
    info.config = text.data();
    require(caches().describe(context, &request.desc, &info) == WINNOW_OK, "describe writes the canonical string");
    require(std::strlen(text.data()) + 1 == text.size(), "the size is that of the string");
    return text.data();
}

winnow_cache_stats stats_of(winnow_cache* cache) {
    winnow_cache_stats stats{};
    stats.struct_size = sizeof stats;
    require(caches().stats(cache, -1, &stats) == WINNOW_OK, "stats can be had");
    return stats;
}

bool is_same(const winnow_cache_stats& a, const winnow_cache_stats& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

int32_t estimate(winnow_context* context, const Request& request, winnow_cache_stats& stats) {
    stats = {};
    stats.struct_size = sizeof stats;
    const winnow_cache_stats before = stats;
    const int32_t status = caches().estimate(context, &request.desc, request.tokens, &stats);
    require(status == WINNOW_OK || is_same(stats, before), "an estimate that fails writes nothing");
    require(status == WINNOW_OK || !message_of(context).empty(), "a refusal has a reason");
    return status;
}

// All that create takes is described, and how it stores rows is a configuration of its own. Where describe refuses, it
// writes nothing.
void check_described(winnow_context* context, const Request& request, int32_t created) {
    winnow_cache_info info{};
    info.struct_size = sizeof info;
    const winnow_cache_info before = info;
    const int32_t status = caches().describe(context, &request.desc, &info);
    require(status == WINNOW_OK || !message_of(context).empty(), "a refusal has a reason");
    require(status == WINNOW_OK || std::memcmp(&info, &before, sizeof info) == 0, "a refused describe writes nothing");
    require(status == WINNOW_OK || created != WINNOW_OK, "describe takes what create takes");
    if (status != WINNOW_OK) return;
    std::vector<char> storage(info.storage_config_size); // no byte more
    info.storage_config = storage.data();
    require(caches().describe(context, &request.desc, &info) == WINNOW_OK, "describe can be repeated");
    require(std::strlen(storage.data()) + 1 == storage.size(), "the size is that of the string");
    Request stored = request;
    stored.desc.config = storage.data();
    winnow_cache_info other = before;
    require(caches().describe(context, &stored.desc, &other) == WINNOW_OK, "rows can be stored alone");
    require(other.properties == 0 && other.k_type == info.k_type && other.v_type == info.v_type, "and in this way");
}

// Another policy or budget: set_config takes the canonical string of what it took.
void change(winnow_context* context, winnow_cache* cache, Request request, const std::string& config) {
    const winnow_cache_stats stats = stats_of(cache);
    if (caches().set_config(cache, config.c_str()) != WINNOW_OK) {
        require(!message_of(context).empty(), "a refusal has a reason");
        require(is_same(stats_of(cache), stats), "a refused set_config leaves the cache");
        return;
    }
    request.desc.config = config.c_str();
    const std::string now = canonical(context, request);
    require(caches().set_config(cache, now.c_str()) == WINNOW_OK, "set_config takes the canonical string");
}

void check_canonical(winnow_context* context, Request request, winnow_cache* cache, const winnow_cache_stats& whole) {
    const std::string spelled = canonical(context, request);
    request.desc.config = spelled.c_str();
    winnow_cache_stats stats{};
    require(estimate(context, request, stats) == WINNOW_OK, "estimate takes the canonical string");
    require(is_same(stats, whole), "the canonical string is estimated as the one that was given");
    winnow_cache* other = nullptr;
    require(caches().create(context, &request.desc, &other) == WINNOW_OK, "create takes the canonical string");
    require(canonical(context, request) == spelled, "the canonical string is a fixed point");
    require(caches().destroy(other) == WINNOW_OK, "a cache can be destroyed");
    require(stats_of(cache).budget_bytes == whole.budget_bytes, "estimate and stats agree on the budget");
}

void check_sums(const winnow_cache_stats& stats) {
    require(stats.bytes == stats.k_bytes + stats.v_bytes + stats.dense_k_bytes + stats.dense_v_bytes +
                               stats.slot_map_bytes + stats.importance_bytes + stats.state_bytes +
                               stats.signature_bytes,
            "bytes are the sum of their parts");
    require(stats.peak_bytes >= stats.bytes, "the peak is no less than what there is");
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static winnow_context* const context = new_context();
    Input input(data, size);
    Request request = draw(input);
    const std::string first = input.text('\n');
    const std::string second = input.rest();
    request.desc.config = first.c_str();
    winnow_cache_stats stats{};
    const int32_t estimated = estimate(context, request, stats);
    winnow_cache* cache = nullptr;
    const int32_t created = caches().create(context, &request.desc, &cache);
    const int64_t most = request.desc.cells != 0 ? request.desc.cells : request.desc.context;
    const bool may_be_tokens = request.tokens >= 0 && request.tokens <= most;
    require(!may_be_tokens || created == estimated, "estimate and create give the same answer");
    check_described(context, request, created);
    if (created != WINNOW_OK) {
        require(cache == nullptr, "a refused create gives no cache");
        require(!message_of(context).empty(), "a refusal has a reason");
        return 0;
    }
    if (estimated == WINNOW_OK) {
        check_sums(stats);
        check_canonical(context, request, cache, stats);
    }
    if (!second.empty()) change(context, cache, request, second);
    require(caches().destroy(cache) == WINNOW_OK, "a cache can be destroyed");
    return 0;
}
