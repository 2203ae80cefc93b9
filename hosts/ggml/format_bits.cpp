// The formats of the ABI, and the keys that say which layers have others.
#include "format_bits.hpp"

#include <algorithm>
#include <array>

#include "canonical_config.hpp"

namespace winnow::ggml {

namespace {

constexpr std::array formats = {
    FormatBits{WINNOW_TYPE_F32, "f32", 32},
    FormatBits{WINNOW_TYPE_F16, "f16", 16},
    FormatBits{WINNOW_TYPE_BF16, "bf16", 16},
    FormatBits{WINNOW_TYPE_Q8_0, "q8_0", 8},
    FormatBits{WINNOW_TYPE_Q5_1, "q5_1", 5},
    FormatBits{WINNOW_TYPE_Q5_0, "q5_0", 5},
    FormatBits{WINNOW_TYPE_Q4_1, "q4_1", 4},
    FormatBits{WINNOW_TYPE_Q4_0, "q4_0", 4},
    FormatBits{WINNOW_TYPE_IQ4_NL, "iq4_nl", 4},
    FormatBits{WINNOW_TYPE_AFFINE8_G32, "affine8_g32", 8},
    FormatBits{WINNOW_TYPE_AFFINE8_G64, "affine8_g64", 8},
    FormatBits{WINNOW_TYPE_AFFINE8_G128, "affine8_g128", 8},
    FormatBits{WINNOW_TYPE_AFFINE4_G32, "affine4_g32", 4},
    FormatBits{WINNOW_TYPE_AFFINE4_G64, "affine4_g64", 4},
    FormatBits{WINNOW_TYPE_AFFINE4_G128, "affine4_g128", 4},
    FormatBits{WINNOW_TYPE_TURBO4, "turbo4", 4},
    FormatBits{WINNOW_TYPE_TURBO3, "turbo3", 3},
    FormatBits{WINNOW_TYPE_TURBO2, "turbo2", 2},
    FormatBits{WINNOW_TYPE_TURBO3_5, "turbo3_5", 3.5},
    FormatBits{WINNOW_TYPE_TURBO2_5, "turbo2_5", 2.5},
    FormatBits{WINNOW_TYPE_SPARSE16, "sparse16", 11.5},
    FormatBits{WINNOW_TYPE_SPARSE8, "sparse8", 6.5},
};

} // namespace

FormatBits bits_of(uint32_t type) {
    const auto* const found = std::ranges::find(formats, type, &FormatBits::type);
    return found != formats.end() ? *found : FormatBits{type, "unknown", 0};
}

double bits_of_code(const std::string& format) {
    const auto* const found = std::ranges::find(formats, format, &FormatBits::name);
    return found != formats.end() ? found->bits : 0;
}

double fewest_key_bits(const CacheMeaning& meaning) {
    double fewest = dense_bits;
    for (const ggml::SegmentTokens& each : meaning.segments)
        if (each.tokens > 0) fewest = std::min(fewest, bits_of(each.k_type).bits);
    for (const char* const key : {"k_fine", "k_coarse"})
        if (const std::string format = value_of(meaning.config, key); !format.empty())
            fewest = std::min(fewest, bits_of_code(format));
    return fewest;
}

std::string warning_of_biased_keys(const CacheMeaning& meaning) {
    const double bits = fewest_key_bits(meaning);
    if (bits == 0 || bits >= least_bits_of_biased_keys) return ""; // 0: nobody knows
    return "the model adds a bias to its keys, and some of them are stored in fewer than 8 bits, which may lose much "
           "of such keys; expected 8 bits for all keys, for example winnow:k=q8_0";
}

} // namespace winnow::ggml
