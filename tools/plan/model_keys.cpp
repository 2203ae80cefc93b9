// Reading numbers, and refusing those that no model has.
#include "model_keys.hpp"

#include <stdexcept>

#include "gguf_header.hpp"

namespace winnow::tools {

ModelKeys::ModelKeys(const GgufHeader& header) : header_(header) {
    const auto architecture = header.text("general.architecture");
    if (!architecture) fail("there is no general.architecture, expected the metadata of a model");
    architecture_ = *architecture;
}

void ModelKeys::fail(const std::string& what) const { throw std::runtime_error(header_.path() + ": " + what); }

bool ModelKeys::has(const std::string& name) const { return header_.has(full(name)); }

bool ModelKeys::is_list(const std::string& name) const { return header_.is_array(full(name)); }

int64_t ModelKeys::checked(const std::string& name, int64_t value, int64_t least, int64_t most) const {
    if (value < least || value > most) {
        fail(full(name) + " is " + std::to_string(value) + ", expected " + std::to_string(least) + " to " +
             std::to_string(most));
    }
    return value;
}

int64_t ModelKeys::one(const std::string& name, int64_t least, int64_t most) const {
    const auto found = header_.integer(full(name));
    if (!found) fail("there is no " + full(name));
    return checked(name, *found, least, most);
}

std::vector<int64_t> ModelKeys::of_layers(const std::string& name, int64_t layers, int64_t least, int64_t most) const {
    if (!is_list(name)) return std::vector<int64_t>(static_cast<size_t>(layers), one(name, least, most));
    std::vector<int64_t> found = *header_.integers(full(name));
    if (static_cast<int64_t>(found.size()) != layers) {
        fail(full(name) + " has " + std::to_string(found.size()) + " numbers, expected one for each of " +
             std::to_string(layers) + " layers");
    }
    for (const int64_t each : found) checked(name, each, least, most);
    return found;
}

} // namespace winnow::tools
