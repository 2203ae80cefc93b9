// Bytes and tokens of configurations.
#include "cache/plan/budget.hpp"

#include <algorithm>
#include <bit>
#include <map>

#include "device/device.hpp"
#include "device/network.hpp"
#include "device/pages.hpp"

namespace winnow::cache {
namespace {

constexpr uint64_t head_numbers = 4;     // of a HeadState
constexpr uint64_t state_alignment = 64; // bytes
constexpr int64_t usual_cadence = 32;
constexpr int64_t usual_residuals[] = {48, 32};
constexpr int64_t recall_residuals[] = {48, 32, 16}, least_recall_residual = std::end(recall_residuals)[-1];
constexpr int64_t recall_cadence = 8;        // dense rows are of the budget, too
constexpr int64_t longest_context = 1 << 24; // in which a residual window is looked for

__extension__ using Wide = unsigned __int128; // of products

// Of a layer's keys or values. Where layers are unlike, it says which one that is.
void check_format(const std::string& key, Type format, const Shape& shape, int64_t layer, bool are_keys) {
    const int64_t elements = are_keys ? shape.layer(layer).head_size : shape.layer(layer).v_head_size;
    const auto refuse_size = [&](const std::string& expected) {
        const bool are_alike = shape.unlike_layers().size() == 1;
        refuse(key + "=" + format_name(format) + " with " + (are_keys ? "head_size " : "v_head_size ") +
               std::to_string(elements) + (are_alike ? "" : " of layer " + std::to_string(layer)) + ": expected " +
               expected);
    };
    if (elements % row_multiple(format) != 0) refuse_size("a multiple of " + std::to_string(row_multiple(format)));
    if (is_rotated(format) && elements > largest_rotation) refuse_size("at most " + std::to_string(largest_rotation));
}

// In a layer. name: what follows "k" and "v" in the keys.
void check_formats(const std::string& name, Type k, Type v, const Shape& shape, int64_t layer) {
    check_format("k" + name, k, shape, layer, true);
    check_format("v" + name, v, shape, layer, false);
}

void check_layers(const Config& config, const Policy& policy, const Shape& shape) {
    for (const FormatsOfLayers& each : config.formats_of_layers()) {
        const std::string key = each.key;
        const std::string given = key + "=" + config.word(key) + ": ";
        if (each.layers.back().layer >= shape.layer_count())
            refuse(given + "the cache has " + std::to_string(shape.layers.size()) +
                   " layers, expected numbers from 0 to " + std::to_string(shape.layers.size() - 1));
        for (const LayerHeads& its : each.layers) {
            const LayerShape& layer = shape.layer(its.layer);
            check_formats("_" + key, each.k, each.v, shape, its.layer);
            if (its.heads == 0) continue;
            const std::string heads = "layer " + std::to_string(its.layer) + " has " + std::to_string(layer.kv_heads) +
                                      " KV heads, expected ";
            if (layer.kv_heads > most_listed_heads)
                refuse(given + heads + "at most " + std::to_string(most_listed_heads) + " where heads are named");
            if (layer.kv_heads < most_listed_heads && its.heads >> layer.kv_heads != 0)
                refuse(given + heads + "numbers from 0 to " + std::to_string(layer.kv_heads - 1) + " behind a point");
        }
        if (policy.divides_by_profile() && config.budget().unit == Amount::Unit::bytes)
            refuse(
                key + "=" + config.word(key) + " with " + config.policy().name +
                " and budget=" + spell(config.at("budget")) +
                ": bytes cannot be divided among layers that differ in tokens and formats, expected a share or tokens");
    }
}

Schedule schedule_of(const Config& config, const Policy& policy, const Shape& shape) {
    return policy.schedule(shape.context).value_or(Schedule{shape.context, config.lower()});
}

// What all of a cache's layers have in common, as far as it is known.
struct Common {
    const Config& config;
    const Schedule& schedule;
    const Shape& shape;
    bool importance;

