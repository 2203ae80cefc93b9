// Configurations in words: every key spelled out.
#include <optional>
#include <sstream>

#include "cache_setup.hpp"
#include "formats.hpp"

namespace winnow::conformance {
namespace {

const char* statistic_name(Statistic statistic) {
    return statistic == Statistic::score_magnitude ? "score_magnitude"
           : statistic == Statistic::probability   ? "probability"
                                                   : "probability_squared";
}

const char* norm_name(uint32_t norm) {
    return norm == WINNOW_NORM_PLAIN ? "plain" : norm == WINNOW_NORM_UNIT_SLOPE ? "unit_slope" : "corrected";
}

std::string spell(const Part& part) { return std::to_string(part.part) + "/" + std::to_string(part.whole); }

class Text {
public:
    explicit Text(Policy policy) { text_ << policy_name(policy); }
    template <typename Value>
    Text& add(const char* key, const Value& value) {
        text_ << (is_first_ ? ":" : ",") << key << "=" << value;
        is_first_ = false;
        return *this;
    }
    template <typename Value>
    Text& add(const char* key, const std::optional<Value>& value) {
        return value ? add(key, *value) : *this;
    }
    std::string str() const { return text_.str(); }

private:
    std::ostringstream text_;
    bool is_first_ = true;
};

bool has_importance(Policy policy) {
    return policy != Policy::none && policy != Policy::window && policy != Policy::random && policy != Policy::decay;
}

void add_keys_of_policy(Text& text, const CacheSetup& s) {
    if (s.policy == Policy::winnow) text.add("decay", s.decay).add("every", s.every).add("recent", s.recent);
    if (s.policy == Policy::mixed) text.add("decay", s.decay).add("every", s.every);
    if (s.policy == Policy::decay) {
        text.add("mode", s.ages.mode).add("window", s.ages.window).add("decay_lambda", s.ages.lambda);
        if (s.ages.mode != "eviction") text.add("weight2", s.ages.weight2).add("weight3", s.ages.weight3);
        if (s.ages.mode != "bit_reduction") text.add("eviction_threshold", s.ages.eviction_threshold);
    }
    if (s.policy == Policy::h2o)
        text.add("accumulation", s.h2o.sum ? "sum" : "ema")
            .add("alpha", s.decay)
            .add("every", s.every)
            .add("heavy", s.h2o.heavy)
            .add("recent", s.recent);
    if (s.policy == Policy::scissorhands)
        text.add("history", s.scissorhands.history).add("drop", spell(s.scissorhands.drop)).add("recent", s.recent);
    if (s.policy == Policy::tova || s.policy == Policy::external || s.policy == Policy::moe)
        text.add("recent", s.recent);
    if (s.has_inactive_experts())
        text.add("experts", s.moe.experts)
            .add("inactive", spell(s.moe.inactive))
            .add("evict_inactive", s.moe.evict_inactive ? "on" : "off");
    if (s.policy == Policy::random) text.add("seed", s.seed).add("recent", s.recent);
    if (s.policy == Policy::adaptive_budget) {
        text.add("policy", policy_name(s.adaptive_budget.selector));
        return;
    }
    if (s.policy == Policy::hierarchical) {
        text.add("trigger", spell(s.hierarchical.trigger))
            .add("first", s.hierarchical.first)
            .add("batch", s.hierarchical.batch);
        text.add("theta_shallow", s.hierarchical.theta_shallow)
            .add("theta_middle", s.hierarchical.theta_middle)
            .add("theta_deep", s.hierarchical.theta_deep);
        text.add("recent_shallow", s.hierarchical.recent_shallow)
            .add("recent_middle", s.hierarchical.recent_middle)
            .add("recent_deep", s.hierarchical.recent_deep);
        if (s.decay) text.add("alpha", 1 - *s.decay);
    }
    if (s.policy == Policy::learned) text.add("recent", s.recent).add("grace", s.grace);
    if (!has_importance(s.policy) || s.is_told() || s.policy == Policy::learned) return;
    if (s.statistic && s.policy != Policy::scissorhands && s.policy != Policy::tova)
        text.add("statistic", statistic_name(*s.statistic));
    text.add("grace", s.grace);
}

} // namespace

std::string CacheSetup::config() const {
    Text text(recall ? Policy::winnow : policy);
    if (recall) text.add("recall", recall->cold_tier);
    if (recall && recall->has_codes) text.add("signature", "codes");
    if (has_cold_budget()) text.add("cold", budget);
    if (policy != Policy::none || recall) {
        if (!budget_text.empty())
            text.add("budget", budget_text);
        else if (budget)
            text.add("budget", budget);
        else
            text.add("budget", "1/1");
    }
    text.add("k", type_name(k_type)).add("v", type_name(v_type)).add("sink", sink).add("residual", residual);
    text.add("cadence", cadence);
    text.add("center", center ? "on" : "off");
    text.add("k_norm", norm_name(k_norm)).add("v_norm", norm_name(v_norm));
    for (size_t at = 0; at < lower.size(); ++at) {
        const std::string number =
            std::to_string(policy == Policy::decay ? lower[at].number : static_cast<int>(at) + 2);
        if (policy != Policy::decay) text.add(("share" + number).c_str(), spell(lower[at].share));
        text.add(("k" + number).c_str(), type_name(lower[at].k_type));
        text.add(("v" + number).c_str(), type_name(lower[at].v_type));
    }
    for (const LayersOfFormats& each : own_formats) {
        std::string where;
        for (const int64_t layer : each.layers) where += (where.empty() ? "" : "+") + std::to_string(layer);
        for (const auto& [layer, heads] : each.heads)
            for (int64_t head = 0; head < shape(layer).kv_heads; ++head)
                if ((heads >> head & 1) != 0)
                    where += (where.empty() ? "" : "+") + std::to_string(layer) + "." + std::to_string(head);
        if (where.empty()) continue; // heads that layers of this shape have not
        text.add(each.key.c_str(), where);
        text.add(("k_" + each.key).c_str(), type_name(each.k_type));
        text.add(("v_" + each.key).c_str(), type_name(each.v_type));
    }
    if (sparse_v > 0) text.add("sparse_v", sparse_v);
    if (zeroing)
        text.add("elastic", "on")
            .add("zero_k", zeroing->k)
            .add("zero_v", zeroing->v)
            .add("zero_sink", zeroing->sink)
            .add("zero_every", zeroing->every)
            .add("zero_after", zeroing->after);
    add_keys_of_policy(text, *this);
    return text.str();
}

} // namespace winnow::conformance
