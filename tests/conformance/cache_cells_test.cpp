// Cell mode: the host names the cell of each token and says by a mask what a query sees. Cells are reused, and several
// sequences of the host share one of the cache's, told apart by the mask.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "cache_cases.hpp"
#include "cache_oracle.hpp"
#include "cache_registration.hpp"
#include "registered_cases.hpp"
#include "temporary_folder.hpp"

namespace winnow::conformance {
namespace {

struct MaskKind {
    const char* name;
    uint32_t type;
    bool by_heads, has_slopes;
};
constexpr MaskKind mask_kinds[] = {{"mask", WINNOW_TYPE_BOOL, false, false},
                                   {"mask_by_heads", WINNOW_TYPE_BOOL, true, false},
                                   {"additive_mask", WINNOW_TYPE_F32, false, true},
                                   {"additive_mask_by_heads", WINNOW_TYPE_F16, true, false}};

// A host with streams of its own over one set of cells.
class CellHost {
public:
    CellHost(const CacheSetup& setup, uint64_t seed, int streams, const MaskKind& mask)
        : setup_(setup), engine_(seed), cache_(subject(), setup), oracle_(cache_),
          owner_(static_cast<size_t>(setup.cells), -1), order_(static_cast<size_t>(setup.cells), 0), streams_(streams),
          mask_(mask) {}

    std::string step(int64_t tokens) {
        const int stream = static_cast<int>(engine_() % static_cast<uint64_t>(streams_));
        const std::vector<int64_t> cells = take_cells(tokens, stream);
        for (int64_t layer = 0; layer < setup_.layers; ++layer) {
            StepOptions options;
            options.scores = engine_() % 4 == 0 || setup_.recall;
            options.head_sink = engine_() % 5 == 0;
            Step step = draw_step(setup_, engine_, layer, 0, tokens, tokens, options, setup_.cells);
            const uint32_t type = engine_() % 2 ? WINNOW_TYPE_I32 : WINNOW_TYPE_I64;
            step.cells = TestTensor(type, {1, 1, 1, tokens});
            for (int64_t t = 0; t < tokens; ++t)
                step.cells.set({0, 0, 0, t}, static_cast<double>(cells[static_cast<size_t>(t)]));
            set_mask(step, cells, stream);
            if (const std::string wrong = oracle_.step(step); !wrong.empty())
                return "layer " + std::to_string(layer) + ": " + wrong;
        }
        return oracle_.look();
    }

    // A host that takes the newest cells of a stream back, and uses them again.
    void release(int64_t count) {
        for (int64_t at = 0; at < count; ++at) {
            const auto newest = std::max_element(order_.begin(), order_.end());
            owner_[static_cast<size_t>(newest - order_.begin())] = -1;
            *newest = 0;
        }
    }

    std::string remove(int64_t begin, int64_t end) {
        for (int64_t cell = begin; cell < end; ++cell)
            owner_[static_cast<size_t>(cell)] = -1, order_[static_cast<size_t>(cell)] = 0;
        return oracle_.remove(0, begin, end);
    }

    std::string exchange(int64_t layer) {
        const std::string wrong = oracle_.read(0, layer, WINNOW_TYPE_F32);
        return wrong.empty() ? oracle_.write(0, layer, engine_) : wrong;
    }

    int32_t reserve(int64_t tokens) { return cache_.caches().reserve(cache_.get(), 0, tokens); }

    std::string anchor(int64_t cell) { return oracle_.anchor(0, {cell}); }

private:
    // A query sees its own stream's tokens up to itself. By heads, each but its own cell may be hidden from some; an
    // additive mask takes something off with distance, as ALiBi does. Some masks end before the last cell.
    void set_mask(Step& step, const std::vector<int64_t>& cells, int stream) {
        const bool is_additive = mask_.type != WINNOW_TYPE_BOOL;
        const int64_t some = 2 + static_cast<int64_t>(engine_() % static_cast<uint64_t>(setup_.cells - 1));
        const int64_t columns = engine_() % 2 ? setup_.cells : some;
        step.mask = TestTensor(mask_.type, {1, mask_.by_heads ? setup_.q_heads() : 1, step.tokens, columns});
        step.mask.each([&](const Index& at) {
            const size_t cell = static_cast<size_t>(at[3]);
            const int64_t distance = order_[static_cast<size_t>(cells[static_cast<size_t>(at[2])])] - order_[cell];
            bool is_seen = owner_[cell] == stream && distance >= 0;
            if (mask_.by_heads && distance > 0) is_seen = is_seen && engine_() % 4 > 0;
            const double hidden = is_additive ? -std::numeric_limits<double>::infinity() : 0;
            step.mask.set(at, !is_seen ? hidden : is_additive ? static_cast<double>(-distance) / 64 : 1);
        });
        if (!mask_.has_slopes) return;
        step.mask_slopes = TestTensor(WINNOW_TYPE_F32, {1, 1, 1, setup_.q_heads()});
        step.mask_slopes.each([&](const Index& at) { step.mask_slopes.set(at, 1 / static_cast<double>(at[3] + 1)); });
    }

    // Free cells anywhere; where there are none, those of the oldest tokens.
    std::vector<int64_t> take_cells(int64_t tokens, int stream) {
        std::vector<int64_t> cells;
        while (static_cast<int64_t>(cells.size()) < tokens) {
            int64_t cell = static_cast<int64_t>(engine_() % static_cast<uint64_t>(setup_.cells));
            for (int64_t tried = 0; tried < setup_.cells && owner_[static_cast<size_t>(cell)] >= 0; ++tried)
                cell = (cell + 1) % setup_.cells;
            if (owner_[static_cast<size_t>(cell)] >= 0)
                cell = std::min_element(order_.begin(), order_.end()) - order_.begin();
            owner_[static_cast<size_t>(cell)] = stream;
            order_[static_cast<size_t>(cell)] = ++stamp_;
            cells.push_back(cell);
        }
        return cells;
    }

