// The shapes of typical models for which `winnow info` asks a backend what it would run. Nothing is computed.
#pragma once

#include <string>
#include <vector>

#include "winnow.h"

namespace winnow::tools {

struct VariantAnswer {
    std::string operation; // "sdpa" or "kv_append"
    std::string shape;     // for people: "decode f16, 32/8 heads x 128, 4096 keys"
    int32_t status;
    std::string text; // the variant's name, or the reason of the refusal
};

std::vector<VariantAnswer> ask_variants(const winnow_api& api, winnow_context* context);

} // namespace winnow::tools
