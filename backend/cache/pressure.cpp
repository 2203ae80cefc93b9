// Reads what Linux tells of its memory.
#include "cache/pressure.hpp"

#include <algorithm>
#include <fstream>

namespace winnow::cache {
namespace {

// "some avg10=1.53 avg60=...": percent.
std::optional<double> stalled(const std::string& proc) {
    std::ifstream file(proc + "/pressure/memory");
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

} // namespace

std::optional<double> memory_pressure(const std::string& proc) {
    const std::optional<double> some = stalled(proc), rest = taken(proc);
    if (!some && !rest) return std::nullopt;
    return std::clamp(std::max(some.value_or(0), rest.value_or(0)), 0.0, 1.0);
}

} // namespace winnow::cache
