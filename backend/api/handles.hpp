// What the opaque handles of the headers point to.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include "cache/cache.hpp"
#include "device/device.hpp"

struct winnow_buffer {
    winnow_context* context = nullptr;
    std::unique_ptr<winnow::Buffer> buffer;
    uint64_t misalignment = 0; // of its first byte, modulo 16; 0 where the device places it
};

struct winnow_event {
    winnow_context* context = nullptr;
    std::unique_ptr<winnow::Event> event;
};

struct winnow_cache {
    winnow_context* context = nullptr;
    winnow::cache::CacheRequest request; // as it was made; its config may have changed since
    std::unique_ptr<winnow::cache::Cache> cache;
};

struct winnow_context {
    std::unique_ptr<winnow::Device> device;
    // What was made from the context and not yet destroyed; destroyed before the device.
    std::unordered_map<winnow_buffer*, std::unique_ptr<winnow_buffer>> buffers;
    std::unordered_map<winnow_event*, std::unique_ptr<winnow_event>> events;
    std::unordered_map<winnow_cache*, std::unique_ptr<winnow_cache>> caches;
    std::string message;
    winnow::Log log;
    uint64_t sdpa_calls = 0;
    uint64_t kv_append_calls = 0;
    uint64_t tokens_appended = 0;
    uint64_t rows_requantized = 0;
};
