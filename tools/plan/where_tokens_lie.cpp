// In which formats a full context lies, and how many of its tokens stay: a dry run of policies and of their segments.
#include <algorithm>
#include <array>
#include <cstdio>

#include "canonical_config.hpp"
#include "plan.hpp"

namespace winnow::tools {
namespace {

// Of an element's code, without scales and norms.
struct TypeBits {
    uint32_t type;
    const char* name;
    double bits;
};
constexpr std::array types = {
    TypeBits{WINNOW_TYPE_F32, "f32", 32},
    TypeBits{WINNOW_TYPE_F16, "f16", 16},
    TypeBits{WINNOW_TYPE_BF16, "bf16", 16},
    TypeBits{WINNOW_TYPE_Q8_0, "q8_0", 8},
    TypeBits{WINNOW_TYPE_Q5_1, "q5_1", 5},
    TypeBits{WINNOW_TYPE_Q5_0, "q5_0", 5},
    TypeBits{WINNOW_TYPE_Q4_1, "q4_1", 4},
    TypeBits{WINNOW_TYPE_Q4_0, "q4_0", 4},
    TypeBits{WINNOW_TYPE_IQ4_NL, "iq4_nl", 4},
    TypeBits{WINNOW_TYPE_AFFINE8_G32, "affine8_g32", 8},
    TypeBits{WINNOW_TYPE_AFFINE8_G64, "affine8_g64", 8},
    TypeBits{WINNOW_TYPE_AFFINE8_G128, "affine8_g128", 8},
    TypeBits{WINNOW_TYPE_AFFINE4_G32, "affine4_g32", 4},
    TypeBits{WINNOW_TYPE_AFFINE4_G64, "affine4_g64", 4},
    TypeBits{WINNOW_TYPE_AFFINE4_G128, "affine4_g128", 4},
    TypeBits{WINNOW_TYPE_TURBO4, "turbo4", 4},
    TypeBits{WINNOW_TYPE_TURBO3, "turbo3", 3},
    TypeBits{WINNOW_TYPE_TURBO2, "turbo2", 2},
    TypeBits{WINNOW_TYPE_TURBO3_5, "turbo3_5", 3.5},
    TypeBits{WINNOW_TYPE_TURBO2_5, "turbo2_5", 2.5},
    TypeBits{WINNOW_TYPE_SPARSE16, "sparse16", 11.5},
    TypeBits{WINNOW_TYPE_SPARSE8, "sparse8", 6.5},
};

TypeBits bits_of(uint32_t type) {
    const auto* const found = std::ranges::find(types, type, &TypeBits::type);
    return found != types.end() ? *found : TypeBits{type, "unknown", 0};
}

} // namespace

TokensOfHead tokens_of_head(const PlanRow& row, int64_t context) {
    TokensOfHead all;
    double bits = 0;
    int64_t packed = 0;
    for (size_t i = 0; i < row.segments.size(); ++i) {
        const ggml::SegmentTokens& each = row.segments[i];
        if (each.tokens == 0) continue;
        const TypeBits k = bits_of(each.k_type), v = bits_of(each.v_type);
        all.retained += each.tokens;
        all.segments.push_back({each.tokens, k.name, v.name});
        for (const TypeBits& side : {k, v}) {
            if (side.bits >= 16) continue; // dense
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
    if (!find_value(row.canonical, "fine") && !find_value(row.canonical, "coarse")) text += bits;
    for (const std::string key : {"fine", "coarse"}) {
        const std::string layers = value_of(row.canonical, key);
        if (layers.empty()) continue;
        text += (layers.find('.') == std::string::npos ? "; layers " : "; layers and heads ") + layers + " with";
        for (const std::string& side : {"k_" + key, "v_" + key})
            if (const std::string format = value_of(row.canonical, side); !format.empty())
                text.append(" ").append(side).append("=").append(format);
    }
    return text + ".\n";
}

} // namespace winnow::tools
