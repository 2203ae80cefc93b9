// A context of the text, batch by batch, and its scores.
#include "runs.hpp"

#include <algorithm>
#include <stdexcept>

namespace winnow::measure {

Runs::Runs(Contexts& contexts, const std::string& text, size_t context, size_t first_scored, size_t first_alone)
    : contexts_(contexts), context_(context), first_scored_(first_scored), first_alone_(first_alone),
      text_(winnow::measure::tokens_of(contexts.api(), contexts.vocab(), text, true, false)) {}

std::vector<llama_token> Runs::tokens_of_context(size_t index) const {
    if (index >= contexts()) {
        throw std::runtime_error("the text has " + std::to_string(contexts()) + " contexts of " +
                                 std::to_string(context_) + " tokens, context " + std::to_string(index) +
                                 " was asked for");
    }
    const auto begin = text_.begin() + static_cast<ptrdiff_t>(index * context_);
    std::vector<llama_token> tokens(begin, begin + static_cast<ptrdiff_t>(context_));
    const LlamaApi& api = contexts_.api();
    if (api.vocab_get_add_bos(contexts_.vocab())) tokens.front() = api.vocab_bos(contexts_.vocab());
    return tokens;
}

Result Runs::run(const Configuration& configuration, size_t index, bool as_base) {
    const std::vector<llama_token> tokens = tokens_of_context(index);
    if (!as_base && base_index_ != index)
        throw std::runtime_error("no base of context " + std::to_string(index) + " to compare with");
    if (as_base) {
        base_index_.reset();
        base_.logits.clear();
        base_.logits.reserve((context_ - std::min(context_, first_scored_)) * contexts_.vocabulary());
        base_.log_sums.clear();
    }
    Result result;
    result.outcome = contexts_.run(configuration, context_,
                                   [&](Context& context) { score(context, tokens, as_base, result.scores); });
    if (as_base) base_index_ = index;
    return result;
}

void Runs::score(Context& context, const std::vector<llama_token>& tokens, bool as_base, Scores& scores) {
    const size_t batch = context.batch(), vocabulary = contexts_.vocabulary();
    const unsigned threads = contexts_.sizes().threads;
    size_t done = 0;
    for (size_t begin = 0, end = 0; begin < tokens.size(); begin = end) {
        end = begin < first_alone_ ? std::min({tokens.size(), begin + batch, first_alone_}) : begin + 1;
        std::vector<bool> scored(end - begin, false);
        std::vector<int32_t> next;
        for (size_t position = std::max(begin, first_scored_); position < std::min(end, tokens.size() - 1);
             ++position) {
            scored[position - begin] = true;
            next.push_back(tokens[position + 1]);
        }
        const float* logits = context.evaluate(tokens.data() + begin, end - begin, scored);
        if (!logits) continue;
        if (as_base) add_to_base(logits, next.size(), vocabulary, threads, base_);
        add_scores(logits, as_base ? nullptr : &base_, done, next.data(), next.size(), vocabulary, threads, scores);
        done += next.size();
    }
}

} // namespace winnow::measure
