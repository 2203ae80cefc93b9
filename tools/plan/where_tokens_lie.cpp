// In which formats a full context lies, and how many of its tokens stay: a dry run of policies and of their segments.
#include <algorithm>
#include <cstdio>

#include "canonical_config.hpp"
#include "format_bits.hpp"
#include "plan.hpp"

namespace winnow::tools {

TokensOfHead tokens_of_head(const PlanRow& row, int64_t context) {
    TokensOfHead all;
    double bits = 0;
    int64_t packed = 0;
    for (size_t i = 0; i < row.segments.size(); ++i) {
        const ggml::SegmentTokens& each = row.segments[i];
        if (each.tokens == 0) continue;
        const ggml::FormatBits k = ggml::bits_of(each.k_type), v = ggml::bits_of(each.v_type);
        all.retained += each.tokens;
        all.segments.push_back({each.tokens, std::string(k.name), std::string(v.name)});
        for (const ggml::FormatBits& side : {k, v}) {
            if (side.bits >= ggml::dense_bits) continue;
            packed += each.tokens;
            bits += static_cast<double>(each.tokens) * side.bits;
        }
    }
    all.evicted = std::max<int64_t>(context - all.retained, 0);
    if (packed > 0) all.packed_bits = bits / static_cast<double>(packed);
    return all;
}

std::string where_tokens_lie(const PlanRow& row, int64_t context) {
    const TokensOfHead all = tokens_of_head(row, context);
    std::string text = "of " + grouped(context) + " tokens a KV head retains " + grouped(all.retained) +
                       " and evicts " + grouped(all.evicted) + ": ";
    for (size_t i = 0; i < all.segments.size(); ++i) {
        const auto& [tokens, k, v] = all.segments[i];
        text += (i == 0 ? "" : ", ") + grouped(tokens) + " in " + k + (k == v ? "" : " and " + v);
    }
    char bits[64] = "";
    if (all.packed_bits > 0)
        std::snprintf(bits, sizeof bits, "; codes of the packed ones have %.2f bits on average", all.packed_bits);
    if (!ggml::find_value(row.canonical, "fine") && !ggml::find_value(row.canonical, "coarse")) text += bits;
    for (const std::string key : {"fine", "coarse"}) {
        const std::string layers = ggml::value_of(row.canonical, key);
        if (layers.empty()) continue;
        text += (layers.find('.') == std::string::npos ? "; layers " : "; layers and heads ") + layers + " with";
        for (const std::string& side : {"k_" + key, "v_" + key})
            if (const std::string format = ggml::value_of(row.canonical, side); !format.empty())
                text.append(" ").append(side).append("=").append(format);
    }
    return text + ".\n";
}

} // namespace winnow::tools
