// The system's calls on files as the backends reach them: this program defines them before libc does, and lets a chosen
// one fail where it is about a file below a watched folder.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace winnow::faults {

constexpr int short_count = -1; // in the place of an errno: one byte is read or written
constexpr int no_count = -2;    // none is
constexpr int killed = -3;      // the process is, by SIGKILL
constexpr int stopped = -4;     // the process stops, as by SIGSTOP, and goes on when it is continued

// From the at-th call of a function ("open", "write", ...) on, `times` calls fail; at 0: none.
void arm_system(const std::string& folder, const std::string& function, uint64_t at, int error, uint64_t times = 1);
uint64_t system_failures(); // since then
size_t system_threads();    // that called the function since then
// Of what stretches of files below the watched folder posix_fadvise said this since then, begin and end.
std::vector<std::pair<uint64_t, uint64_t>> advised(int advice);
// As if nothing that preadv2 is asked for without waiting were there.
void hide_page_cache(bool is_hidden);

} // namespace winnow::faults
