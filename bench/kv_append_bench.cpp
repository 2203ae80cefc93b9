// Appending to a cache: one token, and a prompt, against copying the same bytes.
#include <cstring>

#include "harness.hpp"

namespace winnow::bench {

nlohmann::json bench_kv_append(const Options& options, Backend& backend) {
    constexpr int64_t slots = 4096;
    nlohmann::json rows = nlohmann::json::array();
    print_row({"kv_append: f32 rows of K and V", "us", "GB/s", "x memcpy"});
    for (const int64_t head_size : options.head_sizes) {
        for (const int64_t tokens : {int64_t{1}, int64_t{512}}) {
            const int64_t heads = options.kv_heads;
            Memory source(backend, WINNOW_TYPE_F32, heads * tokens * head_size);
            Memory k_cache(backend, options.type, heads * slots * head_size);
            Memory v_cache(backend, options.type, heads * slots * head_size);
            Memory indices(backend, WINNOW_TYPE_I32, tokens);
            int32_t* index = static_cast<int32_t*>(indices.data());
            for (int64_t token = 0; token < tokens; ++token) index[token] = static_cast<int32_t>(token * 7 % slots);

            const winnow_tensor source_tensor = source.tensor(1, heads, tokens, head_size);
            const winnow_tensor k_tensor = k_cache.tensor(1, heads, slots, head_size);
            const winnow_tensor v_tensor = v_cache.tensor(1, heads, slots, head_size);
            const winnow_tensor index_tensor = indices.tensor(1, 1, 1, tokens);
            winnow_kv_append_desc desc{};
            desc.struct_size = sizeof desc;
            desc.k_src = desc.v_src = &source_tensor;
            desc.k_cache = &k_tensor;
            desc.v_cache = &v_tensor;
            desc.k_row_indices = &index_tensor;

            const uint64_t row_bytes = static_cast<uint64_t>(heads * tokens * head_size) * type_size(options.type);
            const std::vector<double> seconds = take_turns({[&] { backend.run(desc); },
                                                            [&] {
                                                                std::memcpy(k_cache.data(), source.data(), row_bytes);
                                                                std::memcpy(v_cache.data(), source.data(), row_bytes);
                                                            }},
                                                           options.seconds);
            const double bytes = 2.0 * static_cast<double>(row_bytes + source.size());
            print_row({std::string("f32 to ") + type_name(options.type) + " D=" + std::to_string(head_size) +
                           " tokens=" + std::to_string(tokens),
                       fixed(seconds[0] * 1e6, 1), fixed(bytes / seconds[0] / 1e9, 2),
                       fixed(seconds[1] / seconds[0], 2)});
            rows.push_back({{"head_size", head_size},
                            {"tokens", tokens},
                            {"seconds", seconds[0]},
                            {"memcpy_seconds", seconds[1]}});
        }
    }
    return rows;
}

} // namespace winnow::bench
