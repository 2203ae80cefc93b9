// Contexts of a text under one configuration of the KV cache after another.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "contexts.hpp"
#include "divergence.hpp"

namespace winnow::measure {

struct Result {
    Scores scores;
    Outcome outcome;
};

class Runs {
public:
    // contexts has to stay. context: tokens of each. first_scored: the first position whose next token is scored.
    // first_alone: the position from which on llama.cpp gets each token in a batch of its own.
    Runs(Contexts& contexts, const std::string& text, size_t context, size_t first_scored, size_t first_alone);

    size_t tokens() const { return text_.size(); }
    size_t contexts() const { return text_.size() / context_; }

    // Runs a configuration over context number `index` of the text. as_base: its logits are kept, and what comes later
    // is compared with them. Throws std::runtime_error.
    Result run(const Configuration& configuration, size_t index, bool as_base);

private:
    std::vector<llama_token> tokens_of_context(size_t index) const;
    void score(Context& context, const std::vector<llama_token>& tokens, bool as_base, Scores& scores);

    Contexts& contexts_;
    const size_t context_, first_scored_, first_alone_;
    std::vector<llama_token> text_;
    Base base_; // of the scored tokens of context base_index_
    std::optional<size_t> base_index_;
};

} // namespace winnow::measure
