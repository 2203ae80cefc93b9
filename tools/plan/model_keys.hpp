// A model's numbers by the keys of its file. Each has to be one that a model can have.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace winnow::tools {

class GgufHeader;

inline constexpr int64_t most_layers = 512; // llama.cpp's own limit
inline constexpr int64_t most_heads = 65536, largest_width = 1 << 24;

// Functions throw std::runtime_error, which names the file and the key. Names are keys without the architecture.
class ModelKeys {
public:
    // The header has to stay.
    explicit ModelKeys(const GgufHeader& header);

    const std::string& architecture() const { return architecture_; }
    std::string full(const std::string& name) const { return architecture_ + '.' + name; }
    bool has(const std::string& name) const;
    bool is_list(const std::string& name) const;
    int64_t one(const std::string& name, int64_t least, int64_t most) const;
    // A number for all layers, or one for each.
    std::vector<int64_t> of_layers(const std::string& name, int64_t layers, int64_t least, int64_t most) const;

    [[noreturn]] void fail(const std::string& what) const; // with the file's name before it

private:
    int64_t checked(const std::string& name, int64_t value, int64_t least, int64_t most) const;

    const GgufHeader& header_;
    std::string architecture_;
};

} // namespace winnow::tools
