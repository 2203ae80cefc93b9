// Reads what Linux tells of its memory, and of the control groups that limit this process.
#include "cache/plan/pressure.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

namespace winnow::cache {
namespace {

namespace fs = std::filesystem;

// "some avg10=1.53 avg60=...": percent.
std::optional<double> stalled(const fs::path& path) {
    std::ifstream file(path);
    file.imbue(std::locale::classic());
    std::string some, average;
    if (!(file >> some) || some != "some" || !std::getline(file, average, '=') || average != " avg10")
        return std::nullopt;
    double percent = 0;
    if (!(file >> percent)) return std::nullopt;
    return percent / 100;
}

// "MemTotal:  16316412 kB" and "MemAvailable: ...".
std::optional<double> taken(const std::string& proc) {
    std::ifstream file(proc + "/meminfo");
    file.imbue(std::locale::classic());
    double total = 0, available = -1, value = 0;
    for (std::string name, unit; file >> name >> value; std::getline(file, unit)) {
        if (name == "MemTotal:") total = value;
        if (name == "MemAvailable:") available = value;
    }
    if (total <= 0 || available < 0) return std::nullopt;
    return 1 - available / total;
}

// A control group, with the names that its version gives to the limit and to what is used.
struct Group {
    fs::path path;
    const char* limit;
    const char* used;
    const char* cached; // of what is used, files that can be dropped: a field of memory.stat
};

// The process's groups and those above them: "0::/user.slice/a" is of version 2, "4:memory:/a" of version 1. Files show
// a process in a container paths that it may not have; then the limit is at the root.
std::vector<Group> groups_of(const std::string& proc, const std::string& cgroups) {
    std::vector<Group> groups;
    std::ifstream file(proc + "/self/cgroup");
    for (std::string line; std::getline(file, line);) {
        const size_t first = line.find(':'), second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) continue;
        const std::string controller = line.substr(first + 1, second - first - 1);
        const bool is_second_version = controller.empty();
        if (!is_second_version && controller != "memory") continue;
        const fs::path root = is_second_version ? fs::path(cgroups) : fs::path(cgroups) / "memory";
        fs::path below = fs::path(line.substr(second + 1)).relative_path();
        for (bool is_last = false; !is_last; below = below.parent_path()) {
            is_last = below.empty();
            groups.push_back(is_second_version ? Group{root / below, "memory.max", "memory.current", "inactive_file"}
                                               : Group{root / below, "memory.limit_in_bytes", "memory.usage_in_bytes",
                                                       "total_inactive_file"});
        }
    }
    return groups;
}

std::optional<double> number_in(const fs::path& path) {
    std::ifstream file(path);
    file.imbue(std::locale::classic());
    double number = 0;
    if (!(file >> number)) return std::nullopt; // "max", where there is no limit
    return number;
}

double field_of(const fs::path& path, const std::string& field) {
    std::ifstream file(path);
    file.imbue(std::locale::classic());
    double value = 0;
    for (std::string name; file >> name >> value;) {
        if (name == field) return value;
    }
    return 0;
}

std::optional<double> taken_of_limit(const Group& group) {
    constexpr double unlimited = 0x1p60; // version 1 has the largest number of pages
    const std::optional<double> limit = number_in(group.path / group.limit), used = number_in(group.path / group.used);
    if (!limit || !used || *limit <= 0 || *limit >= unlimited) return std::nullopt;
    return (*used - field_of(group.path / "memory.stat", group.cached)) / *limit;
}

void raise(std::optional<double>& most, const std::optional<double>& other) {
    if (other) most = std::max(most.value_or(*other), *other);
}

} // namespace

std::optional<double> memory_pressure(const std::string& proc, const std::string& cgroups) {
    std::optional<double> most = stalled(fs::path(proc) / "pressure" / "memory");
    raise(most, taken(proc));
    for (const Group& group : groups_of(proc, cgroups)) {
        const std::optional<double> share = taken_of_limit(group);
        if (!share) continue; // it has no limit
        raise(most, share);
        raise(most, stalled(group.path / "memory.pressure"));
    }
    if (!most) return std::nullopt;
    return std::clamp(*most, 0.0, 1.0);
}

} // namespace winnow::cache
