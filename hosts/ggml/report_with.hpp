// What WINNOW_REPORT_WITH asks for, beside the figures that the report always has.
#pragma once

#include <string_view>

namespace winnow::ggml {

// Whether the list in WINNOW_REPORT_WITH has this word: "resident", "profile", "samples", which are a part of the
// profile, or "whole_rows", of WINNOW_REPORT_ROWS.
bool reports(std::string_view word);
// Throws std::runtime_error where it has another word, or one without what it needs.
void check_report_with();

} // namespace winnow::ggml
