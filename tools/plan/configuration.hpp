// A configuration of the cache, written as `winnow eval` writes it, and how many bytes llama.cpp's types take.
#pragma once

#include <cstdint>
#include <string>

namespace winnow::tools {

struct Configuration {
    enum class Where { cpu, in_place, winnow };

    std::string name;                 // as `winnow eval` calls it
    Where where = Where::winnow;      // llama.cpp's own cache on its CPU backend or read in place, or Winnow's cache
    std::string k = "f16", v = "f16"; // of llama.cpp's types
    bool rotates = true;              // llama.cpp's rotation around quantized caches
    std::string kv;                   // WINNOW_KV of Winnow's cache
};

// "cpu:k=q8_0,v=q8_0", "inplace:...", or a string of WINNOW_KV. Throws std::runtime_error where it is neither; whether
// a string of WINNOW_KV is one, a backend knows.
Configuration parse_configuration(const std::string& text);

// Bytes of a head of so many elements, which has whole blocks. Throws std::runtime_error where it does not.
uint64_t bytes_of_head(const std::string& type, int64_t elements);

} // namespace winnow::tools
