// Reads and writes the values of a configuration. Numbers are exact or shortest, independent of the locale.
#include "cache/plan/config_value.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <locale>
#include <map>
#include <numeric>
#include <optional>
#include <sstream>
#include <utility>

#include "device/device.hpp"

namespace winnow::cache {
namespace {

constexpr int64_t most_whole = 1 << 20; // of a share: products with 2^40 tokens stay within 64 bits
constexpr int64_t most_tokens = int64_t{1} << 40;
constexpr int64_t most_bytes = int64_t{1} << 60;
constexpr int64_t most_layers = 1 << 12;

// Digits only: from_chars takes a minus sign.
std::optional<int64_t> digits(std::string_view text, int64_t most) {
    if (text.empty() || text.front() == '-') return std::nullopt;
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value > most) return std::nullopt;
    return value;
}

// A decimal number, which a double has to tell from 0. By a stream, since not every C++ library has a from_chars of
// real numbers; hexadecimal and infinity, in which streams differ, do not get to it.
std::optional<double> real(std::string_view text) {
    if (text.empty() || text.front() == '+' || text.find_first_not_of("0123456789.eE+-") != std::string_view::npos)
        return std::nullopt;
    std::istringstream stream{std::string(text)};
    stream.imbue(std::locale::classic());
    double value = 0;
    stream >> std::noskipws >> value;
    if (!stream || stream.peek() != std::istringstream::traits_type::eof()) return std::nullopt;
    const bool is_zero = text.substr(0, text.find_first_of("eE")).find_first_of("123456789") == std::string_view::npos;
    return is_zero || value != 0 ? std::optional(value) : std::nullopt;
}

std::optional<Amount> share(std::string_view text) {
    const size_t slash = text.find('/');
    if (slash == std::string_view::npos) return std::nullopt;
    const auto part = digits(text.substr(0, slash), most_whole), whole = digits(text.substr(slash + 1), most_whole);
    if (!part || !whole || *whole == 0 || *part > *whole) return std::nullopt;
    const int64_t common = std::gcd(*part, *whole);
    return Amount{Amount::Unit::share, 0, {*part / common, *whole / common}};
}

struct Suffix {
    const char* text;
    int64_t bytes;
};
constexpr Suffix suffixes[] = {{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"G", 1 << 30},
                               {"M", 1 << 20},   {"K", 1 << 10},   {"B", 1}};

std::optional<Amount> bytes(std::string_view text) {
    for (const Suffix& suffix : suffixes) {
        if (!text.ends_with(suffix.text)) continue;
        text.remove_suffix(std::string_view(suffix.text).size());
        const auto count = digits(text, most_bytes / suffix.bytes);
        if (!count) return std::nullopt;
        return Amount{Amount::Unit::bytes, *count * suffix.bytes, {}};
    }
    return std::nullopt;
}

std::optional<Amount> tokens(std::string_view text, int64_t least, int64_t most) {
    const auto count = digits(text, most);
    if (!count || *count < least) return std::nullopt;
    return Amount{Amount::Unit::tokens, *count, {}};
}

std::optional<Amount> budget(std::string_view text) {
    std::optional<Amount> found = tokens(text, 1, most_tokens);
    if (!found) found = share(text);
    if (!found) found = bytes(text);
    const bool nothing = found && found->count == 0 && found->share.part == 0;
    return nothing ? std::nullopt : found;
}

// A number, or a range of them: "7", "0-2"; none where it is neither.
std::optional<std::pair<int64_t, int64_t>> range(std::string_view text, int64_t most) {
    const size_t dash = std::min(text.find('-'), text.size());
    const auto first = digits(text.substr(0, dash), most);
    const auto last = dash < text.size() ? digits(text.substr(dash + 1), most) : first;
    if (!first || !last || *last < *first) return std::nullopt;
    return std::pair(*first, *last);
}

std::string spell_range(int64_t first, int64_t last) {
    return std::to_string(first) + (last > first ? "-" + std::to_string(last) : "");
}

// Of each layer its KV heads, as LayerHeads has them. None where it is no such list.
std::optional<std::map<int64_t, uint64_t>> layers(std::string_view text) {
    std::map<int64_t, uint64_t> all;
    for (size_t begin = 0; begin <= text.size();) {
        const size_t end = std::min(text.find('+', begin), text.size());
        const std::string_view item = text.substr(begin, end - begin);
        const size_t point = std::min(item.find('.'), item.size());
        const auto its_layers = range(item.substr(0, point), most_layers - 1);
        if (!its_layers) return std::nullopt;
        uint64_t heads = 0;
        if (point < item.size()) {
            const auto its_heads = range(item.substr(point + 1), most_listed_heads - 1);
            if (!its_heads) return std::nullopt;
            for (int64_t head = its_heads->first; head <= its_heads->second; ++head) heads |= uint64_t{1} << head;
        }
        for (int64_t layer = its_layers->first; layer <= its_layers->second; ++layer) {
            const auto [at, is_new] = all.emplace(layer, heads);
            if (!is_new) at->second = heads == 0 || at->second == 0 ? 0 : at->second | heads;
        }
        begin = end + 1;
    }
    return all;
}

std::string spell(const std::map<int64_t, uint64_t>& layers) {
    std::string text;
    for (auto at = layers.begin(); at != layers.end();) {
        const auto [first, heads] = *at;
        int64_t last = first;
        while (++at != layers.end() && at->first == last + 1 && at->second == heads) ++last;
        const std::string its_layers = spell_range(first, last);
        if (heads == 0) text.append(text.empty() ? "" : "+").append(its_layers);
        for (uint64_t left = heads; left != 0;) { // a run of heads at a time
            const int from = std::countr_zero(left), count = std::countr_one(left >> from);
            text.append(text.empty() ? "" : "+")
                .append(its_layers)
                .append(".")
                .append(spell_range(from, from + count - 1));
            left &= from + count < most_listed_heads ? ~uint64_t{0} << (from + count) : 0;
        }
    }
    return text;
}

std::string shortest(double number) {
    char text[64];
    const auto result = std::to_chars(text, text + sizeof text, number);
    return {text, result.ptr};
}

template <typename T>
Value or_refuse(const std::optional<T>& value, const Key& key, std::string_view text) {
    if (!value) refuse(std::string(key.name) + "=" + quote(text) + ": expected " + expected(key));
    return Value(*value);
}

} // namespace

