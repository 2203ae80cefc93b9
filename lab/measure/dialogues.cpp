// Prompts, where their parts are among the tokens, and the most likely tokens after them.
#include "dialogues.hpp"

#include <algorithm>
#include <stdexcept>

namespace winnow::measure {

namespace {

using nlohmann::json;

constexpr const char* spaces = " \t\r\n";

// Tokens and the text that they stand for.
class Prompt {
public:
    Prompt(const Contexts& contexts, std::vector<llama_token> tokens) : tokens_(std::move(tokens)) {
        for (const llama_token token : tokens_) {
            text_ += piece_of(contexts.api(), contexts.vocab(), token);
            ends_.push_back(text_.size());
        }
    }
    const std::vector<llama_token>& tokens() const { return tokens_; }

    // The tokens that hold a part of what stands here.
    std::vector<size_t> tokens_of(size_t begin, size_t size) const {
        std::vector<size_t> found;
        for (size_t token = 0; token < ends_.size(); ++token)
            if (ends_[token] > begin && (token == 0 ? 0 : ends_[token - 1]) < begin + size) found.push_back(token);
        return found;
    }
    std::vector<size_t> find(const std::string& part) const {
        const size_t begin = text_.find(part);
        if (part.empty() || begin == std::string::npos)
            throw std::runtime_error("\"" + part + "\" is not in the prompt");
        return tokens_of(begin, part.size());
    }
    // The first token of what comes last, without the space before it.
    size_t first_of_last(const std::string& part) const {
        const size_t space = part.find_first_not_of(spaces);
        const std::string words =
            space == std::string::npos ? "" : part.substr(space, part.find_last_not_of(spaces) + 1 - space);
        const size_t begin = text_.rfind(words);
        if (words.empty() || begin == std::string::npos)
            throw std::runtime_error("the question \"" + part + "\" is not in the prompt");
        return tokens_of(begin, 1).front();
    }

private:
    std::vector<llama_token> tokens_;
    std::string text_;
    std::vector<size_t> ends_; // of each token in the text
};

Prompt begin_of(Contexts& contexts, const Dialogue& dialogue) {
    const Turn& turn = dialogue.turns.front();
    const std::string said = turn.text + turn.question;
    const std::string text = (dialogue.is_chat ? chat_of(contexts.api(), contexts.model(), said) : said) + turn.prefix;
    return {contexts, tokens_of(contexts.api(), contexts.vocab(), text, true, dialogue.is_chat)};
}

llama_token most_likely(const float* logits, size_t vocabulary) {
    return static_cast<llama_token>(std::max_element(logits, logits + vocabulary) - logits);
}

// Goes on until the answer ends; its last token is evaluated where a turn follows.
std::string generate(Contexts& contexts, Context& context, const Dialogue& dialogue, const float* logits,
                     bool is_last) {
    std::string text;
    for (size_t count = 0; count < dialogue.generate;) {
        const llama_token token = most_likely(logits, contexts.vocabulary());
        if (contexts.api().vocab_is_eog(contexts.vocab(), token)) break;
        text += piece_of(contexts.api(), contexts.vocab(), token);
        const bool is_end = !dialogue.until.empty() && text.find(dialogue.until) != std::string::npos;
        const bool goes_on = ++count < dialogue.generate && !is_end;
        if (goes_on || !is_last) logits = context.evaluate(&token, 1, {true});
        if (!goes_on) break;
    }
    return text;
}

} // namespace

Dialogue to_dialogue(const json& json) {
    Dialogue dialogue;
    try {
        for (const auto& turn : json.at("turns")) {
            dialogue.turns.push_back({turn.at("text").get<std::string>(), turn.at("question").get<std::string>(),
                                      turn.at("prefix").get<std::string>()});
        }
        dialogue.cells = json.at("cells").get<size_t>();
        dialogue.generate = json.at("generate").get<size_t>();
        dialogue.until = json.at("until").get<std::string>();
        dialogue.is_chat = json.at("chat").get<bool>();
        dialogue.is_decoded = json.at("decode").get<bool>();
        dialogue.find = json.at("find").get<std::vector<std::string>>();
    } catch (const nlohmann::json::exception& error) {
        throw std::runtime_error(std::string("no dialogue: ") + error.what());
    }
    if (dialogue.turns.empty()) throw std::runtime_error("no dialogue: it has no turns");
    if (dialogue.is_chat && dialogue.turns.size() > 1)
        throw std::runtime_error("a dialogue in a chat template has one turn, " +
                                 std::to_string(dialogue.turns.size()) + " were given");
    return dialogue;
}

Answers answer(Contexts& contexts, Configuration configuration, const Dialogue& dialogue) {
    const Prompt prompt = begin_of(contexts, dialogue);
    const Turn& first = dialogue.turns.front();
    Answers answers;
    answers.prompt_tokens = prompt.tokens().size();
    answers.question = prompt.first_of_last(first.question.empty() ? first.prefix : first.question);
    for (const std::string& part : dialogue.find) answers.found.push_back(prompt.find(part));
    if (dialogue.is_decoded) configuration.environment["WINNOW_DECODE_FROM"] = std::to_string(answers.question);
    const auto check_room = [&](size_t tokens) {
        if (tokens + dialogue.generate <= dialogue.cells) return;
        throw std::runtime_error(std::to_string(tokens) + " tokens and an answer of " +
                                 std::to_string(dialogue.generate) + " do not fit in " +
                                 std::to_string(dialogue.cells) + " cells");
    };
    check_room(answers.prompt_tokens);
    answers.outcome = contexts.run(configuration, dialogue.cells, [&](Context& context) {
        const float* logits = context.evaluate_all(prompt.tokens());
        for (size_t turn = 0; turn < dialogue.turns.size(); ++turn) {
            if (turn > 0) {
                const Turn& next = dialogue.turns[turn];
                const std::vector<llama_token> tokens =
                    tokens_of(contexts.api(), contexts.vocab(), next.text + next.question + next.prefix, false, false);
                if (tokens.empty()) throw std::runtime_error("turn " + std::to_string(turn + 1) + " has no token");
                check_room(context.position() + tokens.size());
                logits = context.evaluate_all(tokens);
            }
            answers.texts.push_back(generate(contexts, context, dialogue, logits, turn + 1 == dialogue.turns.size()));
        }
        answers.evaluated = context.position();
    });
    return answers;
}

} // namespace winnow::measure
