// What may stand behind a key of a configuration: amounts, shares, numbers and words, their spelling and their limits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "device/description.hpp"
#include "device/format.hpp"

namespace winnow::cache {

// Tokens, a share of something that the key names, or bytes.
struct Amount {
    enum class Unit { tokens, share, bytes };
    Unit unit = Unit::tokens;
    int64_t count = 0; // tokens or bytes
    Share share;
    friend bool operator==(const Amount&, const Amount&) = default;
};

int64_t tokens_of(const Amount& amount, int64_t whole); // tokens, or the share of whole, rounded down; not of bytes

enum class Kind {
    budget, // 1/4, 512, 64M, 64MiB, 1000B; more than nothing
    amount, // 1/4 or 128
    share,  // 1/4, between 0/1 and 1/1
    count,  // a whole number within the key's limits
    number, // a decimal number within the key's limits
    word,   // one of the key's choices
    format, // a storage format's name
    text,   // anything that holds no comma
    folder, // one of the key's choices, or a path without a comma and with a / in it
    layers, // numbers and ranges of layers, from 0, and of KV heads of them: 0-2+7+8.0-1
};

// Words, formats and layers are strings.
using Value = std::variant<Amount, double, std::string>;

struct Key {
    const char* name;
    Kind kind;
    const char* fallback; // the default in canonical spelling; empty where it depends on others, as `help` says
    const char* help;
    const char* choices = ""; // of a word, separated by '|'
    double least = 0;         // of a count or a number
    double most = 1 << 24;
    const char* stands_for = nullptr; // another name of that key
};

// Throws Error (invalid argument) that names the key, what was given and what may stand there.
Value parse_value(const Key& key, std::string_view text);
// The canonical spelling: parse_value(key, spell(v)) == v.
std::string spell(const Value& value);
// What may stand behind the key, in words.
std::string expected(const Key& key);

std::vector<std::string> choices_of(const Key& key); // of a word or a format

// Storage formats are written as format_name has them.
std::vector<std::string> format_names();
Type format_of(std::string_view name); // none: no storage format

// A layer, or some of its KV heads: bit h for head h; 0: all of them.
struct LayerHeads {
    int64_t layer = 0;
    uint64_t heads = 0;
    friend bool operator==(const LayerHeads&, const LayerHeads&) = default;
};
inline constexpr int64_t most_listed_heads = 64;

// The layers of a value of that kind, ascending.
std::vector<LayerHeads> layers_of(std::string_view text);

// Quotes what a user wrote: without control characters, and cut where it is long.
std::string quote(std::string_view text);
std::string join(const std::vector<std::string>& parts);
[[noreturn]] void refuse(const std::string& text); // Error, invalid argument

} // namespace winnow::cache
