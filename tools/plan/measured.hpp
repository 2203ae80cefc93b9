// What was measured, once and for all: losses of configurations, and what Winnow adds to a process. It is measured.json
// beside this file, which the program carries.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "costs.hpp"

namespace winnow::tools {

const char* measured_json();

// Against the full f16 cache; errors are standard errors over contexts.
struct Loss {
    std::string name; // of the configuration
    int64_t context = 0, contexts = 0;
    double kld = 0, kld_se = 0;
    double ppl_increase_percent = 0, ppl_increase_se = 0;
    std::string model, text, part; // part of the text: first, second, all
    std::string command;
    bool has_key_bias = false; // the model's keys
};

class Measured {
public:
    Measured();

    const Added& added() const { return added_; }
    const std::string& added_model() const { return added_model_; }
    const std::string& added_device() const { return added_device_; }
    const std::string& added_command() const { return added_command_; }

    // The loss of the same configuration; nothing where it was not measured. Where tokens are evicted, the same share
    // of the context's cells has to be held; where none is, formats alone count. A loss of this model, which
    // is_model(name) says, comes before one of another; then that at the nearest context, and the first in the data.
    // Models whose keys have a bias and models whose keys have none do not stand for each other.
    // Throws std::runtime_error where the model cannot have such a cache.
    std::optional<Loss> find(const Configuration& config, int64_t context, const Costs& costs, const ModelShape& shape,
                             const std::function<bool(const std::string&)>& is_model) const;

private:
    Added added_;
    std::string added_model_, added_device_, added_command_;
    std::vector<Loss> losses_;
};

} // namespace winnow::tools
