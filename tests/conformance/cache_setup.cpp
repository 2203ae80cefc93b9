// Configurations in numbers.
#include "cache_setup.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <tuple>

#include "formats.hpp"

namespace winnow::conformance {
namespace {

// The age from which on tokens have less than this weight, and are not of the window either; the context where none
// has.
int64_t age_below(const CacheSetup& s, double weight) {
    int64_t age = std::min(s.ages.window, s.context);
    while (age < s.context && std::exp(-s.ages.lambda * static_cast<double>(age)) >= weight) ++age;
    return age;
}

void rule_h2o(Rules& r, const CacheSetup& s, int64_t cadence, bool has_own_values) {
    const int64_t rest = r.budget - r.sink;
    int64_t heavy = r.budget / 2, recent = rest - heavy;
    if (has_own_values && s.h2o.heavy) {
        heavy = *s.h2o.heavy;
        recent = s.recent.value_or(rest - heavy);
    } else if (has_own_values && s.recent) {
        recent = *s.recent;
        heavy = rest - recent;
    }
    r.target = std::min(r.budget, r.sink + heavy + recent);
    // Counted when the head is fullest: fewer by those that come before the next eviction pass, where they would not
    // fit.
    const int64_t left = std::min(r.target, r.budget - cadence);
    r.recent = std::max(r.recent, left - r.sink - heavy);
}

// What is not a heavy hitter is recent, and goes down by age.
void rule_mixed(Rules& r, const CacheSetup& s, int64_t cadence) {
    r.statistic = s.statistic.value_or(Statistic::probability_squared);
    r.is_sum = true;
    r.decay = s.decay.value_or(.99);
    r.every = s.every;
    r.ranking = Ranking::value_distance;
    r.grace = s.grace;
    r.moves_by_age = true;
    int64_t recent = r.budget - r.sink;
    for (const LowerSegment& each : s.lower) recent -= each.share.floor_of(r.budget);
    r.recent = std::max(r.recent, recent - cadence);
}

// Tokens of inactive experts alone, which have -1, may go before the budget is full.
void rule_experts(Rules& r, const CacheSetup& s) {
    r.ranking = Ranking::importance;
    if (!s.has_inactive_experts() || !s.moe.evict_inactive) return;
    r.trigger = {0, 1};
    r.target = 0;
    r.threshold = 0;
}

void rule_hierarchical(Rules& r, const CacheSetup& s, int64_t layer, double pressure) {
    const auto newest = [&](const std::optional<int64_t>& given, int64_t otherwise) {
        r.recent = std::max(r.recent, given.value_or(std::min(otherwise, r.budget / 2)));
    };
    r.statistic = s.statistic.value_or(Statistic::probability);
    r.decay = s.decay.value_or(.7);
    r.ranking = Ranking::importance;
    r.grace = s.grace;
    r.target = 0;
    r.trigger =
        pressure > static_cast<double>(s.hierarchical.trigger.part) / static_cast<double>(s.hierarchical.trigger.whole)
            ? Part{0, 1}
            : s.hierarchical.trigger;
    if (layer < Part{1, 3}.ceil_of(s.layers)) {
        newest(s.hierarchical.recent_shallow, 128);
        r.threshold = s.hierarchical.theta_shallow;
        if (r.threshold) return;
        r.statistic = Statistic::none;
        r.ranking = Ranking::age;
        r.grace = 0;
    } else if (layer < Part{2, 3}.ceil_of(s.layers)) {
        newest(s.hierarchical.recent_middle, 128);
        r.threshold = s.hierarchical.theta_middle;
        r.most = s.hierarchical.batch;
        r.first = s.hierarchical.first;
        r.from = {1, 4}; // the middle half
        r.until = {3, 4};
    } else {
        newest(s.hierarchical.recent_deep, 256);
        r.threshold = s.hierarchical.theta_deep;
        r.most_share = {1, 10};
    }
}

} // namespace

const char* policy_name(Policy policy) {
    switch (policy) {
    case Policy::none: return "none";
    case Policy::window: return "window";
    case Policy::random: return "random";
    case Policy::scissorhands: return "scissorhands";
    case Policy::tova: return "tova";
    case Policy::external: return "external";
    case Policy::moe: return "moe";
    case Policy::learned: return "learned";
    case Policy::h2o: return "h2o";
    case Policy::hierarchical: return "hierarchical";
    case Policy::adaptive_budget: return "adaptive_budget";
    case Policy::mixed: return "mixed";
    case Policy::decay: return "decay";
    case Policy::winnow: break;
    }
    return "winnow";
}

uint32_t dense_type(uint32_t type) { return is_packed(type) ? WINNOW_TYPE_F16 : type; }

int64_t drawn_rank(uint64_t seed, int64_t head, int64_t position) {
    uint64_t bits = seed;
    for (const int64_t each : {head, position, static_cast<int64_t>(0)}) { // splitmix64
        bits = (bits ^ static_cast<uint64_t>(each)) + 0x9e3779b97f4a7c15u;
        bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
        bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
        bits ^= bits >> 31;
    }
    return static_cast<int64_t>(bits >> 40);
}

const std::vector<double>& networks_of(const CacheSetup& setup) {
    static std::map<int64_t, std::vector<double>> all;
    const int64_t heads = setup.heads_before(setup.layers);
    std::vector<double>& numbers = all[heads];
    if (!numbers.empty()) return numbers;
    std::mt19937_64 engine(1);
    std::normal_distribution<double> weight;
    for (int64_t unit = 0; unit < heads * network_numbers / 4; ++unit)
        for (const double size : {1, 1, 4, 1}) // importance, age, bias, out; a float holds them exactly
            numbers.push_back(static_cast<double>(static_cast<float>(size * weight(engine))));
    return numbers;
}

Prediction prediction_of(const double* network, double importance, int64_t queries_seen) {
    const double least = std::ldexp(1.0, -24), most = std::ldexp(1.0, 24);
    const double by_importance = std::log(importance >= least ? std::min(importance, most) : least);
    const double by_age = std::log(static_cast<double>(std::max<int64_t>(queries_seen, 1)));
    Prediction prediction;
    for (const double* unit = network; unit != network + network_numbers; unit += 4) {
        const double terms[] = {unit[0] * by_importance, unit[1] * by_age, unit[2]};
        const double hidden = terms[0] + terms[1] + terms[2];
        if (hidden > 0) prediction.value += unit[3] * hidden;
        for (const double term : terms) prediction.size += std::fabs(unit[3] * term);
    }
    return prediction;
}

uint32_t CacheSetup::k_type_of(int64_t segment) const {
    return segment == 0 ? dense_k_type.value_or(dense_type(k_type)) : of_segment(segment).k_type;
}

uint32_t CacheSetup::v_type_of(int64_t segment) const {
    return segment == 0 ? dense_v_type.value_or(dense_type(v_type)) : of_segment(segment).v_type;
}

bool CacheSetup::has_zeroable_rows() const {
    for (int64_t layer = 0; layer < layers && !own_formats.empty(); ++layer)
        for (const CacheSetup& each : of_heads(layer))
            if (!each.has_zeroable_rows()) return false;
    if (!own_formats.empty()) return true;
    const auto is_refused = [&](double scale, bool is_first_packed, bool is_every_packed) {
        return scale > 0 && ((residual == 0 && is_first_packed) || (center && !is_every_packed));
    };
    bool is_every_k_packed = true, is_every_v_packed = true;
    for (int64_t segment = 1; segment <= 1 + static_cast<int64_t>(lower.size()); ++segment) {
        is_every_k_packed = is_every_k_packed && is_packed(k_type_of(segment));
        is_every_v_packed = is_every_v_packed && is_packed(v_type_of(segment));
    }
    return !is_refused(zeroing->k, is_packed(k_type), is_every_k_packed) &&
           !is_refused(zeroing->v, is_packed(v_type), is_every_v_packed);
}

CacheSetup CacheSetup::with_all_as(int64_t layer) const {
    CacheSetup other = *this;
    const LayerShape its = shape(layer);
    other.shapes.clear();
    std::tie(other.kv_heads, other.group, other.head_size, other.v_head_size) =
        std::tie(its.kv_heads, its.group, its.head_size, its.v_head_size);
    return other;
}

int64_t CacheSetup::heads_before(int64_t layer) const {
    int64_t heads = 0;
    for (int64_t before = 0; before < layer; ++before) heads += shape(before).kv_heads;
    return heads;
}

int64_t CacheSetup::tokens() const {
    const int64_t all = policy == Policy::none || budget == 0 ? context : budget;
    if (policy != Policy::decay || ages.mode == "bit_reduction") return all;
    return std::min(all, age_below(*this, ages.eviction_threshold));
}

void CacheSetup::set_segments_by_age() {
    if (policy != Policy::decay) return;
    lower.clear();
    if (ages.mode == "eviction") return;
    const int64_t second = age_below(*this, ages.weight2), third = age_below(*this, ages.weight3);
    for (const auto& [number, after, until] : {std::tuple(2, second, third), std::tuple(3, third, context)})
        if (after < std::min(until, tokens())) {
            lower.emplace_back();
            lower.back().after = after;
            lower.back().number = number;
        }
}

int64_t CacheSetup::cadence_tokens() const {
    if (cadence) return *cadence;
    return std::max<int64_t>(std::min({static_cast<int64_t>(32), residual > 0 ? 2 * residual / 3 : 32, tokens() / 8}),
                             1);
}

int64_t CacheSetup::coming() const {
    return has_cold_budget() ? std::max(cadence_tokens(), 2 * residual) : cadence_tokens();
}

int64_t CacheSetup::chunk() const { return std::min<int64_t>(32, recall ? residual : cadence_tokens()); }

std::vector<int64_t> CacheSetup::layer_tokens() const {
    std::vector<int64_t> all(static_cast<size_t>(layers), tokens());
    if (policy != Policy::adaptive_budget) return all;
    std::vector<double> need(static_cast<size_t>(layers), 0);
    for (size_t kind = 0; kind < 3; ++kind) {
        double low = adaptive_budget.profile[kind], high = low;
        for (size_t layer = 0; layer < need.size(); ++layer) {
            low = std::min(low, adaptive_budget.profile[3 * layer + kind]);
            high = std::max(high, adaptive_budget.profile[3 * layer + kind]);
        }
        for (size_t layer = 0; layer < need.size(); ++layer) {
            const double moved = high > low ? (adaptive_budget.profile[3 * layer + kind] - low) / (high - low) : .5;
            need[layer] += kind == 1 ? 1 - moved : moved;
        }
    }
    const double needs = std::accumulate(need.begin(), need.end(), 0.0);
    int64_t least = std::min(sink + residual + cadence_tokens(), tokens());
    while (least < tokens() && !lower.empty() && !has_room_in_each(packed_slots_of(least))) ++least;
    least = std::max(tokens() / 2, least);
    const int64_t all_left = (tokens() - least) * layers;
    int64_t left = all_left;
    std::vector<std::pair<double, size_t>> remainders;
    for (size_t layer = 0; layer < need.size(); ++layer) {
        const double share = static_cast<double>(all_left) * need[layer] / needs;
        all[layer] = least + static_cast<int64_t>(share);
        left -= static_cast<int64_t>(share);
        remainders.emplace_back(-(share - std::floor(share)), layer);
    }
    std::stable_sort(remainders.begin(), remainders.end());
    for (size_t at = 0; left > 0; ++at, --left) ++all[remainders[at].second];
    return all;
}

std::vector<int64_t> CacheSetup::packed_slots(int64_t layer) const {
    return packed_slots_of(layer_tokens()[static_cast<size_t>(layer)]);
}

std::vector<int64_t> CacheSetup::packed_slots_of(int64_t tokens) const {
    std::vector<int64_t> slots{tokens - sink - residual};
    for (const LowerSegment& each : lower) slots.push_back(each.share.floor_of(tokens));
    for (size_t at = lower.size(); policy == Policy::decay && at > 0; --at) {
        const int64_t end = at == lower.size() ? tokens : lower[at].after;
        slots[at] = end - lower[at - 1].after;
    }
    for (size_t at = 1; at < slots.size(); ++at) slots[0] -= slots[at];
    return slots;
}

bool CacheSetup::has_room_in_each(const std::vector<int64_t>& slots) const {
    for (size_t at = 0; at < slots.size(); ++at)
        if (slots[at] < (at + 1 < slots.size() ? cadence_tokens() : 1)) return false;
    return true;
}

bool CacheSetup::has_room_in_each() const {
    for (int64_t layer = 0; layer < layers && !lower.empty(); ++layer)
        if (!has_room_in_each(packed_slots(layer))) return false;
    return true;
}

CacheSetup CacheSetup::of_head(int64_t layer, int64_t head) const {
    CacheSetup other = with_all_as(layer);
    other.own_formats.clear();
    uint64_t own_heads = 0; // of the layer, where some have formats of their own
    for (const LayersOfFormats& each : own_formats) {
        const auto heads = each.heads.find(layer);
        if (heads != each.heads.end()) own_heads |= heads->second;
        if (heads != each.heads.end() ? (heads->second >> head & 1) == 0
                                      : !std::binary_search(each.layers.begin(), each.layers.end(), layer))
            continue;
        other.k_type = each.k_type;
        other.v_type = each.v_type;
    }
    if (own_heads == 0) return other;
    other.dense_k_type = dense_type(k_type);
    other.dense_v_type = dense_type(v_type);
    return other;
}

std::vector<CacheSetup> CacheSetup::of_heads(int64_t layer) const {
    std::vector<CacheSetup> all;
    for (int64_t head = 0; head < shape(layer).kv_heads; ++head) all.push_back(of_head(layer, head));
    return all;
}

bool CacheSetup::has_formats_by_head() const {
    return std::any_of(own_formats.begin(), own_formats.end(), [](const auto& each) { return !each.heads.empty(); });
}

CacheSetup CacheSetup::of_segment(int64_t tier) const {
    CacheSetup other = *this;
    if (tier < 2) return other;
    other.k_type = lower[static_cast<size_t>(tier) - 2].k_type;
    other.v_type = lower[static_cast<size_t>(tier) - 2].v_type;
    return other;
}

bool CacheSetup::covers_all(int64_t layer) const {
    return policy == Policy::none || layer_tokens()[static_cast<size_t>(layer)] >= (cells ? cells : context);
}

bool CacheSetup::has_inactive_experts() const {
    return policy == Policy::moe || (policy == Policy::decay && is_ranked_by_experts);
}

bool CacheSetup::is_told() const { return policy == Policy::external || has_inactive_experts(); }

bool CacheSetup::keeps_importance() const {
    if (is_told()) return true;
    for (int64_t layer = 0; layer < layers; ++layer)
        if (rules_of(*this, layer, 0).statistic != Statistic::none) return true;
    return false;
}

Rules rules_of(const CacheSetup& s, int64_t layer, double pressure) {
    Rules r;
    const int64_t cadence = s.cadence_tokens();
    r.sink = s.sink;
    r.context = s.context;
    r.budget = r.target = s.layer_tokens()[static_cast<size_t>(layer)];
    if (s.has_cold_budget()) r.target -= std::max(r.budget / 8, s.coming());
    r.recent = std::max<int64_t>(s.keep(), 0);                    // what stays in the residual window
    if (s.has_cold_budget()) r.recent = s.residual;               // all of it
    const bool is_selector = s.policy == Policy::adaptive_budget; // with its own defaults
    const auto recent_or = [&](int64_t otherwise) { return is_selector ? otherwise : s.recent.value_or(otherwise); };
    switch (is_selector ? s.adaptive_budget.selector : s.policy) {
    case Policy::none:
    case Policy::window:
    case Policy::adaptive_budget: return r;
    case Policy::decay: // the oldest, too, and all that it keeps is its budget
        if (s.is_ranked_by_experts) {
            rule_experts(r, s);
            r.recent = std::max(r.recent, std::min(s.ages.window, s.context) - s.sink - cadence);
        }
        return r;
    case Policy::random:
        r.ranking = Ranking::random;
        r.seed = static_cast<uint64_t>(is_selector ? 0 : s.seed) << 20 | static_cast<uint64_t>(layer);
        r.recent = std::max(r.recent, recent_or(r.budget / 2) - cadence);
        return r;
    case Policy::scissorhands:
        r.statistic = Statistic::above_mean;
        r.is_sum = true;
        r.decay = 1 - 1 / static_cast<double>(is_selector ? 400 : s.scissorhands.history);
        r.ranking = Ranking::importance;
        r.grace = is_selector ? 8 : s.grace;
        r.target = r.budget - (is_selector ? Part{1, 2} : s.scissorhands.drop).floor_of(r.budget);
        r.recent = std::max(r.recent, recent_or(10));
        return r;
    case Policy::tova:
        r.statistic = Statistic::probability;
        r.is_sum = true;
        r.decay = 0;
        r.ranking = Ranking::importance;
        r.grace = is_selector ? 8 : s.grace;
        r.recent = std::max(r.recent, recent_or(0) - cadence);
        return r;
    case Policy::moe:
    case Policy::external:
        rule_experts(r, s);
        r.recent = std::max(r.recent, recent_or(r.budget / 4) - cadence);
        return r;
    case Policy::learned: {
        r.statistic = Statistic::probability;
        r.is_sum = true;
        r.decay = .99;
        r.ranking = Ranking::prediction;
        const std::vector<double>& all = networks_of(s);
        r.network.assign(all.begin() + s.heads_before(layer) * network_numbers,
                         all.begin() + s.heads_before(layer + 1) * network_numbers);
        r.grace = s.grace;
        r.recent = std::max(r.recent, recent_or(r.budget / 4) - cadence);
        return r;
    }
    case Policy::h2o:
        r.statistic = is_selector ? Statistic::score_magnitude : s.statistic.value_or(Statistic::score_magnitude);
        r.is_sum = !is_selector && s.h2o.sum;
        r.decay = is_selector ? .95 : s.decay.value_or(.95);
        r.every = is_selector ? 1 : s.every;
        r.ranking = Ranking::importance;
        r.grace = is_selector ? 8 : s.grace;
        rule_h2o(r, s, cadence, !is_selector);
        return r;
    case Policy::hierarchical: rule_hierarchical(r, s, layer, pressure); return r;
    case Policy::mixed: rule_mixed(r, s, cadence); return r;
    case Policy::winnow:
        if (r.budget >= Part{1, 2}.ceil_of(s.context)) return r; // a plain window
        r.statistic =
            is_selector ? Statistic::probability_squared : s.statistic.value_or(Statistic::probability_squared);
        r.is_sum = true;
        r.decay = is_selector ? .99 : s.decay.value_or(.99);
        r.every = is_selector ? 1 : s.every;
        r.ranking = Ranking::value_distance;
        r.grace = is_selector ? 8 : s.grace;
        r.recent = std::max(r.recent, recent_or(r.budget / 4) - cadence);
    }
    return r;
}

} // namespace winnow::conformance
