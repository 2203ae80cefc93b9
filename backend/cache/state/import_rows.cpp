// Imports rows. An empty layer whose configuration and shape are the ledger's is rebuilt as the exported layer was.
// Any other layer appends the rows; then packed rows get the bytes that they had, where they lie in a packed segment of
// the same format again. In F32 no record is exported, so that such rows are values as read gave them.
#include <numeric>
#include <optional>
#include <vector>

#include "cache/calls/restored_tokens.hpp"
#include "cache/calls/token_rows.hpp"
#include "cache/failures.hpp"
#include "cache/layer/token_ids.hpp"
#include "cache/recall/cold_rows.hpp"
#include "cache/state/exact_rows.hpp"
#include "cache/state/incoming_rows.hpp"
#include "cache/state/rebuilt_layer.hpp"

namespace winnow::cache {
namespace {

class Import {
public:
    Import(CacheState& cache, const CacheRows& args)
        : cache_(cache), geometry_(*cache.geometry), args_(args),
          token_ids_(read_token_ids(args.tokens, "tokens", geometry_.request().cells)), rows_(cache, args) {}

    void run() {
        const std::optional<Ledger>& ledger = rows_.ledger();
        if (layer().index.next() == 0 && ledger && ledger->digest == digest_of(geometry_, args_.layer)) {
            RebuiltLayer rebuilt(cache_, args_, token_ids_, rows_);
            if (rebuilt.is_possible()) {
                rebuilt.run();
                return;
            }
        }
        changing(cache_.device, [&] { append(); });
    }

private:
    Layer& layer() { return cache_.sequence(args_.sequence).layers[static_cast<size_t>(args_.layer)]; }

    void append() {
        const int64_t heads = geometry_.shape(args_.layer).kv_heads, first = layer().index.next();
        Resident resident{rows_.count(), std::vector<bool>(static_cast<size_t>(heads * rows_.count()))};
        for (int64_t head = 0; head < heads; ++head)
            for (int64_t i = 0; i < rows_.count(); ++i)
                resident.of[static_cast<size_t>(head * rows_.count() + i)] = rows_.is_resident(head, i);
        CacheStep step;
        step.layer = args_.layer;
        step.sequence = args_.sequence;
        step.k = rows_.keys();
        step.v = rows_.values();
        step.cells = args_.tokens;
        restore_tokens(cache_, step, resident, [&] { complete(first); });
    }

    // first: of the tokens' positions.
    void complete(int64_t first) {
        std::vector<int32_t> token_ids = token_ids_;
        if (!geometry_.has_cells()) {
            token_ids.resize(static_cast<size_t>(rows_.count()));
            std::iota(token_ids.begin(), token_ids.end(), static_cast<int32_t>(first));
        }
        Fetched fetched(cache_, layer());
        fetched.changed_rows();
        put_back(cache_, layer(), rows_, find_slots(cache_, layer(), token_ids), !geometry_.config().center());
        fetched.store();
    }

    CacheState& cache_;
    const Geometry& geometry_;
    const CacheRows& args_;
    const std::vector<int32_t> token_ids_;
    const IncomingRows rows_;
};

} // namespace

void import_rows(CacheState& cache, const CacheRows& args) {
    if (args.k.type == Type::f32 && args.v.type == Type::f32)
        append_rows(cache, args);
    else
        Import(cache, args).run();
}

} // namespace winnow::cache
