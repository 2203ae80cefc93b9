// Wrong arguments, for all calls alike: a fault is put into a call that is good, and the call is refused with the
// status that is documented and a message that names the argument, as supports does where it can know; no output is
// touched.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>

#include "session.hpp"

namespace winnow::conformance {

// What a refusal has to say.
struct Wrong {
    std::string name;     // of the case
    std::string argument; // what the message has to name
    int32_t status = WINNOW_ERROR_INVALID_ARGUMENT;
};

bool names_argument(const std::string& message, const std::string& argument);
void expect_refusal(const Wrong& wrong, int32_t status, const std::string& message);

// Only the execution refuses a tensor that lies nowhere: supports is asked before there is memory, too.
enum class Seen { by_both, by_execution };
// After the execution refused with this message.
void expect_supports_agrees(const Wrong& wrong, Seen seen, const Session::Answer& answer, const std::string& message);

// Whether the backend offers a call that has no fault; where it does not, that is counted.
template <typename Desc>
bool is_offered(const Desc& desc) {
    const Session::Answer answer = subject().supports(desc);
    if (answer.status != WINNOW_ERROR_UNSUPPORTED && answer.status != WINNOW_ERROR_UNIMPLEMENTED) return true;
    subject().note_not_offered(answer.status == WINNOW_ERROR_UNSUPPORTED
                                   ? "bad input to a call that is UNSUPPORTED: " + answer.message
                                   : "bad input to an operation that is UNIMPLEMENTED");
    return false;
}

// Call: has a desc that can be run and asked about, is good when it is made, and tells whether outputs are untouched.
template <typename Call>
struct Fault {
    Wrong wrong;
    std::function<void(Call&)> inject;
    Seen seen = Seen::by_both;
};

template <typename Call>
void expect_refused(const Fault<Call>& fault) {
    Call call;
    if (!is_offered(call.desc)) GTEST_SKIP() << "NOT OFFERED: the call without the fault";
    fault.inject(call);
    const int32_t status = subject().run(call.desc);
    const std::string message = subject().message();
    expect_refusal(fault.wrong, status, message);
    expect_supports_agrees(fault.wrong, fault.seen, subject().supports(call.desc), message);
    subject().api().finish(subject().context());
    call.expect_untouched(fault.wrong.name);
}

} // namespace winnow::conformance