    CacheSetup setup_;
    std::mt19937_64 engine_;
    CacheHost cache_;
    CacheOracle oracle_;
    std::vector<int> owner_;     // the host's stream of each cell, or -1
    std::vector<int64_t> order_; // when it was taken
    int64_t stamp_ = 0;
    int streams_;
    MaskKind mask_;
};

void run(const CacheSetup& setup, uint64_t seed, int streams, const MaskKind& mask, int steps = 60,
         int64_t reserved = 0) {
    CellHost host(setup, seed, streams, mask);
    if (reserved > 0) {
        ASSERT_EQ(host.reserve(reserved), WINNOW_OK) << subject().message();
    }
    std::mt19937_64 engine(seed + 1);
    for (int at = 0; at < steps; ++at) {
        const uint64_t kind = engine() % 10;
        const int64_t chunk = setup.chunk();
        if (kind == 0) host.release(static_cast<int64_t>(engine() % 6));
        if (kind == 1) {
            const int64_t begin = static_cast<int64_t>(engine() % static_cast<uint64_t>(setup.cells));
            const int64_t end = std::min<int64_t>(begin + 1 + static_cast<int64_t>(engine() % 20), setup.cells);
            ASSERT_EQ(host.remove(begin, end), "")
                << "seed " << seed << ", step " << at << ", cells " << begin << " to " << end;
        }
        const bool exchanges = kind == 2 && at % 3 == 0;
        const std::string wrong = exchanges ? host.exchange(at % setup.layers) : "";
        ASSERT_EQ(wrong, "") << "seed " << seed << ", step " << at;
        const int64_t tokens = kind < 6 ? 1 : 1 + static_cast<int64_t>(engine() % static_cast<uint64_t>(chunk));
        ASSERT_EQ(host.step(tokens), "") << "seed " << seed << ", step " << at << ", " << setup.config();
    }
}

// The scores of a chunk pass 4 MiB there, so that its queries attend in parts, each with its rows of the mask.
void register_wide_cells() {
    CacheSetup setup =
        with_shape({.policy = Policy::h2o, .layers = 1, .context = 4096, .cells = 3000, .budget = 2500}, 0);
    setup.kv_heads = 2;
    setup.group = 8;
    for (const MaskKind& mask : {mask_kinds[0], mask_kinds[2]})
        register_cache_test("cells_in_parts", mask.name, __FILE__, __LINE__,
                            [=] { run(setup, options().seed, 2, mask, 25, setup.cells); });
}

} // namespace

void register_cache_cells() {
    register_wide_cells();
    int at = 0;
    for (const char* budget : {"1G", "100K"}) {
        CacheSetup setup = recall_setup(++at, budget);
        setup.cells = 150;
        setup.context = 4096;
        const MaskKind mask = mask_kinds[at];
        register_cache_test("cells", std::string("recall_") + budget + "_2_streams_" + mask.name, __FILE__, __LINE__,
                            [=] { run(setup, options().seed + static_cast<uint64_t>(at), 2, mask); });
        register_cache_test("cells", std::string("recall_in_file_") + budget + "_2_streams_" + mask.name, __FILE__,
                            __LINE__, [=] {
                                const TemporaryFolder folder;
                                CacheSetup in_file = setup;
                                in_file.recall->cold_tier = folder.path();
                                run(in_file, options().seed + static_cast<uint64_t>(at), 2, mask);
                            });
    }
    CacheSetup reused = recall_setup(2, "100K"); // of which nearly each step takes cells of old tokens
    reused.cells = 150;
    reused.context = 4096;
    register_cache_test("cells", "recall_of_cells_used_again", __FILE__, __LINE__,
                        [=] { run(reused, options().seed, 1, mask_kinds[0], 200); });
    for (const char* budget : {"1G", "100K"}) {
        CacheSetup setup = recall_setup_of_newest(++at, budget);
        setup.cells = 200;
        setup.context = 4096;
        const MaskKind mask = mask_kinds[at - 2];
        for (const bool in_file : {false, true})
            register_cache_test(
                "cells", std::string(in_file ? "newest_in_file_" : "newest_") + budget + "_2_streams_" + mask.name,
                __FILE__, __LINE__, [=] {
                    const TemporaryFolder folder;
                    CacheSetup own = setup;
                    if (in_file) own.recall->cold_tier = folder.path();
                    run(own, options().seed + static_cast<uint64_t>(at), 2, mask);
                });
    }
    at = 2;
    for (NamedSetup each : policy_setups()) {
        ++at;
        if (each.setup.policy == Policy::adaptive_budget) continue;
        each.setup.cells = each.setup.budget == 0 || each.setup.policy == Policy::none ? 150 : 200;
        each.setup.context = 4096;
        if (each.setup.budget == 0 && each.setup.policy != Policy::decay)
            each.setup.budget = 150; // no more tokens than cells at a time
        const CacheSetup setup = with_shape(each.setup, at % 3);
        const int streams = 1 + at % 3;
        const MaskKind mask = mask_kinds[at % 4];
        register_cache_test("cells", each.name + "_" + std::to_string(streams) + "_streams_" + mask.name, __FILE__,
                            __LINE__, [=] { run(setup, options().seed + static_cast<uint64_t>(at), streams, mask); });
    }
}

} // namespace winnow::conformance
