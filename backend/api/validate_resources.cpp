// From the resources of winnow_cache_desc to what a cache makes of them.
#include <bit>
#include <cmath>
#include <span>
#include <string_view>

#include "api/structs.hpp"
#include "api/validate_cache.hpp"
#include "cache/plan/codebooks.hpp"
#include "device/network.hpp"

namespace winnow::api {
namespace {

using Bytes = std::span<const std::byte>;

// Little-endian doubles, of any alignment: `count` for each layer, or for each KV head of each layer.
std::vector<double> numbers_of(Bytes bytes, const char* each, int64_t all_of_them, int64_t count) {
    const auto all = static_cast<size_t>(all_of_them * count);
    if (bytes.size() != all * sizeof(double))
        invalid("size is " + std::to_string(bytes.size()) + ", expected " + std::to_string(all * sizeof(double)) +
                ": of each " + each + ", " + std::to_string(all_of_them) + " in all, " + std::to_string(count) +
                " doubles");
    std::vector<double> numbers;
    numbers.reserve(all);
    for (size_t at = 0; at < bytes.size(); at += sizeof(double)) {
        uint64_t bits = 0;
        for (size_t i = 0; i < sizeof bits; ++i) bits |= std::to_integer<uint64_t>(bytes[at + i]) << 8 * i;
        numbers.push_back(std::bit_cast<double>(bits));
    }
    return numbers;
}

void add_profile(cache::CacheRequest& request, Bytes bytes) {
    const std::vector<double> numbers = numbers_of(bytes, "layer", request.shape.layer_count(), 3);
    for (size_t at = 0; at < numbers.size(); ++at)
        if (!std::isfinite(numbers[at]))
            invalid("profile[" + std::to_string(at) + "] is " + std::to_string(numbers[at]) +
                    ", expected a finite number");
    for (size_t at = 0; at < numbers.size(); at += 3)
        request.profile.push_back({numbers[at], numbers[at + 1], numbers[at + 2]});
}

void add_network(cache::CacheRequest& request, Bytes bytes) {
    int64_t heads = 0;
    for (const cache::LayerShape& each : request.shape.layers) heads += each.kv_heads;
    const std::vector<double> numbers = numbers_of(bytes, "KV head", heads, network_numbers);
    for (size_t at = 0; at < numbers.size(); ++at) {
        if (!(std::fabs(numbers[at]) <= largest_network_number))
            invalid("network[" + std::to_string(at) + "] is " + std::to_string(numbers[at]) +
                    ", expected a number of at most " + std::to_string(static_cast<int64_t>(largest_network_number)) +
                    " in size");
        request.network.push_back(static_cast<float>(numbers[at]));
    }
}

void add_codebooks(cache::CacheRequest& request, Bytes bytes) {
    request.codebooks = std::make_shared<std::vector<uint16_t>>(cache::read_codebooks(bytes, request.shape));
}

constexpr struct KnownResource {
    std::string_view name;
    void (*add)(cache::CacheRequest& request, Bytes bytes);
} known_resources[] = {{"profile", add_profile}, {"network", add_network}, {"codebooks", add_codebooks}};

const KnownResource& known_resource(const char* name) {
    for (const KnownResource& each : known_resources)
        if (name != nullptr && each.name == name) return each;
    const std::string given = name != nullptr ? "\"" + std::string(name) + "\"" : "NULL";
    invalid("name is " + given + ", expected profile, network or codebooks");
}

} // namespace

void add_resources(cache::CacheRequest& request, const winnow_cache_desc& given) {
    const HostArray<const winnow_resource> resources = {given.resources, given.resource_count, given.resource_stride,
                                                        "resources", "resource"};
    std::vector<std::string_view> seen;
    for_each_element(resources, [&](const winnow_resource& element) {
        const winnow_resource resource = read_struct(&element, "resource");
        check_reserved(resource.reserved, "resource");
        const KnownResource& known = known_resource(resource.name);
        if (std::find(seen.begin(), seen.end(), known.name) != seen.end())
            invalid("name is \"" + std::string(known.name) + "\" a second time, expected each name once");
        seen.push_back(known.name);
        if (resource.data == nullptr && resource.size > 0)
            invalid("data is NULL, expected " + std::to_string(resource.size) + " bytes");
        known.add(request, {static_cast<const std::byte*>(resource.data), resource.size});
    });
}

} // namespace winnow::api
