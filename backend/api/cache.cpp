// The functions of winnow_cache_api.
#include "api/cache.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <span>

#include "api/guard.hpp"
#include "api/shapes.hpp"
#include "api/validate_cache.hpp"

namespace winnow::api {
namespace {

// Puts a name before what goes wrong in action. Below the boundary nobody knows which function was called.
template <class Action>
void named(const char* name, Action&& action) {
    try {
        action();
    } catch (const Error& error) {
        throw Error(error.status(), std::string(name) + ": " + error.what());
    }
}

// What a configuration is refused for knows nothing of the argument that brought it.
template <class Action>
void of_config(Action&& action) {
    try {
        action();
    } catch (const Error& error) {
        if (error.status() != WINNOW_ERROR_INVALID_ARGUMENT) throw;
        invalid(std::string("config: ") + error.what());
    }
}

// For functions on a cache: its context keeps the text.
template <class Action>
int32_t on_cache(winnow_cache* cache, const char* function, Action&& action) noexcept {
    return on_context(context_of(cache), [&] { named(function, [&] { action(*cache->cache); }); });
}

// `count` positions, or cells. Only what is wrong is given a name.
std::span<const int64_t> checked_positions(const winnow_cache& cache, const int64_t* positions, uint64_t count) {
    if (count == 0) return {};
    const std::span<const int64_t> all(&checked(positions, "positions"), count);
    const auto wrong = std::find_if_not(all.begin(), all.end(), [&](int64_t each) { return is_token_id(cache, each); });
    if (wrong != all.end())
        expect_token_id(cache, ("positions[" + std::to_string(wrong - all.begin()) + "]").c_str(), *wrong);
    return all;
}

// A string for memory of the host's, which has `size` bytes: how much it needs, and the string where there is room.
void write_text(const std::string& text, char* target, uint64_t& size) {
    if (target != nullptr && size > text.size()) std::memcpy(target, text.c_str(), text.size() + 1);
    size = text.size() + 1;
}

// The elements of a host's array that are written where there are `count` of them.
template <class T>
HostArray<T> written_part(T* first, uint64_t capacity, uint64_t stride, size_t count, const char* name,
                          const char* element) {
    return {first, first != nullptr ? std::min<uint64_t>(capacity, count) : 0, stride, name, element};
}

// Checks both arrays before it writes to one.
void write_arrays(const cache::Meaning& meaning, winnow_cache_info& info) {
    info.resource_count = meaning.resources.size();
    info.segment_count = meaning.segments.size();
    const auto resources = written_part(info.resources, info.resource_capacity, info.resource_stride,
                                        meaning.resources.size(), "resources", "resource");
    const auto segments = written_part(info.segments, info.segment_capacity, info.segment_stride,
                                       meaning.segments.size(), "segments", "segment");
    for_each_element(resources, [](const winnow_wanted_resource& each) { read_struct(&each, "resource"); });
    for_each_element(segments, [](const winnow_cache_segment&) {});
    auto resource = meaning.resources.begin();
    for_each_element(resources, [&](winnow_wanted_resource& each) {
        winnow_wanted_resource wanted = read_struct(&each, "resource");
        wanted.is_needed = 1;
        std::snprintf(wanted.name, sizeof wanted.name, "%s", resource->name);
        write_text(resource->path, wanted.path, wanted.path_size);
        write_struct(&each, wanted, "resource");
        ++resource;
    });
    auto segment = meaning.segments.begin();
    for_each_element(segments, [&](winnow_cache_segment& each) {
        winnow_cache_segment its{};
        its.k_type = static_cast<uint32_t>(segment->k);
        its.v_type = static_cast<uint32_t>(segment->v);
        its.tokens = segment->tokens;
        write_struct(&each, its, "segment");
        ++segment;
    });
}

// ---- The functions -------------------------------------------------------------------------------------------------

int32_t WINNOW_CALL cache_create(winnow_context* context, const winnow_cache_desc* desc, winnow_cache** cache) {
    const auto create = [&] {
        winnow_cache*& out = checked(cache, "cache");
        auto handle = std::make_unique<winnow_cache>();
        handle->context = context;
        handle->request = to_cache_request(desc);
        of_config(
            [&] { handle->cache = std::make_unique<cache::Cache>(*context->device, handle->request, context->log); });
        winnow_cache* const key = handle.get();
        context->caches.emplace(key, std::move(handle));
        out = key;
    };
    return on_context(context, [&] { named("cache_create", create); });
}

int32_t WINNOW_CALL cache_destroy(winnow_cache* cache) {
    if (cache == nullptr) return WINNOW_OK;
    winnow_context* const context = cache->context;
    return releasing(context, [&] {
        context->device->wait();
        context->caches.erase(cache);
    });
}

int32_t WINNOW_CALL cache_estimate(winnow_context* context, const winnow_cache_desc* desc, int64_t tokens,
                                   winnow_cache_stats* stats) {
    const auto estimate = [&] {
        const cache::CacheRequest request = to_cache_request(desc);
        expect_tokens(request, "tokens", tokens);
        winnow_cache_stats value{};
        of_config([&] { value = cache::estimate(request, tokens); });
        write_struct(stats, value, "stats");
    };
    return on_question(context, [&] { named("cache_estimate", estimate); });
}

int32_t WINNOW_CALL cache_describe(winnow_context* context, const winnow_cache_desc* desc, winnow_cache_info* info) {
    const auto describe = [&] {
        const cache::CacheRequest request = to_cache_request(desc);
        winnow_cache_info value = read_struct(info, "info");
        cache::Meaning meaning;
        of_config([&] { meaning = cache::meaning_of(request); });
        write_arrays(meaning, value);
        write_text(meaning.config, value.config, value.config_size);
        write_text(meaning.storage_config, value.storage_config, value.storage_config_size);
        std::snprintf(value.policy, sizeof value.policy, "%s", meaning.policy.c_str());
        value.properties =
            (meaning.evicts ? WINNOW_CACHE_EVICTS : 0) | (meaning.keeps_importance ? WINNOW_CACHE_KEEPS_IMPORTANCE : 0);
        value.k_type = static_cast<uint32_t>(meaning.k);
        value.v_type = static_cast<uint32_t>(meaning.v);
        value.sink = meaning.sink;
        value.residual = meaning.residual;
        value.cadence = meaning.cadence;
        value.budget_tokens = meaning.budget_tokens;
        write_struct(info, value, "info");
    };
    return on_question(context, [&] { named("cache_describe", describe); });
}

int32_t WINNOW_CALL cache_step(winnow_cache* cache, const winnow_cache_step_desc* desc, winnow_event** event) {
    return on_cache(cache, "cache_step", [&](cache::Cache& inside) {
        const std::vector<cache::CacheStep> steps = to_cache_steps(*cache, desc);
        NewEvent made(*cache->context, event);
        inside.step(steps, event != nullptr);
        if (event == nullptr) return;
        try {
            made.store(cache->context->device->mark());
        } catch (const Error& error) {
            throw after_a_change(error);
        } catch (const std::bad_alloc&) {
            throw after_a_change(Error(WINNOW_ERROR_OUT_OF_MEMORY, "out of host memory"));
        }
    });
}

int32_t WINNOW_CALL cache_reserve(winnow_cache* cache, int64_t sequence, int64_t tokens) {
    return on_cache(cache, "cache_reserve", [&](cache::Cache& inside) {
        expect_sequence(*cache, "sequence", sequence);
        expect_tokens(cache->request, "tokens", tokens);
        inside.reserve(sequence, tokens);
    });
}

int32_t WINNOW_CALL cache_truncate(winnow_cache* cache, int64_t sequence, int64_t length) {
    return on_cache(cache, "cache_truncate", [&](cache::Cache& inside) {
        expect_sequence(*cache, "sequence", sequence);
        expect_not_negative(length, "length");
        inside.truncate(sequence, length);
    });
}

int32_t WINNOW_CALL cache_remove(winnow_cache* cache, int64_t sequence, int64_t begin, int64_t end) {
    return on_cache(cache, "cache_remove", [&](cache::Cache& inside) {
        expect_sequence(*cache, "sequence", sequence);
        expect_range(*cache, begin, end);
        inside.remove(sequence, begin, end);
    });
}

int32_t WINNOW_CALL cache_copy(winnow_cache* cache, int64_t from, int64_t to) {
    return on_cache(cache, "cache_copy", [&](cache::Cache& inside) {
        expect_sequence(*cache, "from", from);
        expect_sequence(*cache, "to", to);
        inside.copy(from, to);
    });
}

int32_t WINNOW_CALL cache_shift(winnow_cache* cache, int64_t sequence, int64_t begin, int64_t end, int64_t delta) {
    return on_cache(cache, "cache_shift", [&](cache::Cache& inside) {
        expect_sequence(*cache, "sequence", sequence);
        expect_range(*cache, begin, end);
        expect_delta(delta);
        inside.shift(sequence, begin, end, delta);
    });
}

int32_t WINNOW_CALL cache_reset(winnow_cache* cache) {
    return on_cache(cache, "cache_reset", [](cache::Cache& inside) { inside.reset(); });
}

int32_t WINNOW_CALL cache_save(winnow_cache* cache, const winnow_cache_state_desc* desc) {
    return on_cache(cache, "cache_save", [&](cache::Cache& inside) { inside.save(to_cache_saving(*cache, desc)); });
}

int32_t WINNOW_CALL cache_load(winnow_cache* cache, const winnow_cache_state_desc* desc) {
    return on_cache(cache, "cache_load", [&](cache::Cache& inside) { inside.load(to_cache_loading(*cache, desc)); });
}

int32_t WINNOW_CALL cache_saved_size(winnow_cache* cache, int64_t sequence, uint64_t* size) {
    return on_cache(cache, "cache_saved_size", [&](cache::Cache& inside) {
        expect_sequence_or_all(*cache, sequence);
        checked(size, "size") = inside.saved_size(sequence);
    });
}

int32_t WINNOW_CALL cache_stats(winnow_cache* cache, int64_t sequence, winnow_cache_stats* stats) {
    return on_cache(cache, "cache_stats", [&](cache::Cache& inside) {
        expect_sequence_or_all(*cache, sequence);
        winnow_cache_stats value{};
        if (sequence == -1)
            inside.stats(value);
        else
            inside.sequence_stats(sequence, value);
        write_struct(stats, value, "stats");
    });
}

int32_t WINNOW_CALL cache_tokens(winnow_cache* cache, int64_t sequence, int64_t layer, int64_t head,
                                 winnow_cache_tokens* look) {
    return on_cache(cache, "cache_tokens", [&](cache::Cache& inside) {
        expect_sequence(*cache, "sequence", sequence);
        expect_layer(*cache, layer);
        expect_head(*cache, layer, head);
        winnow_cache_tokens value = read_struct(look, "look");
        check_reserved(value.reserved, "look");
        const std::vector<cache::HeldToken> held = inside.tokens(sequence, layer, head, value.importance != nullptr);
        for (size_t at = 0; at < std::min<uint64_t>(held.size(), value.capacity); ++at) {
            if (value.positions != nullptr) value.positions[at] = held[at].id;
            if (value.importance != nullptr) value.importance[at] = held[at].importance;
            if (value.segments != nullptr) value.segments[at] = held[at].segment;
        }
        value.count = held.size();
        value.next_position = inside.next_position(sequence, layer);
        write_struct(look, value, "look");
    });
}

int32_t WINNOW_CALL cache_set_importance(winnow_cache* cache, int64_t sequence, int64_t layer, int64_t head,
                                         const int64_t* positions, const float* importance, uint64_t count) {
    return on_cache(cache, "cache_set_importance", [&](cache::Cache& inside) {
        expect_sequence(*cache, "sequence", sequence);
        expect_layer(*cache, layer);
        expect_head(*cache, layer, head);
        const std::span<const int64_t> all = checked_positions(*cache, positions, count);
        if (count > 0) checked(importance, "importance");
        inside.set_importance(sequence, layer, head, all, {importance, all.size()});
    });
}

int32_t WINNOW_CALL cache_set_config(winnow_cache* cache, const char* config) {
    return on_cache(cache, "cache_set_config", [&](cache::Cache& inside) {
        const std::string text = &checked(config, "config");
        of_config([&] { inside.set_config(text); });
    });
}

int32_t WINNOW_CALL cache_set_pressure(winnow_cache* cache, double pressure) {
    return on_cache(cache, "cache_set_pressure", [&](cache::Cache& inside) {
        if (std::isnan(pressure) || pressure > 1) {
            invalid("pressure is " + std::to_string(pressure) +
                    ", expected 0 to 1, or a negative number for the machine's");
        }
        inside.set_pressure(pressure);
    });
}

int32_t WINNOW_CALL cache_anchor(winnow_cache* cache, int64_t sequence, const int64_t* positions, uint64_t count) {
    return on_cache(cache, "cache_anchor", [&](cache::Cache& inside) {
        expect_sequence(*cache, "sequence", sequence);
        const std::span<const int64_t> all = checked_positions(*cache, positions, count);
        if (count > 0) inside.anchor(sequence, all);
    });
}

int32_t WINNOW_CALL cache_read(winnow_cache* cache, const winnow_cache_rows_desc* desc) {
    return on_cache(cache, "cache_read",
                    [&](cache::Cache& inside) { inside.read(to_cache_rows(*cache, desc, Access::output)); });
}

int32_t WINNOW_CALL cache_write(winnow_cache* cache, const winnow_cache_rows_desc* desc) {
    return on_cache(cache, "cache_write",
                    [&](cache::Cache& inside) { inside.write(to_cache_rows(*cache, desc, Access::input)); });
}

int32_t WINNOW_CALL cache_export_rows(winnow_cache* cache, const winnow_cache_rows_desc* desc) {
    return on_cache(cache, "cache_export_rows",
                    [&](cache::Cache& inside) { inside.export_rows(to_exported_rows(*cache, desc)); });
}

int32_t WINNOW_CALL cache_import_rows(winnow_cache* cache, const winnow_cache_rows_desc* desc) {
    return on_cache(cache, "cache_import_rows",
                    [&](cache::Cache& inside) { inside.import_rows(to_imported_rows(*cache, desc)); });
}

} // namespace

const winnow_cache_api cache_table = {
    .struct_size = sizeof cache_table,
    .version = WINNOW_CACHE_VERSION,
    .create = cache_create,
    .destroy = cache_destroy,
    .estimate = cache_estimate,
    .describe = cache_describe,
    .step = cache_step,
    .reserve = cache_reserve,
    .truncate = cache_truncate,
    .remove = cache_remove,
    .copy = cache_copy,
    .shift = cache_shift,
    .reset = cache_reset,
    .save = cache_save,
    .load = cache_load,
    .saved_size = cache_saved_size,
    .stats = cache_stats,
    .tokens = cache_tokens,
    .set_importance = cache_set_importance,
    .set_config = cache_set_config,
    .set_pressure = cache_set_pressure,
    .anchor = cache_anchor,
    .read = cache_read,
    .write = cache_write,
    .export_rows = cache_export_rows,
    .import_rows = cache_import_rows,
};

} // namespace winnow::api
