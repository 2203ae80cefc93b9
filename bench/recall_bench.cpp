// A query of decoding under recall, which scores all signatures (page_sign made them), picks pages (page_pick) and
// attends to them, against a query over the whole packed cache. The columns: microseconds of the whole, of recall with
// a budget of 1/16 and signatures of signs, and of codes, and how many times as fast these two are; minima of turns.
// The context is as long as there are keys: of a longer one the budget would hold more of them.
#include "../tests/made_codebooks.hpp"
#include "attention.hpp"

namespace winnow::bench {

nlohmann::json bench_recall(const Options& options, Backend& backend) {
    nlohmann::json rows = nlohmann::json::array();
    for (const AttentionSizes& sizes : sizes_of(options, {WINNOW_TYPE_TURBO4, WINNOW_TYPE_TURBO3})) {
        const std::vector<uint8_t> codebooks = made_codebooks(1, sizes.kv_heads, sizes.head_size);
        FilledCache whole(backend, "winnow", sizes), signs(backend, "winnow:budget=1/16,recall=host", sizes),
            codes(backend, "winnow:budget=1/16,recall=host,signature=codes", sizes, codebooks);
        const std::vector<double> seconds =
            take_turns({[&] { whole.attend(); }, [&] { signs.attend(); }, [&] { codes.attend(); }}, options.seconds);
        print_row({"page_pick: G=" + std::to_string(sizes.group) + " D=" + std::to_string(sizes.head_size) + " of " +
                       std::to_string(sizes.kv_len),
                   fixed(seconds[0] * 1e6, 1), fixed(seconds[1] * 1e6, 1), fixed(seconds[2] * 1e6, 1),
                   fixed(seconds[0] / seconds[1], 2), fixed(seconds[0] / seconds[2], 2)});
        rows.push_back({{"operation", "page_pick, page_sign"},
                        {"head_size", sizes.head_size},
                        {"group", sizes.group},
                        {"tokens", sizes.kv_len},
                        {"whole_seconds", seconds[0]},
                        {"recall_seconds", seconds[1]},
                        {"codes_seconds", seconds[2]}});
    }
    return rows;
}

} // namespace winnow::bench
