// The metadata at the head of a GGUF file, https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. No length in the
// file is believed before that many bytes are known to follow; of tensors only the names are read.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace winnow::tools {

class GgufHeader {
public:
    // Throws std::runtime_error, which names the file, the place in it, what was there and what was expected.
    explicit GgufHeader(const std::string& path);

    const std::string& path() const { return path_; }
    bool has(const std::string& key) const { return values_.count(key) != 0; }
    // Whether a layer adds a bias to its keys, by a tensor of its own or by one of queries, keys and values together.
    bool has_key_bias() const { return has_key_bias_; }

    // Nothing where the key is missing; std::runtime_error where its value is of another type.
    std::optional<int64_t> integer(const std::string& key) const;
    std::optional<std::string> text(const std::string& key) const;
    bool is_array(const std::string& key) const;
    std::optional<std::vector<int64_t>> integers(const std::string& key) const; // an array of integers or truth values

private:
    struct Skipped { // what nobody here asks for, as a tokenizer's lists
        std::string what;
    };
    using Value = std::variant<Skipped, int64_t, std::string, std::vector<int64_t>>;
    class Reader;

    [[noreturn]] void refuse(const std::string& key, const std::string& expected) const;

    std::string path_;
    std::map<std::string, Value> values_;
    bool has_key_bias_ = false;
};

} // namespace winnow::tools
