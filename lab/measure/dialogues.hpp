// Questions about a text, answered by greedy continuation under one configuration of the KV cache after another.
#pragma once

#include <string>
#include <vector>

#include "contexts.hpp"

namespace winnow::measure {

// What comes before an answer: a text, a question about it, and the beginning of the answer, as they follow each other.
struct Turn {
    std::string text, question, prefix;
};

struct Dialogue {
    std::vector<Turn> turns;       // the first begins a sequence, the others go on after the answer before them
    size_t cells = 0;              // of the context
    size_t generate = 0;           // tokens of an answer at most
    std::string until;             // an answer ends with the token that completes it; "" for none
    bool is_chat = false;          // text and question are said by a user, in the model's own template; has one turn
    bool is_decoded = false;       // a policy's cache takes all tokens from the first question on one at a time
    std::vector<std::string> find; // parts of the first turn
};
// Throws std::runtime_error where it is none.
Dialogue to_dialogue(const nlohmann::json& json);

struct Answers {
    std::vector<std::string> texts;
    size_t prompt_tokens = 0;               // of the first turn
    size_t question = 0;                    // position of the first token of its question
    size_t evaluated = 0;                   // tokens, of prompts and answers
    std::vector<std::vector<size_t>> found; // positions of the tokens that hold a part of what was to be found
    Outcome outcome;
};

// Throws std::runtime_error, also where the tokens do not fit in the cells.
Answers answer(Contexts& contexts, Configuration configuration, const Dialogue& dialogue);

} // namespace winnow::measure
