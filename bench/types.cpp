// Names of the storage formats.
#include "types.hpp"

#include "winnow.h"

namespace winnow::bench {

const std::map<std::string, uint32_t>& storage_formats() {
    static const std::map<std::string, uint32_t> formats{
        {"f32", WINNOW_TYPE_F32},
        {"f16", WINNOW_TYPE_F16},
        {"bf16", WINNOW_TYPE_BF16},
        {"q8_0", WINNOW_TYPE_Q8_0},
        {"q5_1", WINNOW_TYPE_Q5_1},
        {"q5_0", WINNOW_TYPE_Q5_0},
        {"q4_1", WINNOW_TYPE_Q4_1},
        {"q4_0", WINNOW_TYPE_Q4_0},
        {"iq4_nl", WINNOW_TYPE_IQ4_NL},
        {"affine8_g32", WINNOW_TYPE_AFFINE8_G32},
        {"affine8_g64", WINNOW_TYPE_AFFINE8_G64},
        {"affine8_g128", WINNOW_TYPE_AFFINE8_G128},
        {"affine4_g32", WINNOW_TYPE_AFFINE4_G32},
        {"affine4_g64", WINNOW_TYPE_AFFINE4_G64},
        {"affine4_g128", WINNOW_TYPE_AFFINE4_G128},
        {"turbo4", WINNOW_TYPE_TURBO4},
        {"turbo3", WINNOW_TYPE_TURBO3},
        {"turbo2", WINNOW_TYPE_TURBO2},
        {"turbo3_5", WINNOW_TYPE_TURBO3_5},
        {"turbo2_5", WINNOW_TYPE_TURBO2_5},
        {"sparse16", WINNOW_TYPE_SPARSE16},
        {"sparse8", WINNOW_TYPE_SPARSE8},
    };
    return formats;
}

std::string type_name(uint32_t type) {
    for (const auto& [name, value] : storage_formats())
        if (value == type) return name;
    return "i32";
}

std::string type_names(uint32_t k, uint32_t v) { return k == v ? type_name(k) : type_name(k) + ":" + type_name(v); }

bool is_packed(uint32_t type) { return type >= WINNOW_TYPE_Q8_0; }

uint64_t type_size(uint32_t type) {
    if (is_packed(type)) return 0;
    return type == WINNOW_TYPE_F32 || type == WINNOW_TYPE_I32 ? 4 : 2;
}

} // namespace winnow::bench
