// The storage formats that the benchmarks can be asked for, by name.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace winnow::bench {

const std::map<std::string, uint32_t>& storage_formats();
// "f16"; of two formats "q8_0:turbo3".
std::string type_name(uint32_t type);
std::string type_names(uint32_t k, uint32_t v);

bool is_packed(uint32_t type);
uint64_t type_size(uint32_t type); // bytes of an element; of a packed format 0

} // namespace winnow::bench
