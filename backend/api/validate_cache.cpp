// From the C descriptions of caches and rows to what the cache takes. What depends on the tokens that a sequence has
// (whether they fit, whether so many can attend) is for the cache to refuse.
#include "api/validate_cache.hpp"

#include <string_view>

#include "api/shapes.hpp"
#include "api/structs.hpp"

namespace winnow::api {
namespace {

constexpr int64_t most_axis = 1 << 16;   // layers, heads, sizes, sequences
constexpr int64_t most_tokens = 1 << 30; // counts of tokens are below this
constexpr uint64_t most_state_bytes = uint64_t{1} << 62;
constexpr std::string_view default_config = "winnow";

// How many token ids a sequence has: positions of the context, or cells.
int64_t most_token_ids(const cache::CacheRequest& request) {
    return request.cells != 0 ? request.cells : request.shape.context;
}

// Each call has a callback of its own.
winnow_cache_state_desc to_state(const winnow_cache& cache, const winnow_cache_state_desc* desc, bool is_loaded) {
    const winnow_cache_state_desc given = read_desc(desc, "desc");
    expect_sequence_or_all(cache, given.sequence);
    const bool has_read = given.read != nullptr, has_write = given.write != nullptr;
    if (is_loaded ? has_write : has_read)
        invalid(is_loaded ? "write is given, expected NULL in cache_load"
                          : "read is given, expected NULL in cache_save");
    const std::string callback = is_loaded ? "read" : "write";
    const bool has_path = given.path != nullptr, has_callback = has_read || has_write;
    if (has_path && has_callback) invalid("path and " + callback + " are given, expected one of them");
    if (!has_path && !has_callback) invalid("neither path nor " + callback + " is given, expected one of them");
    if (has_path && given.path[0] == 0) invalid("path is \"\", expected a file's");
    if (given.size > most_state_bytes)
        invalid("size is " + std::to_string(given.size) + ", expected at most " + std::to_string(most_state_bytes));
    if (given.size == 0 && has_read) invalid("size is 0, expected the bytes of the stream");
    if (given.size != 0 && !has_read) invalid("size is " + std::to_string(given.size) + ", expected 0 without read");
    return given;
}

// Layer, sequence and tensors; the shapes are still to be compared.
cache::CacheRows to_rows(const winnow_cache& cache, const winnow_cache_rows_desc& given, Access access) {
    expect_layer(cache, given.layer);
    expect_sequence(cache, "sequence", given.sequence);
    const auto tensor = [&](const winnow_tensor* from, const char* name, std::initializer_list<Type> types,
                            Access its) {
        return to_tensor(*cache.context, from, {name, types, its}, Memory::required);
    };
    cache::CacheRows rows;
    rows.layer = given.layer;
    rows.sequence = given.sequence;
    rows.tokens = tensor(given.tokens, "tokens", index_types, Access::input);
    rows.k = tensor(given.k, "k", dense_types, access);
    rows.v = tensor(given.v, "v", dense_types, access);
    rows.has_v_in_k = given.has_v_in_k != 0;
    rows.v_first = given.v_first;
    return rows;
}

// Values in the keys are for exact rows alone.
void expect_apart_from_keys(const winnow_cache_rows_desc& given) {
    if (given.has_v_in_k != 0 || given.v_first != 0) {
        invalid("has_v_in_k is " + std::to_string(given.has_v_in_k) + " and v_first " + std::to_string(given.v_first) +
                ", expected 0 but for exact rows");
    }
}

const cache::LayerShape& shape_of(const winnow_cache& cache, int64_t layer) {
    expect_layer(cache, layer);
    return cache.request.shape.layer(layer);
}

void check_v_in_k(const winnow_cache& cache, const winnow_cache_rows_desc& given) {
    const cache::LayerShape& shape = shape_of(cache, given.layer);
    expect_count("has_v_in_k", given.has_v_in_k, 1, 0);
    if (given.has_v_in_k == 0) {
        expect_count("v_first", given.v_first, 0, 0);
        return;
    }
    if (given.k == nullptr) invalid("k is NULL, expected the keys that have the values in them");
    expect_absent(given.v, "v", "where has_v_in_k is 1");
    if (given.v_first + shape.v_head_size > shape.head_size) {
        invalid("v_first is " + std::to_string(given.v_first) + ", expected values of " +
                std::to_string(shape.v_head_size) + " elements within the " + std::to_string(shape.head_size) +
                " of a key");
    }
}

void check_new_tokens(const winnow_cache& cache, const winnow_cache_rows_desc& given) {
    if (cache.request.cells == 0) expect_absent(given.tokens, "tokens", "in a cache without cells");
    if (cache.request.cells != 0 && given.tokens == nullptr) {
        invalid("tokens is NULL, expected the cell of each token, in a cache with cells");
    }
}

void check_shapes(const cache::CacheRows& rows, const cache::LayerShape& shape) {
    const int64_t count = rows.tokens ? rows.tokens.shape[3] : (rows.k ? rows.k : rows.v).shape[2];
    if (rows.tokens) expect_shape(rows.tokens, "tokens", {1, 1, 1, -1});
    if (rows.k) expect_shape(rows.k, "k", {1, shape.kv_heads, count, shape.head_size});
    if (rows.v) expect_shape(rows.v, "v", {1, shape.kv_heads, count, shape.v_head_size});
}

// Of a description of a cache whose layers are alike, or of one layer.
template <class Desc>
cache::LayerShape to_layer_shape(const Desc& given) {
    expect_count("kv_num_heads", given.kv_num_heads, most_axis);
    expect_count("q_num_heads", given.q_num_heads, most_axis);
    if (given.q_num_heads % given.kv_num_heads != 0) {
        invalid("q_num_heads is " + std::to_string(given.q_num_heads) + ", expected a multiple of kv_num_heads, " +
                std::to_string(given.kv_num_heads));
    }
    expect_count("head_size", given.head_size, most_axis);
    expect_count("v_head_size", given.v_head_size, most_axis, 0);
    return {.q_heads = given.q_num_heads,
            .kv_heads = given.kv_num_heads,
            .head_size = given.head_size,
            .v_head_size = given.v_head_size != 0 ? given.v_head_size : given.head_size};
}

std::vector<cache::LayerShape> to_layer_shapes(const winnow_cache_desc& given) {
    const auto layers = static_cast<uint64_t>(given.layers);
    if (given.layer_shapes == nullptr) {
        if (given.layer_shape_stride != 0)
            invalid("layer_shape_stride is " + std::to_string(given.layer_shape_stride) +
                    ", expected 0 without layer_shapes");
        return std::vector(layers, to_layer_shape(given));
    }
    const auto expect_zero = [](const char* name, int64_t value) {
        if (value != 0)
            invalid(std::string(name) + " is " + std::to_string(value) + ", expected 0 where layer_shapes is given");
    };
    expect_zero("q_num_heads", given.q_num_heads);
    expect_zero("kv_num_heads", given.kv_num_heads);
    expect_zero("head_size", given.head_size);
    expect_zero("v_head_size", given.v_head_size);
    std::vector<cache::LayerShape> shapes;
    const HostArray<const winnow_layer_shape> array = {given.layer_shapes, layers, given.layer_shape_stride,
                                                       "layer_shapes", "layer_shape"};
    for_each_element(array, [&](const winnow_layer_shape& element) {
        const winnow_layer_shape shape = read_struct(&element, "layer_shape");
        check_reserved(shape.reserved, "layer_shape");
        shapes.push_back(to_layer_shape(shape));
    });
    return shapes;
}

cache::CacheRows to_known_rows(const winnow_cache& cache, const winnow_cache_rows_desc& given, Access access) {
    if (given.tokens == nullptr) invalid("tokens is NULL, expected the tokens' positions, or cells");
    if (given.k == nullptr && given.v == nullptr) invalid("neither k nor v is given, expected one of them or both");
    const cache::CacheRows rows = to_rows(cache, given, access);
    check_shapes(rows, shape_of(cache, rows.layer));
    if (access == Access::output) {
        expect_apart({{rows.k, "k"}, {rows.v, "v"}}, {{rows.tokens, "tokens"}});
    }
    return rows;
}

cache::CacheRows to_new_rows(const winnow_cache& cache, const winnow_cache_rows_desc& given) {
    if (given.k == nullptr || (given.v == nullptr && given.has_v_in_k == 0)) {
        invalid(std::string(given.k == nullptr ? "k" : "v") + " is NULL, expected keys and values");
    }
    check_new_tokens(cache, given);
    const cache::CacheRows rows = to_rows(cache, given, Access::input);
    check_shapes(rows, shape_of(cache, rows.layer));
    return rows;
}

} // namespace

cache::CacheRequest to_cache_request(const winnow_cache_desc* desc) {
    const winnow_cache_desc given = read_desc(desc, "desc");
    expect_count("layers", given.layers, most_axis);
    expect_count("context", given.context, most_tokens);
    expect_count("max_sequences", given.max_sequences, most_axis, 0);
    expect_count("cells", given.cells, most_tokens, 0);
    cache::CacheRequest request;
    request.config = given.config != nullptr && *given.config != 0 ? std::string_view(given.config) : default_config;
    request.shape.layers = to_layer_shapes(given);
    request.shape.context = given.context;
    request.max_sequences = given.max_sequences != 0 ? given.max_sequences : 1;
    request.cells = given.cells;
    add_resources(request, given);
    return request;
}

cache::CacheRows to_cache_rows(const winnow_cache& cache, const winnow_cache_rows_desc* desc, Access access) {
    const winnow_cache_rows_desc given = read_desc(desc, "desc");
    expect_apart_from_keys(given);
    return to_known_rows(cache, given, access);
}

cache::CacheRows to_exported_rows(const winnow_cache& cache, const winnow_cache_rows_desc* desc) {
    const winnow_cache_rows_desc given = read_desc(desc, "desc");
    check_v_in_k(cache, given);
    return to_known_rows(cache, given, Access::output);
}

cache::CacheRows to_imported_rows(const winnow_cache& cache, const winnow_cache_rows_desc* desc) {
    const winnow_cache_rows_desc given = read_desc(desc, "desc");
    check_v_in_k(cache, given);
    return to_new_rows(cache, given);
}

cache::CacheSaving to_cache_saving(const winnow_cache& cache, const winnow_cache_state_desc* desc) {
    const winnow_cache_state_desc given = to_state(cache, desc, false);
    cache::CacheSaving saving{given.sequence};
    if (given.path != nullptr)
        saving.path = given.path;
    else
        saving.write = [given](const void* bytes, uint64_t size) { return given.write(given.user_data, bytes, size); };
    return saving;
}

cache::CacheLoading to_cache_loading(const winnow_cache& cache, const winnow_cache_state_desc* desc) {
    const winnow_cache_state_desc given = to_state(cache, desc, true);
    cache::CacheLoading loading{given.sequence};
    loading.size = given.size;
    if (given.path != nullptr)
        loading.path = given.path;
    else
        loading.read = [given](void* bytes, uint64_t size) { return given.read(given.user_data, bytes, size); };
    return loading;
}

void expect_layer(const winnow_cache& cache, int64_t layer) {
    expect_count("layer", layer, cache.request.shape.layer_count() - 1, 0);
}

void expect_head(const winnow_cache& cache, int64_t layer, int64_t head) {
    expect_count("head", head, shape_of(cache, layer).kv_heads - 1, 0);
}

void expect_sequence(const winnow_cache& cache, const char* name, int64_t sequence) {
    expect_count(name, sequence, cache.request.max_sequences - 1, 0);
}

void expect_sequence_or_all(const winnow_cache& cache, int64_t sequence) {
    expect_count("sequence", sequence, cache.request.max_sequences - 1, -1);
}

void expect_tokens(const cache::CacheRequest& request, const char* name, int64_t tokens) {
    expect_count(name, tokens, most_token_ids(request), 0);
}

void expect_range(const winnow_cache& cache, int64_t begin, int64_t end) {
    const int64_t most = cache.request.cells != 0 ? cache.request.cells : most_tokens;
    expect_count("begin", begin, most, 0);
    if (end == -1 || (end >= begin && end <= most)) return;
    invalid("end is " + std::to_string(end) + ", expected -1 or begin, " + std::to_string(begin) + ", to " +
            std::to_string(most));
}

void expect_delta(int64_t delta) { expect_count("delta", delta, most_tokens, -most_tokens); }

bool is_token_id(const winnow_cache& cache, int64_t token_id) {
    return token_id >= 0 && token_id < most_token_ids(cache.request);
}

void expect_token_id(const winnow_cache& cache, const char* name, int64_t token_id) {
    expect_count(name, token_id, most_token_ids(cache.request) - 1, 0);
}

} // namespace winnow::api
