// A backend that is wrong on purpose: the reference with one defect, chosen by the environment variable WINNOW_DEFECT.
// The conformance suite must fail on every one of them, or it is no judge.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <type_traits>

#include "defects.hpp"
#include "reference/device.hpp"
#include "reference/element.hpp"
#include "reference/view.hpp"

namespace winnow {
namespace {

using reference::address;
using reference::load;
using reference::store;

void each_element(const Tensor& tensor, const std::function<void(std::byte*)>& f) {
    if (!tensor) return;
    for (int64_t a = 0; a < tensor.shape[0]; ++a)
        for (int64_t b = 0; b < tensor.shape[1]; ++b)
            for (int64_t c = 0; c < tensor.shape[2]; ++c)
                for (int64_t d = 0; d < tensor.shape[3]; ++d) f(address(tensor, a, b, c, d));
}

void forget_last_key(Sdpa& args) {
    if (args.kv_len() < 2) return;
    --args.segments[0].k.shape[2];
    --args.segments[0].v.shape[2];
    if (args.scores_out) --args.scores_out.shape[2 + 1];
}

// Only into the tester's own memory, which has room there: the heap is not ours to corrupt.
void write_before_row(const Tensor& tensor) {
    if (!tensor.buffer) *(address(tensor, 0, 0, 0, 0) - 1) ^= std::byte{0xff};
}

// A NaN where nobody looks must not matter; here it does.
void leak_last_key(const Sdpa& args) {
    const Tensor& k = args.segments[0].k;
    const double seen = load(k.type, address(k, 0, 0, args.kv_len() - 1, 0));
    if (std::isnan(seen) || std::isinf(seen))
        each_element(args.out, [&](std::byte* at) { store(args.out.type, at, load(args.out.type, at) + 0 * seen); });
}

void truncate_halves(const KvAppend& args) {
    // Towards zero instead of to nearest: visible where the source has more bits than the cache.
    for (const AppendRows* rows : {&args.k, &args.v})
        if (*rows && rows->src.type == Type::f32 && rows->cache.type == Type::bf16)
            for (int64_t token = 0; token < rows->src.shape[2]; ++token) {
                int32_t slot = 0;
                if (rows->row_indices.type != Type::i32) return;
                std::memcpy(&slot, address(rows->row_indices, 0, 0, 0, token), 4);
                if (slot < 0 || slot >= rows->cache.shape[2]) continue;
                for (int64_t d = 0; d < rows->src.shape[3]; ++d)
                    std::memcpy(address(rows->cache, 0, 0, slot, d), address(rows->src, 0, 0, token, d) + 2, 2);
            }
}

// Indices from the end, as in Python: documented are skipped rows.
void wrap_negative_rows(const KvAppend& args) {
    for (const AppendRows* rows : {&args.k, &args.v})
        if (*rows && rows->row_indices.type == Type::i32)
            each_element(rows->row_indices, [&](std::byte* at) {
                int32_t slot = 0;
                std::memcpy(&slot, at, 4);
                if (slot == -1) *address(rows->cache, 0, 0, rows->cache.shape[2] - 1, 0) ^= std::byte{1};
            });
}

std::map<std::string, Defect> dense_defects() {
    return {
        {"causal_off_by_one", {.before_sdpa = [](Sdpa& a) { a.q_offset += a.is_causal; }}},
        {"window_off_by_one", {.before_sdpa = [](Sdpa& a) { a.window_left += a.window_left != 0; }}},
        {"right_window_off_by_one", {.before_sdpa = [](Sdpa& a) { a.window_right += a.window_right != 0; }}},
        {"last_key_forgotten", {.before_sdpa = forget_last_key}},
        {"sinks_ignored", {.before_sdpa = [](Sdpa& a) { a.head_sink = {}; }}},
        {"softcap_ignored", {.before_sdpa = [](Sdpa& a) { a.softcap = 0; }}},
        {"alibi_ignored", {.before_sdpa = [](Sdpa& a) { a.alibi_slopes = {}; }}},
        {"mask_slopes_ignored", {.before_sdpa = [](Sdpa& a) { a.mask_slopes = {}; }}},
        {"mask_of_the_first_head", {.before_sdpa = [](Sdpa& a) { a.mask.stride[1] = 0; }}},
        {"mask_of_the_first_batch", {.before_sdpa = [](Sdpa& a) { a.mask.stride[0] = 0; }}},
        {"scale_a_little_off", {.before_sdpa = [](Sdpa& a) { a.scale *= 1.0002f; }}},
        {"first_kv_head_only",
         {.before_sdpa = [](Sdpa& a) { a.segments[0].k.stride[1] = a.segments[0].v.stride[1] = 0; }}},
        {"kv_batch_ignored",
         {.before_sdpa = [](Sdpa& a) { a.segments[0].k.stride[0] = a.segments[0].v.stride[0] = 0; }}},
        {"slot_positions_ignored", {.before_sdpa = [](Sdpa& a) { a.segments[0].tokens = {}; }}},
        {"slot_positions_of_the_first_head",
         {.before_sdpa =
              [](Sdpa& a) {
                  for (Segment& segment : a.segments) segment.tokens.stride[1] = 0;
              }}},
        {"slot_positions_of_the_first_batch", {.before_sdpa = [](Sdpa& a) { a.segments[0].tokens.stride[0] = 0; }}},
        {"kv_lengths_ignored", {.before_sdpa = [](Sdpa& a) { a.kv_lengths = {}; }}},
        {"kv_lengths_of_the_first_entry", {.before_sdpa = [](Sdpa& a) { a.kv_lengths.stride[3] = 0; }}},
        {"q_offsets_ignored", {.before_sdpa = [](Sdpa& a) { a.q_offsets = {}; }}},
        {"q_offsets_of_the_first_entry", {.before_sdpa = [](Sdpa& a) { a.q_offsets.stride[3] = 0; }}},
        {"scores_of_the_wrong_stage",
         {.before_sdpa =
              [](Sdpa& a) {
                  if (a.scores_mode == Scores::softcapped) a.scores_mode = Scores::biased;
              }}},
        {"raw_scores_with_softcap",
         {.before_sdpa =
              [](Sdpa& a) {
                  if (a.scores_mode == Scores::raw) a.scores_mode = Scores::softcapped;
              }}},
        {"stats_without_sinks",
         {.after_sdpa =
              [](const Sdpa& a) {
                  if (!a.head_sink || !a.row_stats) return;
                  std::byte* sum = address(a.row_stats, 0, 0, 0, 1);
                  const double m = load(Type::f32, address(a.row_stats, 0, 0, 0, 0));
                  store(Type::f32, sum,
                        load(Type::f32, sum) - std::exp(load(Type::f32, address(a.head_sink, 0, 0, 0, 0)) - m));
              }}},
        {"hidden_rows_give_nan",
         {.after_sdpa =
              [](const Sdpa& a) {
                  if (a.row_stats && load(Type::f32, address(a.row_stats, 0, 0, 0, 1)) == 0)
                      store(a.out.type, address(a.out, 0, 0, 0, 0), std::numeric_limits<double>::quiet_NaN());
              }}},
        {"unseen_garbage_leaks", {.after_sdpa = leak_last_key}},
        {"nan_swallowed",
         {.after_sdpa =
              [](const Sdpa& a) {
                  each_element(a.out, [&](std::byte* at) {
                      if (std::isnan(load(a.out.type, at))) store(a.out.type, at, 0);
                  });
              }}},
        {"last_element_not_written",
         {.after_sdpa =
              [](const Sdpa& a) {
                  store(a.out.type, address(a.out, 0, a.q_heads() - 1, a.q_len() - 1, a.v_head_size() - 1), -77);
              }}},
        {"writes_beside_out", {.after_sdpa = [](const Sdpa& a) { write_before_row(a.out); }}},
        {"writes_into_q", {.after_sdpa = [](const Sdpa& a) { *address(a.q, 0, 0, 0, 0) ^= std::byte{1}; }}},
        {"writes_beside_the_cache",
         {.after_append =
              [](const KvAppend& a) {
                  if (a.k) write_before_row(a.k.cache);
              }}},
        {"append_truncates", {.after_append = truncate_halves}},
        {"append_wraps_negative_rows", {.after_append = wrap_negative_rows}},
        {"append_forgets_v",
         {.before_append =
              [](KvAppend& a) {
                  if (a.k) a.v = {};
              }}},
        {"append_forgets_the_last_token",
         {.before_append =
              [](KvAppend& a) {
                  for (AppendRows* rows : {&a.k, &a.v})
                      if (*rows && rows->src.shape[2] > 1) --rows->src.shape[2];
              }}},
        {"append_takes_the_first_head_indices", {.before_append = [](KvAppend& a) { a.k.row_indices.stride[1] = 0; }}},
        {"sdpa_does_nothing", {}},
        {"supports_too_much", {}},
        {"everything_unsupported", {}},
        {"none", {}},
    };
}

const std::map<std::string, Defect>& defects() {
    static const std::map<std::string, Defect> all = [] {
        std::map<std::string, Defect> list = dense_defects();
        list.merge(format_defects());
        list.merge(slot_defects());
        list.merge(page_defects());
        return list;
    }();
    return all;
}

class BrokenDevice final : public reference::ReferenceDevice {
public:
    BrokenDevice(const DeviceRequest& request, std::string name)
        : ReferenceDevice(request), name_(std::move(name)), defect_(defects().at(name_)) {}

