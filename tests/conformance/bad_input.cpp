// What every refusal is held against.
#include "bad_input.hpp"

#include <gtest/gtest.h>

#include <regex>

namespace winnow::conformance {

bool names_argument(const std::string& message, const std::string& argument) {
    return std::regex_search(message, std::regex("(^|\\W)" + argument + "($|\\W)"));
}

void expect_refusal(const Wrong& wrong, int32_t status, const std::string& message) {
    const char* const expected = reference().api().status_name(wrong.status);
    if (status == WINNOW_OK) { // the message is an earlier one
        ADD_FAILURE() << wrong.name << " of " << wrong.argument << " was not refused, expected " << expected;
        return;
    }
    EXPECT_EQ(status, wrong.status) << wrong.name << ", expected " << expected << ": " << message;
    EXPECT_TRUE(names_argument(message, wrong.argument))
        << wrong.name << ": the message does not name " << wrong.argument << ": " << message;
}

void expect_supports_agrees(const Wrong& wrong, Seen seen, const Session::Answer& answer, const std::string& message) {
    if (seen == Seen::by_both && answer.status == WINNOW_OK) {
        ADD_FAILURE() << wrong.name << " of " << wrong.argument << " is not refused by supports, expected "
                      << reference().api().status_name(wrong.status);
        return;
    }
    if (seen == Seen::by_execution) {
        EXPECT_EQ(answer.status, WINNOW_OK) << wrong.name << ": supports needs no memory";
        return;
    }
    EXPECT_EQ(answer.status, wrong.status) << wrong.name << ": supports says " << answer.message;
    EXPECT_EQ(answer.message, message) << wrong.name << ": supports gives another reason";
}

} // namespace winnow::conformance
