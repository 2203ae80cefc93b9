// Reading the rules of WINNOW_KV.
#include "kv_rules.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace winnow::ggml {

namespace {

constexpr std::array<std::pair<std::string_view, int64_t CacheConditions::*>, 4> conditions{{
    {"layers", &CacheConditions::layers},
    {"kv_heads", &CacheConditions::kv_heads},
    {"head_size", &CacheConditions::head_size},
    {"cells", &CacheConditions::cells},
}};

[[noreturn]] void refuse(std::string_view rule, const std::string& reason) {
    throw std::runtime_error("rule \"" + std::string(rule) + "\": " + reason);
}

// What is before the separator; the rest stays.
std::string_view take(std::string_view& rest, char separator) {
    const size_t end = std::min(rest.find(separator), rest.size());
    const std::string_view first = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    return first;
}

int64_t parse_count(std::string_view rule, std::string_view condition, std::string_view digits) {
    int64_t count = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
    if (error != std::errc() || end != digits.data() + digits.size() || count < 1)
        refuse(rule, "condition \"" + std::string(condition) + "\", expected a number of at least 1 after =");
    return count;
}

void parse_condition(std::string_view rule, std::string_view condition, CacheConditions& where) {
    std::string_view rest = condition;
    const std::string_view name = take(rest, '=');
    const auto* found =
        std::find_if(conditions.begin(), conditions.end(), [&](const auto& one) { return one.first == name; });
    if (found == conditions.end())
        refuse(rule, "condition \"" + std::string(condition) + "\", expected layers=, kv_heads=, head_size= or cells=");
    if (where.*found->second != 0) refuse(rule, "a second condition \"" + std::string(name) + "\"");
    where.*found->second = parse_count(rule, condition, rest);
}

KvRule parse_rule(std::string_view rule) {
    KvRule made;
    std::string_view config = rule;
    if (rule.starts_with('[')) {
        const size_t end = rule.find(']');
        if (end == std::string_view::npos) refuse(rule, "no ] after its conditions");
        std::string_view list = rule.substr(1, end - 1);
        const bool ends_early = list.ends_with(',');
        do parse_condition(rule, take(list, ','), made.where);
        while (!list.empty());
        if (ends_early) refuse(rule, "no condition after the last ,");
        config = rule.substr(end + 1);
    }
    if (config.empty()) refuse(rule, "no configuration, expected one as winnow:budget=1/4");
    made.config = config;
    return made;
}

bool fits(const CacheConditions& where, const winnow_cache_desc& shape) {
    const auto is = [](int64_t asked, int64_t has) { return asked == 0 || asked == has; };
    return is(where.layers, shape.layers) && is(where.kv_heads, shape.kv_num_heads) &&
           is(where.head_size, shape.head_size) && is(where.cells, shape.cells);
}

} // namespace

std::vector<KvRule> parse_rules(const std::string& text) {
    if (!text.starts_with('[')) return {{{}, text}};
    std::vector<KvRule> rules;
    std::string_view rest = text;
    if (rest.ends_with(';')) refuse(rest, "no rule after the last ;");
    while (!rest.empty()) {
        const std::string_view rule = take(rest, ';');
        rules.push_back(parse_rule(rule));
        if (!rule.starts_with('[') && !rest.empty())
            refuse(rule, "it has no conditions and fits every cache, so that those after it are never reached");
    }
    return rules;
}

const std::string& config_for(const std::vector<KvRule>& rules, const winnow_cache_desc& shape) {
    const auto found =
        std::find_if(rules.begin(), rules.end(), [&](const KvRule& rule) { return fits(rule.where, shape); });
    if (found != rules.end()) return found->config;
    throw std::runtime_error("no rule of WINNOW_KV fits a cache of layers=" + std::to_string(shape.layers) +
                             ",kv_heads=" + std::to_string(shape.kv_num_heads) +
                             ",head_size=" + std::to_string(shape.head_size) + ",cells=" + std::to_string(shape.cells));
}

} // namespace winnow::ggml