    std::string validate(const Sdpa& args) const override {
        refuse_everything();
        return ReferenceDevice::validate(args);
    }
    std::string validate(const KvAppend& args) const override {
        refuse_everything();
        return ReferenceDevice::validate(args);
    }
    std::string validate(const KvRequantize& args) const override {
        refuse_everything();
        return ReferenceDevice::validate(args);
    }
    std::string validate(const KvDequantize& args) const override {
        refuse_everything();
        return ReferenceDevice::validate(args);
    }
    std::string validate(const Hadamard& args) const override {
        refuse_everything();
        return ReferenceDevice::validate(args);
    }
    std::unique_ptr<Event> launch(const Sdpa& given, bool want_event) override {
        if (name_ == "supports_too_much" && given.head_size() > 256)
            throw Error(WINNOW_ERROR_UNSUPPORTED, "head_size is above 256");
        if (name_ == "sdpa_does_nothing") return ReferenceDevice::launch(KvAppend{}, want_event);
        return launch_with(defect_.before_sdpa, defect_.after_sdpa, given, want_event);
    }
    std::unique_ptr<Event> launch(const KvAppend& given, bool want_event) override {
        return launch_with(defect_.before_append, defect_.after_append, given, want_event);
    }
    std::unique_ptr<Event> launch(const KvRequantize& given, bool want_event) override {
        return launch_with(defect_.before_requantize, defect_.after_requantize, given, want_event);
    }
    std::unique_ptr<Event> launch(const KvDequantize& given, bool want_event) override {
        return launch_with<KvDequantize>({}, defect_.after_dequantize, given, want_event);
    }
    std::unique_ptr<Event> launch(const Hadamard& given, bool want_event) override {
        return launch_with(defect_.before_hadamard, defect_.after_hadamard, given, want_event);
    }

