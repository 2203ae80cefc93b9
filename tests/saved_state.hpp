// Saved caches through the C table, as tests have them: in files, and in memory by callbacks that fail where they are
// told to.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "winnow_cache.h"

namespace winnow {

inline constexpr int64_t all_sequences = -1;

inline int32_t save_state(const winnow_cache_api& caches, winnow_cache* cache, const std::string& path,
                          int64_t sequence = all_sequences) {
    winnow_cache_state_desc desc{};
    desc.struct_size = sizeof desc;
    desc.sequence = sequence;
    desc.path = path.c_str();
    return caches.save(cache, &desc);
}

inline int32_t load_state(const winnow_cache_api& caches, winnow_cache* cache, const std::string& path,
                          int64_t sequence = all_sequences) {
    winnow_cache_state_desc desc{};
    desc.struct_size = sizeof desc;
    desc.sequence = sequence;
    desc.path = path.c_str();
    return caches.load(cache, &desc);
}

class StateInMemory {
public:
    explicit StateInMemory(std::string saved = "") : bytes(std::move(saved)) {}

    std::string bytes;
    uint64_t calls = 0;      // of a callback, in the last save or load
    uint64_t failing_at = 0; // which call of them fails; 0: none
    int32_t failure = 5;     // what it returns

    int32_t save(const winnow_cache_api& caches, winnow_cache* cache, int64_t sequence = all_sequences) {
        bytes.clear();
        winnow_cache_state_desc desc = begin(sequence);
        desc.write = [](void* self, const void* from, uint64_t size) {
            return static_cast<StateInMemory*>(self)->write(from, size);
        };
        return caches.save(cache, &desc);
    }
    int32_t load(const winnow_cache_api& caches, winnow_cache* cache, int64_t sequence = all_sequences) {
        winnow_cache_state_desc desc = begin(sequence);
        desc.read = [](void* self, void* to, uint64_t size) {
            return static_cast<StateInMemory*>(self)->read(to, size);
        };
        desc.size = bytes.size();
        return caches.load(cache, &desc);
    }

private:
    winnow_cache_state_desc begin(int64_t sequence) {
        calls = at_ = 0;
        winnow_cache_state_desc desc{};
        desc.struct_size = sizeof desc;
        desc.sequence = sequence;
        desc.user_data = this;
        return desc;
    }
    int32_t write(const void* from, uint64_t size) {
        if (++calls == failing_at || size == 0) return failure;
        bytes.append(static_cast<const char*>(from), size);
        return 0;
    }
    int32_t read(void* to, uint64_t size) {
        if (++calls == failing_at || size == 0 || size > bytes.size() - at_) return failure;
        std::memcpy(to, &bytes[at_], size);
        at_ += size;
        return 0;
    }

    uint64_t at_ = 0;
};

} // namespace winnow
