// A session's options arrive among its configuration entries, with the provider's name before them.
#include "options.hpp"

#include <charconv>
#include <cstring>
#include <memory>

namespace winnow::ort {

namespace {

constexpr std::string_view option_prefix = "ep.winnowexecutionprovider.";
constexpr int64_t most_tokens = int64_t{1} << 30, most_rows = 4096;

int64_t number_of(std::string_view key, std::string_view text, int64_t most) {
    int64_t number = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (failure != std::errc() || end != text.data() + text.size() || number < 1 || number > most)
        throw Error(std::string(provider_name) + ": " + std::string(key) + "=" + std::string(text) +
                    ", expected a number from 1 to " + std::to_string(most));
    return number;
}

void set(Options& options, std::string_view key, const char* value) {
    if (key == "kv")
        options.kv = value;
    else if (key == "device")
        options.device = value;
    else if (key == "backend")
        options.backend = value;
    else if (key == "report")
        options.report = value;
    else if (key == "max_tokens")
        options.max_tokens = number_of(key, value, most_tokens);
    else if (key == "max_batch")
        options.max_batch = number_of(key, value, most_rows);
    else if (key == "pressure")
        options.pressure = pressure_of(key, value);
    else
        throw Error(std::string(provider_name) + " has no option " + std::string(key) +
                    ", expected kv, device, backend, report, max_tokens, max_batch or pressure");
}

} // namespace

double pressure_of(std::string_view key, std::string_view text) {
    if (text == "auto") return -1;
    double share = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), share);
    if (failure != std::errc() || end != text.data() + text.size() || !(share >= 0 && share <= 1))
        throw Error(std::string(provider_name) + ": " + std::string(key) + "=" + std::string(text) +
                    ", expected auto, or a share from 0 to 1");
    return share;
}

Options read_options(const OrtSessionOptions* session) {
    OrtKeyValuePairs* entries = nullptr;
    check(api().GetSessionOptionsConfigEntries(session, &entries));
    const std::unique_ptr<OrtKeyValuePairs, void (*)(OrtKeyValuePairs*)> owned(
        entries, [](OrtKeyValuePairs* all) { api().ReleaseKeyValuePairs(all); });
    const char *const *keys = nullptr, *const *values = nullptr;
    size_t count = 0;
    api().GetKeyValuePairs(entries, &keys, &values, &count);
    Options options;
    for (size_t i = 0; i < count; ++i) {
        const std::string_view key = keys[i];
        if (key.starts_with(option_prefix)) set(options, key.substr(option_prefix.size()), values[i]);
    }
    return options;
}

} // namespace winnow::ort
