// The grammar of configurations, and the keys that all policies share.
#include "cache/plan/config.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "device/device.hpp"

namespace winnow::cache {
namespace {

constexpr Key budget_key = {"budget", Kind::budget, "1/4",
                            "limit for each KV head: share of the context, or tokens; or bytes of a whole sequence"};

constexpr std::array storage_keys = {
    Key{"k", Kind::format, "f16", "storage format of keys"},
    Key{"v", Kind::format, "f16", "storage format of values"},
    Key{"residual", Kind::count, "", "newest tokens kept dense; default 48, or less for a small budget (see below)", "",
        0, 1 << 16},
    Key{"sink", Kind::count, "4", "first tokens, kept dense and never evicted", "", 0, 1 << 16},
    Key{"cadence", Kind::count, "", "tokens between eviction passes; default 32, or less (see below)", "", 1, 1 << 16},
    Key{"center", Kind::word, "off", "subtract each head's mean of K and of V before packing", "off|on"},
    Key{"k_norm", Kind::word, "corrected", "norm that turbo formats store for keys", "plain|corrected|unit_slope"},
    Key{"v_norm", Kind::word, "corrected", "norm that turbo formats store for values", "plain|corrected|unit_slope"},
    Key{"share2", Kind::share, "", "share of the budget's tokens in a second packed segment; default: none"},
    Key{"k2", Kind::format, "", "storage format of its keys; default: that of k"},
    Key{"v2", Kind::format, "", "storage format of its values; default: that of v"},
    Key{"share3", Kind::share, "", "share of the budget's tokens in a third packed segment; default: none"},
    Key{"k3", Kind::format, "", "storage format of its keys; default: that of k2"},
    Key{"v3", Kind::format, "", "storage format of its values; default: that of v2"},
    Key{"fine", Kind::layers, "", "layers, or KV heads of them, stored in k_fine and v_fine; default: none"},
    Key{"k_fine", Kind::format, "", "storage format of their keys; default: that of k"},
    Key{"v_fine", Kind::format, "", "storage format of their values; default: that of v"},
    Key{"coarse", Kind::layers, "", "layers, or KV heads of them, stored in k_coarse and v_coarse; default: none"},
    Key{"k_coarse", Kind::format, "", "storage format of their keys; default: that of k"},
    Key{"v_coarse", Kind::format, "", "storage format of their values; default: that of v"},
    Key{"sparse_v", Kind::number, "0", "a value with a smaller probability may be skipped", "", 0, 0.5},
    Key{"elastic", Kind::word, "off", "set small elements to zero; a preset of zero_k and zero_v",
        "off|on|sweet|aggressive|k_only"},
    Key{"zero_k", Kind::number, "", "scale of the keys' threshold; on and k_only 0.35, sweet 0.45, aggressive 0.5", "",
        0, 16},
    Key{"zero_v", Kind::number, "", "scale of the values' threshold; on 0.17, sweet and aggressive 0.5, k_only 0", "",
        0, 16},
    Key{"zero_sink", Kind::count, "64", "first tokens that are never zeroed", "", 0, 1 << 24},
    Key{"zero_every", Kind::count, "64", "tokens between zeroing passes", "", 1, 1 << 24},
    Key{"zero_after", Kind::count, "128", "tokens that a layer has seen before its first zeroing pass", "", 0, 1 << 24},
};

Norm norm_of(std::string_view word) {
    return word == "plain" ? Norm::plain : word == "corrected" ? Norm::corrected : Norm::unit_slope;
}

struct TierKeys {
    const char *share, *k, *v, *name;
};
constexpr TierKeys lower_keys[] = {{"share2", "k2", "v2", "second"}, {"share3", "k3", "v3", "third"}};

// A lower packed segment has a share, which leaves those above it something, and is below one that there is.
void check_lower(const Config& config) {
    const std::string where = std::string(config.policy().name) + ": ";
    if (config.policy().has_schedule) {
        for (const TierKeys& keys : lower_keys)
            if (config.has(keys.share))
                refuse(where + keys.share + "=" + spell(config.at(keys.share)) +
                       " cannot divide the tokens: their age decides which are in the " + keys.name +
                       " packed segment");
        return;
    }
    for (const TierKeys& keys : lower_keys) {
        if (config.has(keys.share)) continue;
        for (const char* key : {keys.k, keys.v})
            if (config.has(key))
                refuse(where + key + "=" + config.word(key) + " is of a " + keys.name + " packed segment, and " +
                       keys.share + " does not say how much of the budget that has: expected " + keys.share +
                       "=, such as " + keys.share + "=1/2");
    }
    if (!config.has("share2")) {
        if (config.has("share3"))
            refuse(where + "share3 is of a third packed segment, and there is no second one: expected share2=, too");
        return;
    }
    if (config.recalls())
        refuse(where + "with recall=" + config.word("recall") +
               " packed tokens lie in the cold tier, and share2 would divide them among segments");
    for (const TierKeys& keys : lower_keys)
        if (config.has(keys.share) && config.amount(keys.share).share.part == 0)
            refuse(where + keys.share + "=0/1 leaves the " + keys.name + " packed segment no token: expected more");
    Share left = {1, 1}; // exact: parts and wholes are at most 2^20
    for (const LowerTier& tier : config.lower())
        left = {left.part * tier.share.whole - tier.share.part * left.whole, left.whole * tier.share.whole};
    if (left.part <= 0) {
        std::string shares = "share2=" + spell(config.at("share2"));
        if (config.has("share3")) shares += " and share3=" + spell(config.at("share3"));
        refuse(where + shares + " leave the first packed segment nothing of the budget: expected less than 1 together");
    }
}

struct LayerKeys {
    const char *layers, *k, *v;
};
constexpr LayerKeys layer_keys[] = {{"fine", "k_fine", "v_fine"}, {"coarse", "k_coarse", "v_coarse"}};

void check_layers(const Config& config) {
    const std::string where = std::string(config.policy().name) + ": ";
    for (const LayerKeys& keys : layer_keys) {
        if (!config.has(keys.layers)) {
            for (const char* key : {keys.k, keys.v})
                if (config.has(key))
                    refuse(where + key + "=" + config.word(key) + " is the format of the layers in " + keys.layers +
                           "=, which is not given: expected " + keys.layers + "=, such as " + keys.layers + "=0-1");
            continue;
        }
        const std::string given = std::string(keys.layers) + "=" + config.word(keys.layers);
        if (!config.has(keys.k) && !config.has(keys.v))
            refuse(where + given + " has no format of its own: expected " + keys.k + "= or " + keys.v + "=");
        if (config.recalls())
            refuse(where + given + ": with recall=" + config.word("recall") +
                   " the packed rows of all layers have the same formats");
    }
    if (!config.has("fine") || !config.has("coarse")) return;
    const std::vector<LayerHeads> coarse = layers_of(config.word("coarse"));
    for (const LayerHeads& fine : layers_of(config.word("fine")))
        for (const LayerHeads& other : coarse) {
            if (other.layer != fine.layer) continue;
            const uint64_t both = fine.heads & other.heads;
            const bool is_whole = fine.heads == 0 || other.heads == 0;
            if (!is_whole && both == 0) continue;
            std::string reason = where;
            if (!is_whole) reason.append("KV head ").append(std::to_string(std::countr_zero(both))).append(" of ");
            reason.append("layer ").append(std::to_string(fine.layer)).append(" is in fine= and in coarse=");
            refuse(reason);
        }
}

// Zeroing is of rows as they are, which lie in memory.
void check_elastic(const Config& config, const std::map<std::string, Value, std::less<>>& given,
                   const std::map<std::string, Value, std::less<>>& defaults) {
    const std::string where = std::string(config.policy().name) + ": ";
    if (config.word("elastic") == "off") {
        for (const std::string_view key : {"zero_k", "zero_v", "zero_sink", "zero_every", "zero_after"}) {
            const auto value = given.find(key);
            if (value == given.end()) continue;
            const auto otherwise = defaults.find(key);
            if (otherwise == defaults.end() || otherwise->second != value->second)
                refuse(where + std::string(key) + " is a key of elastic, and elastic=off");
        }
        return;
    }
    const Zeroing zeroing = config.zeroing();
    if (!zeroing) refuse(where + "elastic=" + config.word("elastic") + " with scales of 0 zeroes nothing");
    if (config.recalls())
        refuse(where + "with recall=" + config.word("recall") +
               " rows lie in the cold tier, where elastic= would not find them");
    if (!config.center()) return;
    std::vector<LowerTier> tiers = {{config.k(), config.v(), {}, 0, 1}};
    for (const FormatsOfLayers& each : config.formats_of_layers()) tiers.push_back({each.k, each.v, {}, 0, 1});
    std::rotate(tiers.begin(), tiers.begin() + 1, tiers.end()); // the last is what those below begin with
    for (const TierKeys& keys : lower_keys) {
        LowerTier tier = tiers.back();
        if (config.has(keys.k)) tier.k = format_of(config.word(keys.k));
        if (config.has(keys.v)) tier.v = format_of(config.word(keys.v));
        tiers.push_back(tier);
    }
    for (const LowerTier& tier : tiers)
        if ((zeroing.k > 0 && !is_packed(tier.k)) || (zeroing.v > 0 && !is_packed(tier.v)))
            refuse(where + "with center=on rows of " + format_name(!is_packed(tier.k) ? tier.k : tier.v) +
                   " are stored less their means, and elastic= would zero what is left of them");
}

// Keys that say which tokens are evicted.
constexpr std::string_view eviction_keys[] = {"recent", "decay", "statistic", "window_from", "grace", "every"};

// Recall evicts by age alone.
void check_recall(const Config& config, const std::map<std::string, Value, std::less<>>& given) {
    if (!config.recalls()) {
        for (const std::string_view key : {"cold", "page", "signature", "codebook_file", "bonus", "newest", "picked"})
            if (given.contains(key))
                refuse(std::string(config.policy().name) + ": " + std::string(key) +
                       " is a key of recall, and recall=off");
        return;
    }
    const std::string where = std::string(config.policy().name) + ": with recall=" + config.word("recall") + " ";
    for (const std::string_view key : eviction_keys)
        if (given.contains(key))
            refuse(where + "only the oldest tokens are evicted, by cold=, and " + std::string(key) +
                   "= cannot choose others");
    if (config.recall_budget().unit == Amount::Unit::tokens)
        refuse(where +
               "tokens stay in the cold tier, and the budget is of bytes: expected bytes or a share of what keys and "
               "values would be in F16, got budget=" +
               spell(config.recall_budget()) + "; cold= says how many tokens stay");
    if (given.contains("codebook_file") && config.signature_kind() != SignatureKind::codes)
        refuse(where + "codebook_file=" + config.word("codebook_file") +
               " is of signatures of codes, expected signature=codes, too");
    if (config.signature_kind() == SignatureKind::codes && config.center())
        refuse(where +
               "signature=codes needs the keys themselves, but center=on subtracts their mean before they are stored");
    if (config.count("page") == 3) refuse(where + "page=3: expected 1, 2 or 4 tokens");
}

std::string names_of(const std::vector<Key>& keys) {
    std::vector<std::string> names;
    names.reserve(keys.size());
    for (const Key& key : keys) names.emplace_back(key.name);
    return join(names);
}

// Reads "key=value" into given; keys that are said twice, by whatever name, are refused.
void read_pair(std::string_view policy, const std::vector<Key>& keys, std::string_view pair,
               std::map<std::string, Value, std::less<>>& given) {
    const std::string where = std::string(policy) + ": ";
    const size_t equals = pair.find('=');
    if (equals == std::string_view::npos) refuse(where + quote(pair) + " is not key=value");
    const std::string_view name = pair.substr(0, equals);
    const auto key = std::find_if(keys.begin(), keys.end(), [&](const Key& each) { return each.name == name; });
    if (key == keys.end() && name == "recall")
        refuse(where + "recall keeps every token, or by cold= the newest ones, and this policy says which are "
                       "evicted: expected winnow:recall=");
    if (key == keys.end()) refuse(where + "no key " + quote(name) + "; there are " + names_of(keys));
    const char* const canonical = key->stands_for != nullptr ? key->stands_for : key->name;
    Value value;
    try {
        value = parse_value(*key, pair.substr(equals + 1));
    } catch (const Error& error) {
        refuse(where + error.what());
    }
    if (!given.emplace(canonical, std::move(value)).second)
        refuse(where + quote(name) + " is given twice" +
               (canonical == name ? "" : ", as it is another name of " + std::string(canonical)));
}

} // namespace

std::vector<Key> keys_of(const PolicyKind& kind) {
    std::vector<Key> keys;
    if (kind.evicts) keys.push_back(budget_key);
    keys.insert(keys.end(), storage_keys.begin(), storage_keys.end());
    for (const Key& own : kind.keys) {
        const auto common = std::find_if(keys.begin(), keys.end(),
                                         [&](const Key& each) { return std::string_view(each.name) == own.name; });
        if (common != keys.end())
            *common = own;
        else
            keys.push_back(own);
    }
    return keys;
}

Config::Config(const PolicyKind& policy) : policy_(&policy) {
    for (const Key& key : keys_of(policy))
        if (*key.fallback != 0) defaults_.emplace(key.name, parse_value(key, key.fallback));
}

const Value& Config::at(std::string_view key) const {
    const auto found = given_.find(key);
    if (found != given_.end()) return found->second;
    const auto otherwise = defaults_.find(key);
    if (otherwise == defaults_.end())
        throw Error(WINNOW_ERROR_INTERNAL,
                    std::string(policy_->name) + " has no value for its key " + std::string(key));
    return otherwise->second;
}

bool Config::has(std::string_view key) const { return given_.contains(key) || defaults_.contains(key); }

Norm Config::k_norm() const { return norm_of(word("k_norm")); }

Norm Config::v_norm() const { return norm_of(word("v_norm")); }

SignatureKind Config::signature_kind() const {
    return recalls() && word("signature") == "codes" ? SignatureKind::codes : SignatureKind::signs;
}

bool Config::center() const { return word("center") == "on"; }

std::optional<std::string> Config::recall_folder() const {
    return recalls() && word("recall") != "host" ? std::optional(word("recall")) : std::nullopt;
}

std::optional<int64_t> Config::residual() const {
    return has("residual") ? std::optional(count("residual")) : std::nullopt;
}

std::optional<int64_t> Config::cadence() const {
    return has("cadence") ? std::optional(count("cadence")) : std::nullopt;
}

Amount Config::budget() const {
    if (recalls()) return amount("cold");
    return has("budget") ? amount("budget") : Amount{Amount::Unit::share, 0, {1, 1}};
}

std::vector<LowerTier> Config::lower() const {
    std::vector<LowerTier> all;
    LowerTier tier{k(), v(), {}};
    for (const TierKeys& keys : lower_keys) {
        if (!has(keys.share)) return all;
        tier.share = amount(keys.share).share;
        tier.number = 2 + static_cast<int>(all.size());
        if (has(keys.k)) tier.k = format_of(word(keys.k));
        if (has(keys.v)) tier.v = format_of(word(keys.v));
        all.push_back(tier);
    }
    return all;
}

std::vector<FormatsOfLayers> Config::formats_of_layers() const {
    std::vector<FormatsOfLayers> all;
    for (const LayerKeys& keys : layer_keys) {
        if (!has(keys.layers)) continue;
        FormatsOfLayers& its = all.emplace_back(FormatsOfLayers{keys.layers, layers_of(word(keys.layers)), k(), v()});
        if (has(keys.k)) its.k = format_of(word(keys.k));
        if (has(keys.v)) its.v = format_of(word(keys.v));
    }
    return all;
}

Zeroing Config::zeroing() const {
    const std::string& preset = word("elastic");
    if (preset == "off") return {};
    const bool is_on = preset == "on", is_k_only = preset == "k_only";
    Zeroing zeroing;
    zeroing.k = has("zero_k") ? number("zero_k") : is_on || is_k_only ? .35 : preset == "sweet" ? .45 : .5;
    zeroing.v = has("zero_v") ? number("zero_v") : is_on ? .17 : is_k_only ? 0 : .5;
    zeroing.sink = count("zero_sink");
    zeroing.every = count("zero_every");
    zeroing.after = count("zero_after");
    return zeroing;
}

bool Config::has_cold_budget() const { return recalls() && amount("cold") != Amount{Amount::Unit::share, 0, {1, 1}}; }

Config parse(std::string_view text) {
    const size_t colon = text.find(':');
    const std::string_view name = text.substr(0, colon);
    const PolicyKind* const kind = find_policy(name);
    if (kind == nullptr) {
        std::vector<std::string> names;
        for (const PolicyKind* each : policies()) names.emplace_back(each->name);
        refuse("no policy " + quote(name) + "; there are " + join(names));
    }
    Config config(*kind);
    const std::vector<Key> keys = keys_of(*kind);
    for (size_t begin = colon; begin < text.size();) {
        const size_t end = std::min(text.find(',', begin + 1), text.size());
        read_pair(name, keys, text.substr(begin + 1, end - begin - 1), config.given_);
        begin = end;
    }
    check_recall(config, config.given_);
    check_lower(config);
    check_layers(config);
    check_elastic(config, config.given_, config.defaults_);
    std::erase_if(config.given_, [&](const auto& pair) {
        const auto otherwise = config.defaults_.find(pair.first);
        return otherwise != config.defaults_.end() && otherwise->second == pair.second;
    });
    const Amount budget = config.budget();
    const std::optional<int64_t> residual = config.residual(), cadence = config.cadence();
    if (budget.unit == Amount::Unit::tokens && config.sink() + residual.value_or(0) >= budget.count)
        refuse(std::string(name) + ": sink=" + std::to_string(config.sink()) +
               " and residual=" + std::to_string(residual.value_or(0)) + " leave nothing of " +
               (config.recalls() ? "cold=" : "budget=") + std::to_string(budget.count) + ", expected more than " +
               std::to_string(config.sink() + residual.value_or(0)));
    if (residual && *residual > 0 && cadence && *cadence > *residual)
        refuse(std::string(name) + ": cadence=" + std::to_string(*cadence) +
               " is more than residual=" + std::to_string(*residual) + " holds: expected at most as much");
    make_policy(config); // refuses what contradicts itself
    return config;
}

std::string to_string(const Config& config) {
    std::string text = config.policy_->name;
    char separator = ':';
    for (const Key& key : keys_of(*config.policy_)) {
        const auto given = config.given_.find(key.name);
        if (given == config.given_.end()) continue;
        text.append(1, separator).append(key.name).append("=").append(spell(given->second));
        separator = ',';
    }
    return text;
}

Config with_policy(const Config& config, std::string_view policy) {
    const PolicyKind* const kind = find_policy(policy);
    if (kind == nullptr) throw Error(WINNOW_ERROR_INTERNAL, "no policy " + quote(policy));
    Config other(*kind);
    std::vector<const char*> common{budget_key.name};
    for (const Key& key : storage_keys) common.push_back(key.name);
    for (const char* name : common)
        if (config.has(name)) other.given_.insert_or_assign(name, config.at(name));
    return other;
}

std::string without_folder(Config config) {
    if (config.recall_folder()) config.given_.insert_or_assign("recall", std::string("host"));
    if (config.policy_->has_network) config.given_.erase("network_file");
    config.given_.erase("codebook_file");
    return to_string(config);
}

// A cadence alone fits the residual window that the budget led to, and not always the larger one of a whole context.
Config storage_of(const Config& config) {
    Config storage = with_policy(config, "none");
    storage.given_.erase(budget_key.name);
    if (!config.residual()) storage.given_.erase("cadence");
    for (const LayerKeys& keys : layer_keys) // numbers of another cache's layers say nothing of this one's
        for (const char* key : {keys.layers, keys.k, keys.v}) storage.given_.erase(key);
    for (const TierKeys& keys : lower_keys) // ages are the policy's
        for (const char* key : {keys.k, keys.v})
            if (config.policy().has_schedule) storage.given_.erase(key);
    return parse(to_string(storage)); // without what is a default of "none"
}

} // namespace winnow::cache