    void launch(const SlotAppend& given) override { launch_slots(defect_.before_slot_append, {}, given); }
    void launch(const SlotAccumulate& given) override { launch_slots(defect_.before_slot_accumulate, {}, given); }
    void launch(const SlotScores& given) override { launch_slots(defect_.before_slot_scores, {}, given); }
    void launch(const SlotEvict& given) override { launch_slots(defect_.before_slot_evict, {}, given); }
    void launch(const SlotEdit& given) override { launch_slots(defect_.before_slot_edit, {}, given); }
    void launch(const SlotCompact& given) override {
        launch_slots(defect_.before_slot_compact, defect_.after_slot_compact, given);
    }
    void launch(const SlotCopy& given) override { launch_slots(defect_.before_slot_copy, {}, given); }
    void launch(const SlotZero& given) override { launch_slots(defect_.before_slot_zero, {}, given); }
    void launch(const PageSign& given) override { launch_slots(defect_.before_page_sign, {}, given); }
    void launch(const PagePick& given) override { launch_slots(defect_.before_page_pick, {}, given); }

private:
    template <typename Args>
    void launch_slots(const std::function<void(Args&)>& before,
                      const std::type_identity_t<std::function<void(const Args&)>>& after, const Args& given) {
        Args args = given;
        if (before) before(args);
        ReferenceDevice::launch(args);
        if (after) after(args);
    }
    template <typename Args>
    std::unique_ptr<Event> launch_with(const std::function<void(Args&)>& before,
                                       const std::function<void(const Args&)>& after, const Args& given,
                                       bool want_event) {
        refuse_everything();
        Args args = given;
        if (before) before(args);
        std::unique_ptr<Event> event = ReferenceDevice::launch(args, want_event);
        if (after) after(args);
        return event;
    }
    void refuse_everything() const {
        if (name_ == "everything_unsupported") throw Error(WINNOW_ERROR_UNSUPPORTED, "not today");
    }

    std::string name_;
    const Defect& defect_;
};

} // namespace

namespace backend {

const char* const name = "broken";
const bool is_opencl = false;

std::vector<winnow_device_info> enumerate() { return {reference::device_info()}; }

std::unique_ptr<Device> create(const DeviceRequest& request) {
    const char* wanted = std::getenv("WINNOW_DEFECT");
    const std::string defect = wanted ? wanted : "none";
    if (!defects().contains(defect)) {
        std::string all;
        for (const auto& entry : defects()) all += " " + entry.first;
        throw Error(WINNOW_ERROR_NOT_FOUND, "WINNOW_DEFECT is \"" + defect + "\", expected one of" + all);
    }
    return std::make_unique<BrokenDevice>(request, defect);
}

} // namespace backend
} // namespace winnow