    // Whether that is so of every layer.
    template <class Predicate>
    bool is_every_layer(Predicate predicate) const {
        const std::vector<int64_t> layers = shape.unlike_layers();
        return std::all_of(layers.begin(), layers.end(), [&](int64_t layer) { return predicate(shape.layer(layer)); });
    }
};

Layout layout_of(const Common& common, const LayerShape& shape, int64_t residual) {
    const Config& config = common.config;
    const StateLayout state = state_layout(config, shape, common.shape.cells, residual, common.importance);
    const auto heads = static_cast<uint64_t>(shape.kv_heads);
    const uint64_t beside_means = state.size - state.k_mean.size - state.v_mean.size;
    return {config.k(),
            config.v(),
            shape.head_size,
            shape.v_head_size,
            config.sink() + residual,
            common.importance,
            config.center(),
            (beside_means + heads - 1) / heads,
            common.schedule.lower};
}

// The formats of each layer's first packed segment, in which KV heads may have their own.
std::vector<std::vector<RowFormats>> formats_of_all(const Config& config, const Shape& shape) {
    std::vector<std::vector<RowFormats>> all;
    for (const LayerShape& each : shape.layers) all.push_back({{config.k(), config.v(), 0, each.kv_heads}});
    for (const FormatsOfLayers& each : config.formats_of_layers())
        for (const LayerHeads& its : each.layers) {
            const int64_t heads = shape.layer(its.layer).kv_heads;
            std::vector<RowFormats>& layer = all[static_cast<size_t>(its.layer)];
            if (its.heads == 0) {
                layer = {{each.k, each.v, 0, heads}};
                continue;
            }
            if (each.k == config.k() && each.v == config.v()) continue;
            const uint64_t every_head = heads < most_listed_heads ? (uint64_t{1} << heads) - 1 : ~uint64_t{0};
            RowFormats others = layer.front();
            others.heads = (others.heads == 0 ? every_head : others.heads) & ~its.heads;
            others.count = std::popcount(others.heads);
            layer.front() = others;
            const auto same = std::find_if(layer.begin() + 1, layer.end(), [&](const RowFormats& other) {
                return other.k == each.k && other.v == each.v;
            });
            if (same == layer.end()) {
                layer.push_back({each.k, each.v, its.heads, std::popcount(its.heads)});
            } else { // of the other list
                same->heads |= its.heads;
                same->count += std::popcount(its.heads);
            }
            if (others.count == 0) layer.erase(layer.begin());
            if (layer.size() == 1) layer.front().heads = 0;
        }
    return all;
}

// How its heads store their tokens: where not all do so alike, dense rows are of the formats that all would have.
std::vector<HeadsOf> heads_of_layer(const std::vector<RowFormats>& formats, const Layout& layout) {
    std::vector<HeadsOf> all;
    for (const RowFormats& each : formats) {
        HeadsOf& its = all.emplace_back(HeadsOf{layout, each.count});
        its.layout.k = each.k;
        its.layout.v = each.v;
        if (formats.size() > 1) its.layout.dense = {dense_format(layout.k), dense_format(layout.v)};
    }
    return all;
}

// The same of all layers, of which those are taken together that are alike.
std::vector<HeadsOf> all_heads(const Common& common, int64_t residual) {
    const std::vector<std::vector<RowFormats>> formats = formats_of_all(common.config, common.shape);
    std::map<std::pair<LayerShape, std::vector<RowFormats>>, int64_t> layers; // how many there are
    for (size_t layer = 0; layer < formats.size(); ++layer) ++layers[{common.shape.layers[layer], formats[layer]}];
    std::vector<HeadsOf> all;
    for (const auto& [kind, count] : layers)
        for (HeadsOf each : heads_of_layer(kind.second, layout_of(common, kind.first, residual))) {
            each.count *= count;
            all.push_back(each);
        }
    return all;
}

int64_t budget_tokens(const Common& common, int64_t residual) {
    const Amount& budget = common.config.budget();
    if (budget.unit == Amount::Unit::bytes)
        return tokens_in(all_heads(common, residual), static_cast<uint64_t>(budget.count), common.schedule.tokens);
    return std::min(tokens_of(budget, common.shape.context), common.schedule.tokens);
}

std::string what_holds(const Config& config, int64_t tokens) {
    const char* const key = config.recalls() ? "cold" : "budget";
    const std::string budget = config.has(key) ? std::string(key) + "=" + spell(config.at(key)) : "the context";
    const char* const is = config.policy().has_schedule ? ", by age, is " : " is ";
    return config.policy().name + (": " + budget) + is + std::to_string(tokens) + " tokens of a KV head";
}

// Whether the dense rows take no more than half of the bytes of so many tokens.
bool leaves_half(const Layout& layout, int64_t tokens) {
    const Bytes bytes = bytes_of(layout, tokens);
    return tokens > layout.dense_rows && 2 * (bytes.dense_k + bytes.dense_v) <= bytes.total();
}

// Under recall: whether in this layer the dense rows take at most a third of what signatures leave of the budget.
bool leaves_two_thirds(const Common& common, const LayerShape& layer, int64_t residual, int64_t tokens) {
    const Config& config = common.config;
    const auto of_head = static_cast<int64_t>(recall_budget(config, common.shape, layer)) / layer.kv_heads;
    const Bytes bytes = bytes_of(layout_of(common, layer, residual), tokens);
    const int64_t block = block_pages * config.count("page"), packed = tokens - config.sink() - residual,
                  signatures = (std::max(packed, common.shape.cells) + block - 1) / block *
                               signature_block_bytes(layer.head_size, config.signature_kind()),
                  dense = static_cast<int64_t>(bytes.dense_k + bytes.dense_v);
    return 3 * dense <= of_head - signatures;
}

// Under recall: the largest residual window that does so in every layer, or the least one; 0 where that leaves nothing
// of `cold`.
int64_t recall_residual(const Common& common) {
    const Config& config = common.config;
    for (const int64_t residual : recall_residuals) {
        const int64_t tokens = budget_tokens(common, residual), packed = tokens - config.sink() - residual;
        // An eviction pass under cold= takes twice the residual window or more, which are to be few of what there is.
        const bool takes_many = config.has_cold_budget() && residual != least_recall_residual && packed <= 8 * residual;
        if (packed <= 0 || takes_many) continue;
        const auto suits = [&](const LayerShape& each) { return leaves_two_thirds(common, each, residual, tokens); };
        if (residual == least_recall_residual || common.is_every_layer(suits)) return residual;
    }
    return 0;
}

// The residual window that was asked for, else the largest whose dense rows leave the packed ones half of the bytes,
// in layers without formats of their own.
int64_t residual_of(const Common& common) {
    const Config& config = common.config;
    if (config.residual()) {
        const int64_t tokens = budget_tokens(common, *config.residual());
        if (config.sink() + *config.residual() >= tokens)
            refuse(what_holds(config, tokens) + ", expected more than sink=" + std::to_string(config.sink()) +
                   " and residual=" + std::to_string(*config.residual()));
        return *config.residual();
    }
    if (config.recalls()) return recall_residual(common);
    for (const int64_t residual : usual_residuals) {
        const int64_t tokens = budget_tokens(common, residual);
        const auto suits = [&](const LayerShape& each) {
            return leaves_half(layout_of(common, each, residual), tokens);
        };
        if (common.is_every_layer(suits)) return residual;
    }
    return 0;
}

int64_t cadence_of(const Config& config, int64_t residual, int64_t tokens) {
    if (config.cadence()) return *config.cadence();
    const int64_t passes = residual > 0 ? 2 * residual / 3 : usual_cadence; // 16 of 48 stay dense
    return std::max<int64_t>(std::min({config.recalls() ? recall_cadence : usual_cadence, passes, tokens / 8}), 1);
}

// The packed segment that would have too few slots of so many tokens; NULL: there is none.
const char* lacking_tier(const Plan& plan, int64_t tokens) {
    static constexpr const char* names[most_tiers] = {"first", "second", "third"};
    if (plan.lower.empty()) return nullptr;
    const auto parts = divide(plan.lower, tokens, plan.sink + plan.residual);
    for (size_t i = 0; i <= plan.lower.size(); ++i)
        if (parts[i] < (i < plan.lower.size() ? plan.cadence : 1)) return names[i];
    return nullptr;
}

// All sizes but the bytes, where each slot has an importance or none does.
Plan sizes(const Config& config, const Policy& policy, const Shape& shape, std::span<const LayerProfile> profile,
           bool importance) {
    Plan made;
    made.sink = config.sink();
    const Schedule schedule = schedule_of(config, policy, shape);
    const Common common{config, schedule, shape, importance};
    made.residual = residual_of(common);
    const int64_t dense_rows = made.sink + made.residual;
    made.tokens = budget_tokens(common, made.residual);
    if (made.tokens <= dense_rows)
        refuse(what_holds(config, made.tokens) + ", expected more than sink=" + std::to_string(made.sink));
    // Ages that the budget does not reach need no segment.
    made.lower = schedule.lower;
    while (!made.lower.empty() && made.lower.back().after >= made.tokens) made.lower.pop_back();
    made.cadence = cadence_of(config, made.residual, made.tokens);
    int64_t least = std::min(dense_rows + made.cadence, made.tokens);
    // Layers of unlike budgets have shares of them; ages divide those of all layers alike.
    while (!config.policy().has_schedule && least < made.tokens && lacking_tier(made, least) != nullptr) ++least;
    made.layer_tokens = policy.budgets(shape.layer_count(), made.tokens, least, shape.context, profile);
    return made;
}

// What an eviction pass moves goes through every packed segment but the last.
void check_tiers(const Config& config, const Plan& plan, int64_t layer) {
    const int64_t tokens = plan.layer_tokens[static_cast<size_t>(layer)], dense_rows = plan.sink + plan.residual;
    const char* const which = lacking_tier(plan, tokens);
    if (which == nullptr) return;
    const auto parts = divide(plan.lower, tokens, dense_rows);
    std::string text = what_holds(config, tokens) + " in layer " + std::to_string(layer) + ": " +
                       std::to_string(dense_rows) + " are sinks and residual window, and the packed segments have";
    for (size_t i = 0; i <= plan.lower.size(); ++i) text += (i > 0 ? ", " : " ") + std::to_string(parts[i]);
    refuse(text + "; the " + which + " packed segment is too small: expected at least a cadence, " +
           std::to_string(plan.cadence) + " tokens, in each but the last, and 1 in the last");
}

bool keeps_importance(const Policy& policy, const Plan& plan, const Shape& shape) {
    for (int64_t layer = 0; layer < shape.layer_count(); ++layer)
        if (policy.keeps_importance(context_of(plan, shape, layer))) return true;
    return false;
}

// What comes between two eviction passes has to fit the residual window.
void check_cadence(const Config& config, const Plan& plan) {
    if (plan.residual == 0 || plan.cadence <= plan.residual) return;
    refuse(std::string(config.policy().name) + ": cadence=" + std::to_string(plan.cadence) +
           " is more than the residual window of " + std::to_string(plan.residual) +
           " holds: expected at most as much");
}

// A full head has to have as many tokens to evict as come until the next eviction pass.
void check_room(const Config& config, const Description& description, int64_t layer) {
    const int64_t kept = description.sink + std::max(description.recent, description.grace);
    if (kept + description.cadence <= description.budget) return;
    refuse(what_holds(config, description.budget) + " in layer " + std::to_string(layer) + ", expected at least " +
           std::to_string(kept + description.cadence) + ": " + std::to_string(description.sink) + " sinks, " +
           std::to_string(kept - description.sink) + " newest that stay, and " + std::to_string(description.cadence) +
           " that come before the next eviction pass");
}

} // namespace

uint64_t recall_budget(const Config& config, const Shape& shape, const LayerShape& layer) {
    const Amount& budget = config.recall_budget();
    if (budget.unit == Amount::Unit::bytes) {
        const Wide its = full_bytes(layer, 1), all = full_bytes(shape, 1);
        return static_cast<uint64_t>(static_cast<Wide>(budget.count) * its / all);
    }
    return static_cast<uint64_t>(floor_of(budget.share, static_cast<int64_t>(full_bytes(layer, shape.context))));
}

int64_t most_free_listed(const Config& config) { return config.cadence().value_or(usual_cadence); }

void place_part(StateLayout::Range& part, uint64_t bytes, uint64_t& end) {
    part = {end, bytes};
    end += (bytes + state_alignment - 1) / state_alignment * state_alignment;
}

StateLayout state_layout(const Config& config, const LayerShape& shape, int64_t cells, int64_t residual,
                         bool importance) {
    StateLayout layout;
    const auto heads = static_cast<uint64_t>(shape.kv_heads);
    const auto place = [&](StateLayout::Range& part, uint64_t numbers) { place_part(part, 4 * numbers, layout.size); };
    place(layout.head_state, heads * head_numbers);
    if (importance) place(layout.output_sum, heads * static_cast<uint64_t>(shape.v_head_size));
    if (config.center()) {
        place(layout.k_mean, heads * static_cast<uint64_t>(shape.head_size));
        place(layout.v_mean, heads * static_cast<uint64_t>(shape.v_head_size));
    }
    if (residual == 0) place(layout.free_slots, heads * static_cast<uint64_t>(most_free_listed(config)));
    // Recall asks for ages so seldom that whoever evicts the oldest tokens brings them.
    if (!config.recalls()) place(layout.positions, static_cast<uint64_t>(cells));
    if (config.policy().has_network) place(layout.network, heads * network_numbers);
    return layout;
}

std::optional<LeastResidual> least_residual(const Config& config, const Shape& shape, bool importance) {
    if (config.recalls()) return LeastResidual{config.sink() + least_recall_residual + 1, least_recall_residual};
    const int64_t rows = std::end(usual_residuals)[-1];
    const Schedule schedule = schedule_of(config, *make_policy(config), shape);
    const Common common{config, schedule, shape, importance};
    const auto suits = [&](int64_t tokens) {
        return common.is_every_layer(
            [&](const LayerShape& each) { return leaves_half(layout_of(common, each, rows), tokens); });
    };
    int64_t too_few = config.sink() + rows, enough = longest_context; // bytes_of grows with the tokens
    if (!suits(enough)) return std::nullopt;
    while (enough - too_few > 1) {
        const int64_t middle = too_few + (enough - too_few) / 2;
        (suits(middle) ? enough : too_few) = middle;
    }
    return LeastResidual{enough, rows};
}

Plan plan(const Config& config, const Shape& shape, std::span<const LayerProfile> profile) {
    const std::vector<int64_t> unlike_layers = shape.unlike_layers();
    for (const int64_t layer : unlike_layers) check_formats("", config.k(), config.v(), shape, layer);
    const std::unique_ptr<Policy> policy = make_policy(config);
    check_layers(config, *policy, shape);
    for (const LowerTier& tier : schedule_of(config, *policy, shape).lower)
        for (const int64_t layer : unlike_layers)
            check_formats(std::to_string(tier.number), tier.k, tier.v, shape, layer);
    // Whether an importance is kept may depend on the budget, and the tokens of a budget in bytes on what is kept.
    Plan made = sizes(config, *policy, shape, profile, false);
    const bool importance = keeps_importance(*policy, made, shape);
    if (importance) made = sizes(config, *policy, shape, profile, true);
    check_cadence(config, made);
    made.formats = formats_of_all(config, shape);
    const Schedule schedule{made.tokens, made.lower};
    const Common common{config, schedule, shape, importance};
    for (int64_t layer = 0; layer < shape.layer_count(); ++layer) {
        const int64_t tokens = made.layer_tokens[static_cast<size_t>(layer)];
        const bool holds_all = config.recalls() && tokens >= std::max(shape.context, shape.cells);
        check_tiers(config, made, layer);
        if (!holds_all) check_room(config, policy->describe(context_of(made, shape, layer)), layer);
        for (const HeadsOf& its : heads_of_layer(made.formats[static_cast<size_t>(layer)],
                                                 layout_of(common, shape.layer(layer), made.residual)))
            made.bytes += bytes_of(its.layout, tokens) * static_cast<uint64_t>(its.count);
    }
    made.full_bytes = full_bytes(shape, shape.context);
    if (shape.cells > 0) { // as many tokens may be resident, whatever the context
        full_bytes(shape, shape.cells);
        Bytes most;
        for (const HeadsOf& each : all_heads(common, made.residual))
            most += bytes_of(each.layout, shape.cells) * static_cast<uint64_t>(each.count);
    }
    return made;
}

LayerContext context_of(const Plan& plan, const Shape& shape, int64_t layer, double pressure) {
    return {layer,         shape.layer_count(), shape.context, plan.layer_tokens[static_cast<size_t>(layer)],
            plan.residual, plan.cadence,        pressure};
}

} // namespace winnow::cache
