// Restored tokens are appended chunk by chunk, as those of a prompt, but each head's rows find slots of their own, and
// no token that is there goes for them unless a slot is missing.
#include "cache/calls/restored_tokens.hpp"

#include <algorithm>
#include <list>
#include <optional>

#include "cache/calls/layer_call.hpp"
#include "cache/failures.hpp"
#include "cache/layer/eviction_pass.hpp"
#include "cache/layer/growth.hpp"
#include "cache/recall/cold_rows.hpp"

namespace winnow::cache {
namespace {

class RestoredTokens : public LayerCall {
public:
    RestoredTokens(CacheState& cache, const CacheStep& args, const Resident& resident)
        : LayerCall(cache, args), resident_(resident) {}

    // Memory was taken as for all tokens in each head.
    void give_back() { shrink(cache_, sequence_, layer_); }

private:
    void validate(std::vector<Segment>&) const override {} // there are no queries
    std::optional<int64_t> most_leaving() const override { return layer_.index.newest() + appended_; }
    bool begins_signed() const override { return false; }

    void bring_tokens() override {
        free_cells();
        const int64_t chunk = geometry_.chunk();
        std::optional<Fetched> fetched; // for all chunks
        if (appended_ > chunk) fetched.emplace(cache_, layer_);
        for (int64_t first = 0; first < appended_; first += chunk) {
            const int64_t count = std::min(chunk, appended_ - first);
            make_room_beside(first, count);
            for (const Run& run : layer_.index.place(first, count, cells_)) {
                SlotAppend append = append_of(run);
                append.slots = slots_of_resident(run, append);
                cache_.device.launch(append);
                note(run);
            }
        }
        if (fetched) fetched->store();
    }

    void make_room_beside(int64_t first, int64_t count) {
        const TokenIndex& index = layer_.index;
        const int64_t others = outside_sinks(first, count);
        if (others == 0) return;
        if (geometry_.residual() > 0) {
            const int64_t leaving = index.newest() + others - geometry_.residual();
            if (leaving <= 0) return;
            evict_oldest(cache_, layer_, leaving, shared_->cell_positions.get(), Demanded::by_room);
            evict(cache_, layer_, leaving, 0, 0, Demanded::by_room);
            return;
        }
        evict(cache_, layer_, 0, geometry_.cadence(), 0,
              finds_slots(first, count) ? Demanded::by_room : Demanded::by_budget);
        used_free_listed_.assign(static_cast<size_t>(shape_.kv_heads), 0);
    }

    // Whether each head has slots of packed segments for what it holds of these tokens.
    bool finds_slots(int64_t first, int64_t count) const {
        std::vector<int64_t> free = free_in_packed(geometry_, layer_);
        for (const Run& run : layer_.index.place(first, count, cells_))
            for (size_t head = 0; head < free.size() && !run.is_sink; ++head)
                for (int64_t i = 0; i < run.count; ++i)
                    free[head] -= resident_(static_cast<int64_t>(head), run.first + i);
        return std::all_of(free.begin(), free.end(), [](int64_t left) { return left >= 0; });
    }

    // Where the tokens of a run go in the heads that hold them.
    Tensor slots_of_resident(const Run& run, const SlotAppend& append) {
        const int64_t heads = shape_.kv_heads;
        std::vector<int32_t> list;
        if (append.slots) list = layer_.read_state<int32_t>(geometry_.state(args_.layer).free_slots);
        std::vector<int32_t>& slots = slots_.emplace_back(static_cast<size_t>(heads * run.count), -1);
        for (int64_t head = 0; head < heads; ++head)
            for (int64_t i = 0; i < run.count; ++i) {
                if (!resident_(head, run.first + i)) continue;
                int64_t slot = append.first + (append.offset + i) % append.count;
                if (append.slots) {
                    int64_t& used = used_free_listed_[static_cast<size_t>(head)];
                    slot = list[static_cast<size_t>(head * most_free_listed(geometry_.config()) + used++)];
                }
                slots[static_cast<size_t>(head * run.count + i)] = static_cast<int32_t>(slot);
            }
        Tensor tensor = tensor_of(Type::i32, heads, 1, run.count);
        tensor.data = reinterpret_cast<std::byte*>(slots.data());
        return tensor;
    }

    const Resident& resident_;
    std::vector<int64_t> used_free_listed_; // [head]: how many free-listed slots have a row of the state
    std::list<std::vector<int32_t>> slots_; // that launches read
};

} // namespace

void restore_tokens(CacheState& cache, const CacheStep& args, const Resident& resident,
                    const std::function<void()>& completed) {
    StepMemory memory;
    RestoredTokens tokens(cache, args, resident); // launches read its memory
    finishing(cache.device, [&] {
        tokens.prepare(memory);
        tokens.copy_rows();
        tokens.adopt();
        keeping_layer(cache, tokens.layer(), [&] {
            tokens.run();
            completed();
        });
        tokens.give_back();
    });
}

} // namespace winnow::cache
