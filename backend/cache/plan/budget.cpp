// Bytes and tokens of configurations.
#include "cache/plan/budget.hpp"

#include <algorithm>
#include <bit>

#include "device/device.hpp"
#include "device/network.hpp"
#include "device/pages.hpp"

namespace winnow::cache {
namespace {

constexpr uint64_t slot_bytes = 4, importance_bytes = 4, mean_bytes = 4;
constexpr uint64_t head_numbers = 4;     // of a HeadState
constexpr uint64_t state_alignment = 64; // bytes
constexpr int64_t usual_cadence = 32;
constexpr int64_t usual_residuals[] = {48, 32};
constexpr int64_t recall_residuals[] = {48, 32, 16}, least_recall_residual = std::end(recall_residuals)[-1];
constexpr int64_t recall_cadence = 8;        // dense rows are of the budget, too
constexpr int64_t longest_context = 1 << 24; // in which a residual window is looked for

uint64_t times(uint64_t a, uint64_t b) {
    uint64_t product = 0;
    if (__builtin_mul_overflow(a, b, &product)) refuse("the cache would have more than 2^64 bytes");
    return product;
}

Bytes operator*(const Bytes& bytes, uint64_t n) {
    times(bytes.total(), n);
    return {bytes.k * n,        bytes.v * n,          bytes.dense_k * n, bytes.dense_v * n,
            bytes.slot_map * n, bytes.importance * n, bytes.means * n,   bytes.state * n};
}

void add(Bytes& sum, const Bytes& bytes) {
    uint64_t total = 0;
    if (__builtin_add_overflow(sum.total(), bytes.total(), &total)) refuse("the cache would have more than 2^64 bytes");
    sum.k += bytes.k;
    sum.v += bytes.v;
    sum.dense_k += bytes.dense_k;
    sum.dense_v += bytes.dense_v;
    sum.slot_map += bytes.slot_map;
    sum.importance += bytes.importance;
    sum.means += bytes.means;
    sum.state += bytes.state;
}

void check_format(const char* key, Type format, const char* name, int64_t elements) {
    const std::string given =
        std::string(key) + "=" + format_name(format) + " with " + name + " " + std::to_string(elements) + ": expected ";
    if (elements % row_multiple(format) != 0) refuse(given + "a multiple of " + std::to_string(row_multiple(format)));
    if (is_rotated(format) && elements > largest_rotation)
        refuse(given + "at most " + std::to_string(largest_rotation));
}

void check_layers(const Config& config, const Policy& policy, const Shape& shape) {
    for (const FormatsOfLayers& each : config.formats_of_layers()) {
        const std::string key = each.key;
        const std::string given = key + "=" + config.word(key) + ": the cache has ";
        if (each.layers.back().layer >= shape.layers)
            refuse(given + std::to_string(shape.layers) + " layers, expected numbers from 0 to " +
                   std::to_string(shape.layers - 1));
        for (const LayerHeads& its : each.layers) {
            if (its.heads == 0) continue;
            const std::string heads = std::to_string(shape.kv_heads) + " KV heads, expected ";
            if (shape.kv_heads > most_listed_heads)
                refuse(given + heads + "at most " + std::to_string(most_listed_heads) + " where heads are named");
            if (shape.kv_heads < most_listed_heads && its.heads >> shape.kv_heads != 0)
                refuse(given + heads + "numbers from 0 to " + std::to_string(shape.kv_heads - 1) + " behind a point");
        }
        if (policy.divides_by_profile() && config.budget().unit == Amount::Unit::bytes)
            refuse(key + "=" + config.word(key) + " with " + config.policy().name +
                   " and budget=" + spell(config.at("budget")) +
                   ": layers of unlike tokens and formats have no bytes in common, expected a budget in tokens");
        check_format(("k_" + key).c_str(), each.k, "head_size", shape.head_size);
        check_format(("v_" + key).c_str(), each.v, "v_head_size", shape.v_head_size);
    }
}

Schedule schedule_of(const Config& config, const Policy& policy, const Shape& shape) {
    return policy.schedule(shape.context).value_or(Schedule{shape.context, config.lower()});
}

Layout layout_of(const Config& config, const Schedule& schedule, const Shape& shape, int64_t residual,
                 bool importance) {
    const StateLayout state = state_layout(config, shape, residual, importance);
    const auto heads = static_cast<uint64_t>(shape.kv_heads);
    const uint64_t beside_means = state.size - state.k_mean.size - state.v_mean.size;
    return {config.k(),
            config.v(),
            shape.head_size,
            shape.v_head_size,
            config.sink() + residual,
            importance,
            config.center(),
            (beside_means + heads - 1) / heads,
            schedule.lower};
}

// The formats of each layer's first packed segment, in which KV heads may have their own.
std::vector<std::vector<RowFormats>> formats_of_all(const Config& config, const Shape& shape) {
    const RowFormats usual{config.k(), config.v(), 0, shape.kv_heads};
    std::vector<std::vector<RowFormats>> all(static_cast<size_t>(shape.layers), {usual});
    const uint64_t every_head = shape.kv_heads < most_listed_heads ? (uint64_t{1} << shape.kv_heads) - 1 : ~uint64_t{0};
    for (const FormatsOfLayers& each : config.formats_of_layers())
        for (const LayerHeads& its : each.layers) {
            std::vector<RowFormats>& layer = all[static_cast<size_t>(its.layer)];
            if (its.heads == 0) {
                layer = {{each.k, each.v, 0, shape.kv_heads}};
                continue;
            }
            if (each.k == usual.k && each.v == usual.v) continue;
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

// The same of all layers, with the heads together that store alike.
std::vector<HeadsOf> heads_by_formats(const Config& config, const Layout& layout, const Shape& shape) {
    std::vector<HeadsOf> all;
    for (const std::vector<RowFormats>& formats : formats_of_all(config, shape))
        for (const HeadsOf& each : heads_of_layer(formats, layout)) {
            const auto same = std::find_if(all.begin(), all.end(), [&](const HeadsOf& other) {
                return other.layout.k == each.layout.k && other.layout.v == each.layout.v &&
                       other.layout.dense == each.layout.dense;
            });
            if (same == all.end())
                all.push_back(each);
            else
                same->count += each.count;
        }
    return all;
}

int64_t budget_tokens(const Config& config, const Schedule& schedule, const Layout& layout, const Shape& shape) {
    const Amount& budget = config.budget();
    if (budget.unit == Amount::Unit::bytes)
        return tokens_in(heads_by_formats(config, layout, shape), static_cast<uint64_t>(budget.count), schedule.tokens);
    return std::min(tokens_of(budget, shape.context), schedule.tokens);
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

// K and V of so many tokens of a layer in f16, nothing else.
uint64_t full_bytes_of_layer(const Shape& shape, int64_t tokens) {
    const auto row = 2 * static_cast<uint64_t>(shape.head_size + shape.v_head_size);
    return times(times(row, static_cast<uint64_t>(tokens)), static_cast<uint64_t>(shape.kv_heads));
}

// Under recall: the largest residual window whose dense rows take at most a third of what signatures leave of the
// budget, or the least one; 0 where that leaves nothing of `cold`.
template <typename LayoutWith, typename TokensWith>
int64_t recall_residual(const Config& config, const Shape& shape, LayoutWith layout_with, TokensWith tokens_with) {
    const auto of_head = static_cast<int64_t>(recall_budget(config, shape)) / shape.kv_heads;
    for (const int64_t residual : recall_residuals) {
        const int64_t tokens = tokens_with(residual), packed = tokens - config.sink() - residual;
        // An eviction pass under cold= takes twice the residual window or more, which are to be few of what there is.
        const bool takes_many = config.has_cold_budget() && residual != least_recall_residual && packed <= 8 * residual;
        if (packed <= 0 || takes_many) continue;
        const Bytes bytes = bytes_of(layout_with(residual), tokens);
        const int64_t block = block_pages * config.count("page"),
                      signatures = (std::max(packed, shape.cells) + block - 1) / block *
                                   signature_block_bytes(shape.head_size, config.signature_kind()),
                      dense = static_cast<int64_t>(bytes.dense_k + bytes.dense_v);
        if (3 * dense <= of_head - signatures || residual == least_recall_residual) return residual;
    }
    return 0;
}

// The residual window that was asked for, else the largest whose dense rows leave the packed ones half of the bytes,
// in layers without formats of their own.
int64_t residual_of(const Config& config, const Schedule& schedule, const Shape& shape, bool importance) {
    const auto layout_with = [&](int64_t residual) { return layout_of(config, schedule, shape, residual, importance); };
    const auto tokens_with = [&](int64_t residual) {
        return budget_tokens(config, schedule, layout_with(residual), shape);
    };
    if (config.residual()) {
        const int64_t tokens = tokens_with(*config.residual());
        if (config.sink() + *config.residual() >= tokens)
            refuse(what_holds(config, tokens) + ", expected more than sink=" + std::to_string(config.sink()) +
                   " and residual=" + std::to_string(*config.residual()));
        return *config.residual();
    }
    if (config.recalls()) return recall_residual(config, shape, layout_with, tokens_with);
    for (const int64_t residual : usual_residuals)
        if (leaves_half(layout_with(residual), tokens_with(residual))) return residual;
    return 0;
}

int64_t cadence_of(const Config& config, int64_t residual, int64_t tokens) {
    if (config.cadence()) return *config.cadence();
    const int64_t passes = residual > 0 ? 2 * residual / 3 : usual_cadence; // 16 of 48 stay dense
    return std::max<int64_t>(std::min({config.recalls() ? recall_cadence : usual_cadence, passes, tokens / 8}), 1);
}

// The packed segment that would have too few slots of so many tokens; NULL: there is none.
const char* lacking_tier(const Layout& layout, int64_t tokens, int64_t cadence) {
    static constexpr const char* names[most_tiers] = {"first", "second", "third"};
    if (layout.lower.empty()) return nullptr;
    const auto parts = divide(layout.lower, tokens, layout.dense_rows);
    for (size_t i = 0; i <= layout.lower.size(); ++i)
        if (parts[i] < (i < layout.lower.size() ? cadence : 1)) return names[i];
    return nullptr;
}

// All sizes but the bytes, where each slot has an importance or none does.
Plan sizes(const Config& config, const Policy& policy, const Shape& shape, std::span<const LayerProfile> profile,
           bool importance) {
    Plan made;
    made.sink = config.sink();
    const Schedule schedule = schedule_of(config, policy, shape);
    made.residual = residual_of(config, schedule, shape, importance);
    Layout layout = layout_of(config, schedule, shape, made.residual, importance);
    made.tokens = budget_tokens(config, schedule, layout, shape);
    if (made.tokens <= layout.dense_rows)
        refuse(what_holds(config, made.tokens) + ", expected more than sink=" + std::to_string(made.sink));
    // Ages that the budget does not reach need no segment.
    while (!layout.lower.empty() && layout.lower.back().after >= made.tokens) layout.lower.pop_back();
    made.lower = layout.lower;
    made.cadence = cadence_of(config, made.residual, made.tokens);
    int64_t least = std::min(layout.dense_rows + made.cadence, made.tokens);
    // Layers of unlike budgets have shares of them; ages divide those of all layers alike.
    while (!config.policy().has_schedule && least < made.tokens && lacking_tier(layout, least, made.cadence) != nullptr)
        ++least;
    made.layer_tokens = policy.budgets(shape.layers, made.tokens, least, shape.context, profile);
    return made;
}

// What an eviction pass moves goes through every packed segment but the last.
void check_tiers(const Config& config, const Layout& layout, const Plan& plan, int64_t layer) {
    const int64_t tokens = plan.layer_tokens[static_cast<size_t>(layer)];
    const char* const which = lacking_tier(layout, tokens, plan.cadence);
    if (which == nullptr) return;
    const auto parts = divide(layout.lower, tokens, layout.dense_rows);
    std::string text = what_holds(config, tokens) + " in layer " + std::to_string(layer) + ": " +
                       std::to_string(layout.dense_rows) + " are sinks and residual window, and of the packed segments";
    for (size_t i = 0; i <= layout.lower.size(); ++i) text += (i > 0 ? ", " : " ") + std::to_string(parts[i]);
    refuse(text + "; the " + which + " one is too small: expected at least " + std::to_string(plan.cadence) +
           " for each but the last, which come between two eviction passes, and 1 for that");
}

bool keeps_importance(const Policy& policy, const Plan& plan, const Shape& shape) {
    for (int64_t layer = 0; layer < shape.layers; ++layer)
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

uint64_t recall_budget(const Config& config, const Shape& shape) {
    const Amount& budget = config.recall_budget();
    if (budget.unit == Amount::Unit::bytes) return static_cast<uint64_t>(budget.count / shape.layers);
    return static_cast<uint64_t>(
        floor_of(budget.share, static_cast<int64_t>(full_bytes_of_layer(shape, shape.context))));
}

Type dense_format(Type format) { return is_packed(format) ? Type::f16 : format; }

int64_t most_free_listed(const Config& config) { return config.cadence().value_or(usual_cadence); }

void place_part(StateLayout::Range& part, uint64_t bytes, uint64_t& end) {
    part = {end, bytes};
    end += (bytes + state_alignment - 1) / state_alignment * state_alignment;
}

StateLayout state_layout(const Config& config, const Shape& shape, int64_t residual, bool importance) {
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
    if (!config.recalls()) place(layout.positions, static_cast<uint64_t>(shape.cells));
    if (config.policy().has_network) place(layout.network, heads * network_numbers);
    return layout;
}

std::array<int64_t, most_tiers> divide(const std::vector<LowerTier>& lower, int64_t tokens, int64_t dense_rows) {
    std::array<int64_t, most_tiers> parts{std::max<int64_t>(tokens - dense_rows, 0), 0, 0};
    int64_t oldest = 0; // those below
    for (size_t i = lower.size(); i > 0; --i) {
        const LowerTier& tier = lower[i - 1];
        const int64_t its =
            tier.after > 0 ? std::max<int64_t>(tokens - oldest - tier.after, 0) : floor_of(tier.share, tokens);
        parts[i] = std::min(its, parts[0]);
        parts[0] -= parts[i];
        oldest += parts[i];
    }
    return parts;
}

Bytes bytes_of(const Layout& layout, int64_t tokens) {
    const auto all = static_cast<uint64_t>(tokens);
    const auto dense = static_cast<uint64_t>(std::min(tokens, layout.dense_rows));
    const auto parts = divide(layout.lower, tokens, layout.dense_rows);
    Bytes bytes;
    bytes.k = static_cast<uint64_t>(parts[0]) * row_bytes(layout.k, layout.head_size);
    bytes.v = static_cast<uint64_t>(parts[0]) * row_bytes(layout.v, layout.v_head_size);
    for (size_t i = 0; i < layout.lower.size(); ++i) {
        bytes.k += static_cast<uint64_t>(parts[i + 1]) * row_bytes(layout.lower[i].k, layout.head_size);
        bytes.v += static_cast<uint64_t>(parts[i + 1]) * row_bytes(layout.lower[i].v, layout.v_head_size);
    }
    const auto [dense_k, dense_v] = layout.dense.value_or(std::pair(dense_format(layout.k), dense_format(layout.v)));
    bytes.dense_k = dense * row_bytes(dense_k, layout.head_size);
    bytes.dense_v = dense * row_bytes(dense_v, layout.v_head_size);
    bytes.slot_map = all * slot_bytes;
    bytes.importance = layout.importance ? all * importance_bytes : 0;
    bytes.means = layout.center ? static_cast<uint64_t>(layout.head_size + layout.v_head_size) * mean_bytes : 0;
    bytes.state = layout.state;
    return bytes;
}

int64_t tokens_in(std::span<const HeadsOf> heads, uint64_t bytes, int64_t limit) {
    const auto fit = [&](int64_t tokens) {
        uint64_t sum = 0;
        for (const HeadsOf& each : heads) {
            uint64_t its = 0;
            if (__builtin_mul_overflow(bytes_of(each.layout, tokens).total(), static_cast<uint64_t>(each.count),
                                       &its) ||
                __builtin_add_overflow(sum, its, &sum))
                return false;
        }
        return sum <= bytes;
    };
    int64_t fits = 0, too_many = limit + 1; // bytes_of grows with the tokens
    while (too_many - fits > 1) {
        const int64_t middle = fits + (too_many - fits) / 2;
        (fit(middle) ? fits : too_many) = middle;
    }
    return fits;
}

std::optional<LeastResidual> least_residual(const Config& config, const Shape& shape, bool importance) {
    if (config.recalls()) return LeastResidual{config.sink() + least_recall_residual + 1, least_recall_residual};
    const int64_t rows = std::end(usual_residuals)[-1];
    const Schedule schedule = schedule_of(config, *make_policy(config), shape);
    const Layout layout = layout_of(config, schedule, shape, rows, importance);
    int64_t too_few = layout.dense_rows, enough = longest_context; // bytes_of grows with the tokens
    if (!leaves_half(layout, enough)) return std::nullopt;
    while (enough - too_few > 1) {
        const int64_t middle = too_few + (enough - too_few) / 2;
        (leaves_half(layout, middle) ? enough : too_few) = middle;
    }
    return LeastResidual{enough, rows};
}

Plan plan(const Config& config, const Shape& shape, std::span<const LayerProfile> profile) {
    check_format("k", config.k(), "head_size", shape.head_size);
    check_format("v", config.v(), "v_head_size", shape.v_head_size);
    const std::unique_ptr<Policy> policy = make_policy(config);
    check_layers(config, *policy, shape);
    for (const LowerTier& tier : schedule_of(config, *policy, shape).lower) {
        const std::string number = std::to_string(tier.number);
        check_format(("k" + number).c_str(), tier.k, "head_size", shape.head_size);
        check_format(("v" + number).c_str(), tier.v, "v_head_size", shape.v_head_size);
    }
    // Whether an importance is kept may depend on the budget, and the tokens of a budget in bytes on what is kept.
    Plan made = sizes(config, *policy, shape, profile, false);
    const bool importance = keeps_importance(*policy, made, shape);
    if (importance) made = sizes(config, *policy, shape, profile, true);
    check_cadence(config, made);
    made.formats = formats_of_all(config, shape);
    const Layout layout = layout_of(config, {made.tokens, made.lower}, shape, made.residual, importance);
    for (int64_t layer = 0; layer < shape.layers; ++layer) {
        const int64_t tokens = made.layer_tokens[static_cast<size_t>(layer)];
        const bool holds_all = config.recalls() && tokens >= std::max(shape.context, shape.cells);
        check_tiers(config, layout, made, layer);
        if (!holds_all) check_room(config, policy->describe(context_of(made, shape, layer)), layer);
        for (const HeadsOf& its : heads_of_layer(made.formats[static_cast<size_t>(layer)], layout))
            add(made.bytes, bytes_of(its.layout, tokens) * static_cast<uint64_t>(its.count));
    }
    made.full_bytes = times(full_bytes_of_layer(shape, shape.context), static_cast<uint64_t>(shape.layers));
    if (shape.cells > 0) { // as many tokens may be resident, whatever the context
        const auto all_heads = static_cast<uint64_t>(shape.layers * shape.kv_heads);
        times(full_bytes_of_layer(shape, shape.cells), static_cast<uint64_t>(shape.layers));
        for (const HeadsOf& each : heads_by_formats(config, layout, shape))
            times(bytes_of(each.layout, shape.cells).total(), all_heads);
    }
    return made;
}

LayerContext context_of(const Plan& plan, const Shape& shape, int64_t layer, double pressure) {
    return {layer,         shape.layers, shape.context, plan.layer_tokens[static_cast<size_t>(layer)],
            plan.residual, plan.cadence, pressure};
}

} // namespace winnow::cache