int64_t tokens_of(const Amount& amount, int64_t whole) {
    return amount.unit == Amount::Unit::share ? floor_of(amount.share, whole) : amount.count;
}

Value parse_value(const Key& key, std::string_view text) {
    switch (key.kind) {
    case Kind::budget: return or_refuse(budget(text), key, text);
    case Kind::share: return or_refuse(share(text), key, text);
    case Kind::count:
        return or_refuse(tokens(text, static_cast<int64_t>(key.least), static_cast<int64_t>(key.most)), key, text);
    case Kind::amount: {
        const std::optional<Amount> count = tokens(text, 0, most_tokens);
        return or_refuse(count ? count : share(text), key, text);
    }
    case Kind::number: {
        std::optional<double> number = real(text);
        if (number && !(std::isfinite(*number) && *number >= key.least && *number <= key.most)) number.reset();
        if (number && *number == 0) number = 0.0; // of -0
        return or_refuse(number, key, text);
    }
    case Kind::text: return or_refuse(text.empty() ? std::nullopt : std::optional(std::string(text)), key, text);
    case Kind::layers: {
        const auto all = layers(text);
        return or_refuse(all ? std::optional(spell(*all)) : std::nullopt, key, text);
    }
    case Kind::folder:
        if (text.find('/') != std::string_view::npos) return Value(std::string(text));
        break;
    case Kind::word:
    case Kind::format: break;
    }
    const std::vector<std::string> all = choices_of(key);
    const auto found = std::find(all.begin(), all.end(), text);
    return or_refuse(found == all.end() ? std::nullopt : std::optional(*found), key, text);
}

