// What a configuration takes in memory, for a model and a context that is full.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cache_meaning.hpp"
#include "configuration.hpp"
#include "model_shape.hpp"
#include "open_backend.hpp"

namespace winnow::tools {

// A backend that answers what caches would take; nothing is computed on it. Throws std::runtime_error where there is
// none.
class Backend {
public:
    explicit Backend(const std::string& name);

    const winnow_api& api() const { return opened_.api(); }
    const winnow_cache_api& caches() const { return opened_.caches(); }
    winnow_context* context() const { return context_.get(); }

    // What a string of WINNOW_KV means before a model is known. Throws std::runtime_error, which names the string,
    // where it is none whatever the model is, or names a file that cannot be read. That the model can have such a
    // cache, it does not say.
    ggml::CacheMeaning check(const std::string& kv) const;

private:
    OpenBackend opened_;
    OwnedContext context_;
};

// What a process has in memory beside the cache because Winnow is in it.
struct Added {
    uint64_t in_place = 0, winnow = 0; // bytes with llama.cpp's cache in place, and with Winnow's cache
};

struct Cost {
    uint64_t bytes = 0;     // of keys and values and what belongs to them
    uint64_t scratch = 0;   // that the steps of Winnow's layers share
    uint64_t cold = 0;      // of recall: all packed rows, where they lie in the host's memory
    uint64_t disk = 0;      // of recall: of the file, where they lie in one
    uint64_t codebooks = 0; // of recall, with signatures of codes
    uint64_t added = 0; // by Winnow beside the cache: scratch, codebooks, the cold tier in memory, and the fixed part
    uint64_t total() const { return bytes + added; }
    bool recalls() const { return cold + disk > 0; }
};

class Costs {
public:
    Costs(const Backend& backend, ModelShape shape, int64_t ubatch, Added added);

    // Throws std::runtime_error where the model cannot have such a cache.
    Cost at(const Configuration& config, int64_t context) const;

    // The meaning of the cache with all tokens that Winnow makes for a string of WINNOW_KV. Throws as `at` does.
    ggml::CacheMeaning meaning(const std::string& kv, int64_t context) const;

    // The cells of that cache, of which a budget may be a share: more than the tokens where llama.cpp pads the context,
    // and fewer where windows bound the cache.
    int64_t cells(int64_t context) const;

    // A context, a multiple of 256, from which on `config` takes less memory than `other`, by bisection up to the
    // longest that it can have, `longest` at most; nothing where it does not take less there.
    std::optional<int64_t> pays_from(const Configuration& config, const Configuration& other) const;
    static constexpr int64_t longest = int64_t{1} << 20;

private:
    winnow_cache_desc desc(const LayerGroup& group, int64_t context, const std::string& kv) const;

    const Backend& backend_;
    ModelShape shape_;
    int64_t ubatch_;
    Added added_;
};

} // namespace winnow::tools
