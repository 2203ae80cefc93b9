// What llama.cpp calls a layer's keys or values: "cache_k_l7". A tag may stand before the letter.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace winnow::ggml {

struct CacheName {
    std::string tag;
    char letter = 0; // k or v; 0: it is no cache's
    int64_t layer = 0;
    explicit CacheName(std::string_view text) {
        constexpr std::string_view prefix = "cache_";
        const size_t mark = text.rfind("_l");
        if (text.substr(0, prefix.size()) != prefix || mark == std::string_view::npos || mark <= prefix.size()) return;
        const std::string_view digits = text.substr(mark + 2);
        if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos) return;
        if (text[mark - 1] != 'k' && text[mark - 1] != 'v') return;
        letter = text[mark - 1];
        tag = text.substr(prefix.size(), mark - 1 - prefix.size());
        layer = std::strtoll(digits.data(), nullptr, 10);
    }
};

} // namespace winnow::ggml
