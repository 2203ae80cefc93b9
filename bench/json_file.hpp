// Files of JSON: reports, and what `winnow tune` writes.
#pragma once

#include <filesystem>

#include <nlohmann/json.hpp>

namespace winnow::bench {

// Throws std::runtime_error that names the file.
nlohmann::json read_json(const std::filesystem::path& path);

} // namespace winnow::bench
