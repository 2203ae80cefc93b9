// out[h][i][token id of the slot] = scores[h][i][slot], and -infinity elsewhere.
#include "reference/operations.hpp"

#include <limits>

#include "reference/element.hpp"
#include "reference/slot_rows.hpp"
#include "reference/view.hpp"

namespace winnow::reference {
namespace {

void scatter(const SlotScores& args, const Segment& from, int64_t first_column, int64_t q_head, int64_t query) {
    if (from.slots() == 0) return; // an absent segment has no heads
    const int64_t head = q_head / (args.scores.shape[1] / from.kv_heads());
    for (int64_t slot = 0; slot < from.slots(); ++slot) {
        const int32_t token = entry(from.tokens, head, slot);
        if (!is_live(token) || token_id_of(token) >= args.out.shape[3]) continue;
        store(args.out.type, address(args.out, 0, q_head, query, token_id_of(token)),
              load(args.scores.type, address(args.scores, 0, q_head, query, first_column + slot)));
    }
}

} // namespace

void slot_scores(const SlotScores& args) {
    for (int64_t q_head = 0; q_head < args.out.shape[1]; ++q_head)
        for (int64_t query = 0; query < args.out.shape[2]; ++query) {
            for (int64_t column = 0; !args.keeps_others && column < args.out.shape[3]; ++column)
                store(args.out.type, address(args.out, 0, q_head, query, column),
                      -std::numeric_limits<double>::infinity());
            int64_t first_column = 0;
            for (const Segment& from : args.segments) {
                scatter(args, from, first_column, q_head, query);
                first_column += from.slots();
            }
        }
}

} // namespace winnow::reference