std::string spell(const Value& value) {
    if (const auto* word = std::get_if<std::string>(&value)) return *word;
    if (const auto* number = std::get_if<double>(&value)) return shortest(*number);
    const Amount& amount = std::get<Amount>(value);
    if (amount.unit == Amount::Unit::share)
        return std::to_string(amount.share.part) + "/" + std::to_string(amount.share.whole);
    if (amount.unit == Amount::Unit::tokens) return std::to_string(amount.count);
    for (const Suffix& suffix : suffixes)
        if (std::string_view(suffix.text).size() == 1 && amount.count % suffix.bytes == 0)
            return std::to_string(amount.count / suffix.bytes) + suffix.text;
    return {};
}

std::string expected(const Key& key) {
    switch (key.kind) {
    case Kind::budget:
        return "a share of the context such as 1/4, tokens such as 512, or bytes such as 64M, 512K, 100B";
    case Kind::amount: return "a share such as 1/4, or tokens such as 128";
    case Kind::share: return "a share from 0/1 to 1/1, such as 1/4";
    case Kind::count:
        return "a whole number from " + std::to_string(static_cast<int64_t>(key.least)) + " to " +
               std::to_string(static_cast<int64_t>(key.most));
    case Kind::number: return "a number from " + shortest(key.least) + " to " + shortest(key.most);
    case Kind::text: return "a name";
    case Kind::layers:
        return "numbers and ranges of layers from 0 to " + std::to_string(most_layers - 1) +
               ", such as 0-1+28-29, and behind a point of KV heads from 0 to " +
               std::to_string(most_listed_heads - 1) + ", such as 5.0-1";
    case Kind::folder:
        return "one of " + join(choices_of(key)) + ", or a folder's path with a / in it, such as /var/tmp";
    case Kind::word:
    case Kind::format: break;
    }
    return "one of " + join(choices_of(key));
}

std::vector<std::string> choices_of(const Key& key) {
    if (key.kind == Kind::format) return format_names();
    std::vector<std::string> all;
    std::string_view rest = key.choices;
    while (!rest.empty()) {
        const size_t end = std::min(rest.find('|'), rest.size());
        all.emplace_back(rest.substr(0, end));
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return all;
}

std::vector<std::string> format_names() {
    std::vector<std::string> names;
    for (uint32_t number = 0; number < 64; ++number)
        if (is_storage_format(static_cast<Type>(number))) names.push_back(format_name(static_cast<Type>(number)));
    return names;
}

Type format_of(std::string_view name) {
    for (uint32_t number = 0; number < 64; ++number)
        if (const auto type = static_cast<Type>(number); is_storage_format(type) && format_name(type) == name)
            return type;
    return Type::none;
}

std::vector<LayerHeads> layers_of(std::string_view text) {
    std::vector<LayerHeads> all;
    for (const auto& [layer, heads] : layers(text).value_or(std::map<int64_t, uint64_t>()))
        all.push_back({layer, heads});
    return all;
}

std::string quote(std::string_view text) {
    constexpr size_t longest = 80;
    constexpr char hex[] = "0123456789abcdef";
    std::string quoted = "\"";
    size_t end = std::min(text.size(), longest);
    while (end < text.size() && end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80)
        --end; // whole UTF-8 characters
    for (const char each : text.substr(0, end)) {
        const auto code = static_cast<unsigned char>(each);
        if (code >= 0x20 && code != 0x7f)
            quoted += each;
        else
            quoted.append("\\x").append(1, hex[code >> 4]).append(1, hex[code & 15]);
    }
    return quoted + (text.size() > end ? "...\"" : "\"");
}

std::string join(const std::vector<std::string>& parts) {
    std::string text;
    for (const std::string& part : parts) text.append(text.empty() ? "" : ", ").append(part);
    return text;
}

void refuse(const std::string& text) { throw Error(WINNOW_ERROR_INVALID_ARGUMENT, text); }

} // namespace winnow::cache
