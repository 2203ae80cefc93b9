// Caches of any shape, drawn or named.
#include "cache_cases.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "formats.hpp"

namespace winnow::conformance {
namespace {

// What a full head has to keep, and what comes until the next eviction pass, fits the budget of every layer.
bool has_room(const CacheSetup& setup) {
    for (int64_t layer = 0; layer < setup.layers; ++layer) {
        const Rules rules = rules_of(setup, layer, 0);
        const int64_t kept = rules.sink + std::max(rules.recent, rules.grace) + setup.cadence_tokens();
        const int64_t displaced = setup.sink + std::max<int64_t>(setup.keep(), 0); // by shifts, at most
        if (kept + displaced + 3 > rules.budget || setup.sink + setup.residual >= rules.budget)
            return false; // and some anchors
    }
    if (!setup.has_room_in_each()) return false;
    return setup.residual == 0 || setup.cadence_tokens() <= setup.residual;
}

// The least budget of a head that the configuration itself does not refuse; every layer has the same.
int64_t least_budget(const CacheSetup& setup) {
    const Rules rules = rules_of(setup, setup.layers - 1, 0);
    return std::max(rules.sink + std::max(rules.recent, rules.grace) + setup.cadence_tokens(),
                    setup.sink + setup.residual + 1);
}

bool is_accepted(const CacheSetup& setup) {
    const int64_t rest = setup.budget - setup.sink - setup.budget / 2; // of h2o, beside the heavy half
    return least_budget(setup) <= setup.budget && rest >= 0 && setup.budget <= setup.context &&
           setup.has_room_in_each();
}

// A budget that leaves `more` tokens beside what is protected; false where that is more than there is.
bool set_least_budget(CacheSetup& setup, int64_t more) {
    for (setup.budget = 2 * setup.sink + 1; setup.budget <= setup.context / 3; ++setup.budget)
        if (is_accepted(setup) && least_budget(setup) + more <= setup.budget) return true;
    return false;
}

// Formats of the second and the third packed segment, K and V, for each shape: narrower ones, and wider ones.
constexpr uint32_t lower_types[cache_shapes][2][2] = {
    {{WINNOW_TYPE_Q8_0, WINNOW_TYPE_TURBO4}, {WINNOW_TYPE_TURBO2, WINNOW_TYPE_Q4_0}},
    {{WINNOW_TYPE_Q8_0, WINNOW_TYPE_AFFINE8_G64}, {WINNOW_TYPE_TURBO2, WINNOW_TYPE_TURBO2_5}},
    {{WINNOW_TYPE_AFFINE4_G32, WINNOW_TYPE_Q4_1}, {WINNOW_TYPE_TURBO3, WINNOW_TYPE_TURBO2}},
    {{WINNOW_TYPE_TURBO2_5, WINNOW_TYPE_F16}, {WINNOW_TYPE_TURBO2, WINNOW_TYPE_TURBO2}},
    {{WINNOW_TYPE_TURBO3, WINNOW_TYPE_Q4_0}, {WINNOW_TYPE_TURBO2, WINNOW_TYPE_TURBO2}},
    {{WINNOW_TYPE_F16, WINNOW_TYPE_Q8_0}, {WINNOW_TYPE_IQ4_NL, WINNOW_TYPE_AFFINE4_G32}}};

void set_lower_types(CacheSetup& setup, int shape) {
    for (size_t at = 0; at < setup.lower.size(); ++at) {
        setup.lower[at].k_type = lower_types[shape][at][0];
        setup.lower[at].v_type = lower_types[shape][at][1];
    }
}

// Formats of layers that have their own, finer and coarser ones, K and V, for each shape.
constexpr uint32_t own_types[cache_shapes][2][2] = {
    {{WINNOW_TYPE_Q8_0, WINNOW_TYPE_F16}, {WINNOW_TYPE_TURBO3, WINNOW_TYPE_TURBO2}},
    {{WINNOW_TYPE_Q8_0, WINNOW_TYPE_TURBO4}, {WINNOW_TYPE_TURBO3, WINNOW_TYPE_TURBO2}},
    {{WINNOW_TYPE_BF16, WINNOW_TYPE_F32}, {WINNOW_TYPE_Q4_0, WINNOW_TYPE_TURBO4}},
    {{WINNOW_TYPE_TURBO4, WINNOW_TYPE_F16}, {WINNOW_TYPE_TURBO2, WINNOW_TYPE_TURBO2}},
    {{WINNOW_TYPE_F32, WINNOW_TYPE_Q8_0}, {WINNOW_TYPE_TURBO3, WINNOW_TYPE_Q4_0}},
    {{WINNOW_TYPE_F16, WINNOW_TYPE_Q8_0}, {WINNOW_TYPE_SPARSE16, WINNOW_TYPE_SPARSE8}}};

void set_own_types(CacheSetup& setup, int shape) {
    if (setup.has_formats_by_head()) setup.kv_heads = std::max<int64_t>(setup.kv_heads, 3);
    for (LayersOfFormats& each : setup.own_formats) {
        const auto& types = own_types[shape][each.key == "coarse"];
        each.k_type = types[0];
        each.v_type = types[1];
    }
}

// Some layers finer, some coarser, some as they are.
void draw_own_formats(CacheSetup& setup, std::mt19937_64& engine) {
    setup.own_formats.clear();
    LayersOfFormats fine{"fine", {}}, coarse{"coarse", {}};
    for (int64_t layer = 0; layer < setup.layers; ++layer) {
        const uint64_t drawn = engine(), kind = drawn % 3, heads = drawn >> 16 & 7; // of three
        if (kind == 2) continue;
        LayersOfFormats& its = kind == 0 ? fine : coarse;
        if (drawn >> 32 & 1 && heads != 0 && heads != 7)
            its.heads[layer] = heads;
        else
            its.layers.push_back(layer);
    }
    for (LayersOfFormats& each : {std::ref(fine), std::ref(coarse)})
        if (!each.layers.empty() || !each.heads.empty()) setup.own_formats.push_back(each);
}

// Where heads may have no formats of their own, all of the layer have them.
void settle_heads(CacheSetup& setup) {
    if (setup.residual > 0) return;
    for (LayersOfFormats& each : setup.own_formats) {
        for (const auto& [layer, heads] : each.heads) each.layers.push_back(layer);
        std::sort(each.layers.begin(), each.layers.end());
        each.heads.clear();
    }
}

// Elastic zeroing begins, is set otherwise or ends.
void change_zeroing(CacheSetup& setup, std::mt19937_64& engine) {
    if (!setup.is_zeroing_changed) return;
    setup.zeroing.reset();
    if (engine() % 3 == 0) return;
    do {
        draw_zeroing(setup, engine);
    } while (!setup.has_zeroable_rows());
}

// Another cadence or budget, which ages bound; false where a segment would come that has no formats yet.
bool change_decay(CacheSetup& setup, std::mt19937_64& engine) {
    if (engine() % 2 == 0)
        setup.cadence =
            1 + static_cast<int64_t>(engine() % static_cast<uint64_t>(setup.residual > 0 ? setup.residual : 6));
    if (setup.ages.mode != "bit_reduction" && engine() % 2 == 0)
        setup.budget = setup.tokens() - static_cast<int64_t>(engine() % 9);
    const std::vector<LowerSegment> before = setup.lower;
    setup.set_segments_by_age();
    if (setup.lower.size() > before.size()) return false;
    for (size_t at = 0; at < setup.lower.size(); ++at) {
        setup.lower[at].k_type = before[at].k_type;
        setup.lower[at].v_type = before[at].v_type;
    }
    return true;
}

// Ages at which a head of so many tokens has one or two further segments, or none.
void draw_ages(CacheSetup& setup, std::mt19937_64& engine) {
    const auto draw = [&](int64_t low, int64_t high) {
        return low + static_cast<int64_t>(engine() % static_cast<uint64_t>(high - low + 1));
    };
    const auto rounded = [](double weight) { return std::round(weight * 1e5) / 1e5; };
    const int64_t tokens = setup.tokens(), second = draw(tokens / 4, tokens - 1), third = draw(second + 1, tokens + 2);
    setup.policy = Policy::decay;
    setup.ages.mode = std::vector<std::string>{"hybrid", "hybrid", "bit_reduction", "eviction"}[engine() % 4];
    setup.ages.window = draw(0, tokens / 3);
    setup.ages.lambda = rounded(2.0 / static_cast<double>(tokens));
    const auto weight_of = [&](int64_t age) { // between those of this age and the one before
        return rounded(std::exp(-setup.ages.lambda * (static_cast<double>(age) - .5)));
    };
    setup.ages.weight2 = weight_of(second);
    setup.ages.weight3 = draw(0, 2) ? weight_of(third) : 0;
    setup.ages.eviction_threshold = weight_of(tokens);
    if (setup.ages.mode == "bit_reduction" || draw(0, 1)) setup.budget = 0;
    setup.is_ranked_by_experts = draw(0, 1) != 0;
    setup.moe.evict_inactive = setup.ages.mode != "bit_reduction" && draw(0, 1);
    setup.set_segments_by_age();
}

} // namespace

CacheSetup with_shape(CacheSetup setup, int shape) {
    const auto set = [&](uint32_t k, uint32_t v, int64_t size, int64_t v_size, int64_t kv_heads, int64_t group,
                         uint32_t type) {
        setup.k_type = k;
        setup.v_type = v;
        setup.head_size = size;
        setup.v_head_size = v_size;
        setup.kv_heads = kv_heads;
        setup.group = group;
        setup.type = type;
    };
    switch (shape) {
    case 0: set(WINNOW_TYPE_F16, WINNOW_TYPE_F16, 64, 64, 2, 2, WINNOW_TYPE_F32); break;
    case 1: set(WINNOW_TYPE_TURBO4, WINNOW_TYPE_TURBO3, 64, 64, 2, 4, WINNOW_TYPE_F32); break;
    case 2: set(WINNOW_TYPE_Q8_0, WINNOW_TYPE_Q8_0, 64, 64, 3, 1, WINNOW_TYPE_F16); break;
    case 3: set(WINNOW_TYPE_TURBO3, WINNOW_TYPE_TURBO4, 80, 80, 1, 3, WINNOW_TYPE_F32); break;
    case 4: set(WINNOW_TYPE_AFFINE4_G64, WINNOW_TYPE_AFFINE4_G64, 128, 64, 1, 8, WINNOW_TYPE_F32); break;
    default: set(WINNOW_TYPE_BF16, WINNOW_TYPE_F32, 64, 64, 2, 3, WINNOW_TYPE_F32); break;
    }
    if (shape == 1) setup.k_norm = WINNOW_NORM_UNIT_SLOPE;
    set_lower_types(setup, shape);
    set_own_types(setup, shape);
    return setup;
}

std::string shape_name(int shape) {
    const CacheSetup setup = with_shape({}, shape);
    return type_name(setup.k_type) + "_" + type_name(setup.v_type) + "_" + std::to_string(setup.head_size);
}

CacheSetup with_unlike_layers(CacheSetup setup) {
    setup.shapes = {{4, 1, 64, 128}, {3, 2, 128, 64}, {1, 4, 64, 64}};
    setup.layers = static_cast<int64_t>(setup.shapes.size());
    if (!setup.adaptive_budget.profile.empty()) setup.adaptive_budget.profile.resize(9, .5);
    return setup;
}

CacheSetup recall_setup(int shape, const char* budget) {
    const Recall recall{.has_codes = shape >= 3};
    return with_shape({.policy = Policy::none,
                       .context = 300,
                       .budget_text = budget,
                       .recall = recall,
                       .residual = 16,
                       .cadence = 8,
                       .center = shape <= 1}, // signs with means and without
                      shape);
}

CacheSetup recall_setup_of_newest(int shape, const char* budget) {
    CacheSetup setup = recall_setup(shape, budget);
    setup.policy = Policy::window;
    setup.budget = 120;
    return setup;
}

CacheSetup recall_setup_of_large_rows() {
    CacheSetup setup = recall_setup(0, "1G");
    setup.layers = 1;
    setup.kv_heads = 8;
    setup.group = 4;
    setup.head_size = setup.v_head_size = 256;
    setup.recall->has_codes = true;
    setup.center = false;
    return setup;
}

CacheSetup draw_setup(std::mt19937_64& engine) {
    const auto draw = [&](int64_t low, int64_t high) {
        return low + static_cast<int64_t>(engine() % static_cast<uint64_t>(high - low + 1));
    };
    for (;;) {
        std::vector<NamedSetup> policies = policy_setups();
        std::erase_if(policies, [](const NamedSetup& each) { return each.setup.zeroing.has_value(); });
        CacheSetup setup = policies[engine() % policies.size()].setup;
        const int shape = static_cast<int>(engine() % cache_shapes);
        setup = with_shape(setup, shape);
        const uint64_t drawn = engine();
        setup.layers = std::max(setup.layers, 1 + static_cast<int64_t>(drawn % 3));
        if (drawn / 3 % 8 == 0) { // each of their formats is a program
            draw_own_formats(setup, engine);
            set_own_types(setup, shape);
        }
        if (!setup.adaptive_budget.profile.empty())
            setup.adaptive_budget.profile.resize(static_cast<size_t>(3 * setup.layers), .5);
        setup.sequences = draw(1, 3);
        setup.context = draw(250, 900);
        if (draw(1, 3) == 1) setup.sink = draw(0, 8);
        if (draw(1, 2) == 1) setup.residual = draw(0, 2) * 16 + (draw(0, 1) ? 16 : 0);
        if (setup.budget != 0 && draw(1, 2) == 1) setup.budget = draw(60, 200);
        if (draw(1, 3) == 1) setup.cadence = draw(1, 32);
        if (setup.residual > 0 && draw(1, 4) == 1) setup.center = true;
        if (setup.residual == 0) setup.center = false; // which takes its means from there
        setup.type = draw(0, 3) ? setup.type : static_cast<uint32_t>(WINNOW_TYPE_F16);
        if (setup.policy == Policy::decay) {
            setup.set_segments_by_age();
            set_lower_types(setup, shape);
        }
        if (setup.h2o.heavy) setup.h2o.heavy = std::min<int64_t>(*setup.h2o.heavy, setup.budget / 3);
        if (setup.h2o.heavy) setup.recent = std::min<int64_t>(*setup.recent, setup.budget / 3);
        setup.sparse_v = draw(1, 4) == 1 ? .003 : 0;
        settle_heads(setup);
        if (setup.tokens() < setup.context || setup.budget == 0)
            if (setup.policy == Policy::none || has_room(setup)) return setup;
    }
}

std::optional<CacheSetup> draw_change(const CacheSetup& setup, std::mt19937_64& engine) {
    const auto draw = [&](int64_t low, int64_t high) {
        return low + static_cast<int64_t>(engine() % static_cast<uint64_t>(high - low + 1));
    };
    for (int tried = 0; tried < 20; ++tried) {
        CacheSetup other = setup;
        if (setup.policy == Policy::decay) {
            if (change_decay(other, engine) && other.config() != setup.config() && has_room(other)) return other;
            continue;
        }
        const bool has_importance = setup.keeps_importance();
        const std::vector<Policy> policies = has_importance
                                                 ? std::vector{Policy::h2o,      Policy::scissorhands, Policy::tova,
                                                               Policy::external, Policy::learned,      Policy::winnow}
                                                 : std::vector{Policy::window, Policy::random};
        if (draw(0, 1)) other.policy = policies[engine() % policies.size()];
        if (other.policy == Policy::none) continue;
        other.budget = draw(1, 5) == 1 ? 0 : draw(60, 200);
        if (draw(1, 3) == 1) other.cadence = draw(1, 32);
        change_zeroing(other, engine);
        if (other.config() == setup.config() || other.keeps_importance() != has_importance) continue;
        if ((other.budget == 0 || other.tokens() < other.context) && has_room(other)) return other;
    }
    return std::nullopt;
}

CacheSetup draw_tight_setup(std::mt19937_64& engine) {
    const auto draw = [&](int64_t low, int64_t high) {
        return low + static_cast<int64_t>(engine() % static_cast<uint64_t>(high - low + 1));
    };
    for (;;) {
        CacheSetup setup = with_shape({}, static_cast<int>(draw(0, 2)));
        const Policy policies[] = {Policy::window,       Policy::random, Policy::h2o,      Policy::winnow,
                                   Policy::scissorhands, Policy::tova,   Policy::external, Policy::learned};
        setup.policy = policies[draw(0, 7)];
        setup.layers = draw(1, 3);
        setup.sequences = draw(1, 2);
        setup.context = draw(60, 160);
        setup.sink = draw(0, 6);
        setup.residual = draw(1, 3) == 1 ? draw(2, 9) : 0;
        setup.cadence = draw(1, setup.residual > 0 ? setup.residual : 6);
        setup.center = setup.residual > 0 && draw(1, 4) == 1;
        setup.grace = draw(0, 3);
        setup.every = draw(1, 3);
        setup.recent = draw(0, 5);
        if (setup.policy == Policy::h2o) setup.recent.reset();
        if (!set_least_budget(setup, draw(0, 1) ? draw(0, 3) : draw(0, 20))) continue;
        if (draw(1, 5) == 1) {
            setup.cells = std::max<int64_t>(setup.budget + draw(-2, 30), 4);
            setup.context = 4096;
        } else if (draw(1, 12) == 1) {
            setup.budget = 0; // all of it
        }
        return setup;
    }
}

std::optional<CacheSetup> draw_segments(CacheSetup setup, std::mt19937_64& engine) {
    constexpr Part shares[] = {{1, 8}, {1, 5}, {1, 4}, {1, 3}, {2, 5}, {1, 2}, {3, 5}};
    const uint64_t drawn = engine(), kind = drawn % 4;
    const bool is_decay = kind == 1 || setup.policy == Policy::decay, is_mixed = kind == 0 && !is_decay;
    setup.lower.clear();
    if (is_mixed) setup.policy = Policy::mixed;
    if (is_decay) draw_ages(setup, engine);
    for (uint64_t at = engine() % 2; at < 2 && !is_decay; ++at)
        setup.lower.push_back({shares[engine() % std::size(shares)]});
    const int shape = static_cast<int>(engine() % cache_shapes);
    if (drawn / 4 % 8 == 0) draw_own_formats(setup, engine);
    settle_heads(setup);
    setup = with_shape(setup, shape);
    if (setup.recent && is_mixed) setup.recent.reset();
    if (is_decay && setup.tokens() <= setup.sink + setup.residual) return std::nullopt;
    for (int64_t layer = 0; layer < setup.layers; ++layer)
        for (const int64_t slots : setup.packed_slots(layer))
            if (slots < 1) return std::nullopt;
    const Rules rules = rules_of(setup, 0, 0);
    const int64_t kept = rules.sink + std::max(rules.recent, rules.grace) + setup.cadence_tokens();
    if (!setup.has_room_in_each() || (!setup.covers_all(0) && kept > rules.budget)) return std::nullopt;
    return setup;
}

void draw_zeroing(CacheSetup& setup, std::mt19937_64& engine) {
    constexpr double scales[] = {0, .17, .35, .45, .5, 1};
    do {
        setup.zeroing = {scales[engine() % std::size(scales)], scales[engine() % std::size(scales)],
                         static_cast<int64_t>(engine() % 20), 1 + static_cast<int64_t>(engine() % 40),
                         static_cast<int64_t>(engine() % 60)};
    } while (setup.zeroing->k == 0 && setup.zeroing->v == 0);
}

std::optional<CacheSetup> draw_tight_change(const CacheSetup& setup, std::mt19937_64& engine) {
    const auto draw = [&](int64_t low, int64_t high) {
        return low + static_cast<int64_t>(engine() % static_cast<uint64_t>(high - low + 1));
    };
    CacheSetup other = setup;
    if (setup.policy == Policy::decay)
        return change_decay(other, engine) && other.config() != setup.config() ? std::optional(other) : std::nullopt;
    const bool has_importance = setup.keeps_importance();
    if (draw(0, 1)) {
        const Policy policies[] = {Policy::h2o,  Policy::scissorhands, Policy::winnow, Policy::window,
                                   Policy::tova, Policy::external,     Policy::random, Policy::learned};
        other.policy = policies[draw(0, 7)];
        other.recent = draw(0, 5);
        if (other.policy == Policy::h2o) other.recent.reset();
    }
    if (draw(0, 1)) other.cadence = draw(1, setup.residual > 0 ? setup.residual : 6);
    if (draw(0, 1)) other.grace = draw(0, 3);
    if (draw(0, 1)) other.every = draw(1, 3);
    change_zeroing(other, engine);
    if (!set_least_budget(other, draw(0, 1) ? draw(0, 3) : draw(0, 20))) return std::nullopt;
    if (!setup.lower.empty() && draw(0, 1)) other.budget = setup.budget; // any other is refused
    if (setup.cells == 0 && draw(1, 8) == 1) other.budget = 0;
    if (other.config() == setup.config() || other.keeps_importance() != has_importance) return std::nullopt;
    return other;
}

} // namespace winnow::conformance
