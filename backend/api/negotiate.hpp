// Which of the tables that a backend has a host gets.
#pragma once

#include <span>
#include <string>

#include "api/structs.hpp"

namespace winnow::api {

inline std::string version_text(uint32_t version) {
    return std::to_string(WINNOW_VERSION_MAJOR(version)) + "." + std::to_string(WINNOW_VERSION_MINOR(version));
}

// The highest version that both sides speak. tables: one per version, the oldest first; an older one is the beginning
// of the next, and its struct_size says where it ends.
inline const winnow_api& negotiate(const winnow_host_info& host, std::span<const winnow_api> tables) {
    if (host.min_version == 0 || host.max_version == 0) {
        invalid("winnow_get_api: min_version or max_version is 0, expected versions as WINNOW_MAKE_VERSION makes them");
    }
    if (host.min_version > host.max_version) {
        invalid("winnow_get_api: min_version " + version_text(host.min_version) + " is above max_version " +
                version_text(host.max_version));
    }
    const winnow_api* best = nullptr;
    for (const winnow_api& table : tables) {
        if (table.version >= host.min_version && table.version <= host.max_version) best = &table;
    }
    if (best == nullptr) {
        throw Error(WINNOW_ERROR_VERSION, "winnow_get_api: the host speaks versions " + version_text(host.min_version) +
                                              " to " + version_text(host.max_version) + ", this backend " +
                                              version_text(tables.front().version) + " to " +
                                              version_text(tables.back().version));
    }
    return *best;
}

} // namespace winnow::api
