// A Winnow cache in the place of llama.cpp's cache tensors of one shape.
//
// A SET_ROWS waits for the attention over the same tensors, and both go down as one step. The tensors' streams are the
// cache's sequences.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attention_profile.hpp"
#include "cell_tracker.hpp"
#include "deferred_rows.hpp"
#include "ggml.h"
#include "kv_figures.hpp"
#include "plugin.hpp"
#include "report.hpp"
#include "translate.hpp"

namespace winnow::ggml {

// The tensors of a layer. Without v the values are a part of the keys (MLA).
struct LayerRoots {
    const ggml_tensor* k = nullptr;
    const ggml_tensor* v = nullptr;
};

// Functions throw std::runtime_error with the reason.
class VirtualCache {
public:
    // Layers of one shape, in the order of the model. The first attention that is seen tells its heads.
    VirtualCache(Context& context, std::string config, const std::vector<LayerRoots>& layers);
    ~VirtualCache();
    VirtualCache(const VirtualCache&) = delete;
    VirtualCache& operator=(const VirtualCache&) = delete;

    bool has(const ggml_tensor* root) const { return layer_of_.count(root) != 0; }

    // Whether the cache could carry out an attention, before it is computed; throws where not. The first tells the
    // heads of all.
    void judge(const ggml_tensor* node, const SdpaNode& sdpa);

    void set_rows(const ggml_tensor* root, const ggml_tensor* node, Counters& counters);
    void attend(const ggml_tensor* node, const SdpaNode& sdpa, Counters& counters);
    // What waits is appended, or, without its other half, copied: the graph's memory changes after it.
    void end_graph(Counters& counters);
    // What was enqueued is done.
    void release() { staging_.clear(); }
    // After a failure.
    void forget_waiting();

    // Bytes of a root as llama.cpp believes them to lie there: the row of a head that has no token in a cell is NaN.
    void read(const ggml_tensor* root, char* data, size_t offset, size_t size);
    // Rows of a state, which become tokens before the cache is used again. Where a head's row begins with NaN, it does
    // not get the token.
    void write(const ggml_tensor* root, const char* data, size_t offset, size_t size);
    // Rows that llama.cpp has evicted: tokens and states in their cells are gone.
    void wipe(const ggml_tensor* root, size_t offset, size_t size);
    // A ROPE in place over the keys, by which a context shifts.
    void shift(const ggml_tensor* node);

    void clear();
    void copy_stream(int64_t from, int64_t to);

    // Of all that was, with what it resident when it was fullest; nothing where no attention came.
    std::optional<CacheFigures> figures();

private:
    struct Layer {
        LayerRoots roots;
        std::optional<WaitingRows> k, v;
        std::vector<uint64_t> opened; // for each stream the newest batch that this layer has
        bool waits() const { return k || v; }
        bool is_whole() const { return k && (v || !roots.v); }
    };
    struct Stream {
        explicit Stream(CellTracker made) : tracker(std::move(made)) {}
        CellTracker tracker;
        uint64_t opened = 0; // batches
        bool sees_ahead = false;
        const void* mask = nullptr;  // the newest batch's,
        std::vector<char> wide_mask; // with a column for each cell
    };
    // An attention over one slice of the node's tensors.
    struct HeadSlice {
        int64_t index, stream, tokens;
    };

    // Rows of a root that were written, in this order; and a state, of each root.
    struct Half {
        std::vector<int32_t> cells;
        std::vector<char> rows;
    };
    struct State {
        int64_t stream;
        std::map<const ggml_tensor*, Half> halves;
    };

    void take_shape(const ggml_tensor* node, const winnow_sdpa_desc& sdpa);
    void create();
    bool begins_state(const ggml_tensor* root, int64_t stream, int32_t cell) const;
    static void drop_cells(State& state, const CellRange& range);
    void restore_pending();
    void shift_restored(const ggml_tensor* node);
    void restore(const State& state);
    winnow_cache_rows_desc exact_rows_desc(const Layer& layer, int64_t stream, const winnow_tensor& tokens) const;
    void apply(const CellTracker::Opening& opening, int64_t stream);
    std::vector<char> read_rows(const ggml_tensor* root, int64_t stream, int64_t first, int64_t count);
    template <typename Action>
    void with_sticky_error(Action&& action);
    void rotate(const Layer& layer, const ggml_tensor* node, int64_t stream, const std::vector<int32_t>& cells,
                const std::vector<int32_t>& turns, int64_t skip);
    void check(const Layer& layer, const ggml_tensor* node, const winnow_sdpa_desc& sdpa) const;
    bool is_aligned(const Layer& layer, int64_t first_stream, int64_t slices, int64_t tokens) const;
    void append_all(Layer& layer, Counters& counters);
    void attend_slice(Layer& layer, const ggml_tensor* node, const winnow_sdpa_desc& sdpa, const HeadSlice& slice);
    bool open(Layer& layer, int64_t number);
    void prepare(int64_t number, std::span<const int32_t> cells, const ggml_tensor* mask, int64_t slice);
    void widen_mask(std::vector<char>& wide, const ggml_tensor* mask, int64_t slice, int64_t tokens) const;
    void finish_rows(Layer& layer, Counters& counters);
    int64_t number_of(const Layer& layer) const { return &layer - layers_.data(); }
    void expect(int32_t status) const;
    CacheFigures present(CacheFigures figures);
    void note_reuse(int64_t number, std::span<const int32_t> cells, const MaskSlice& mask);
    std::vector<std::string> layer_names() const;

    // Rows of a layer as a step takes them, and what it points to.
    struct Rows {
        winnow_tensor k, v, cells;
    };
    Rows rows_of(const Layer& layer, int64_t first, int64_t count);

    Context& context_;
    std::string config_;
    std::vector<Layer> layers_;
    std::map<const ggml_tensor*, size_t> layer_of_;
    winnow_cache* cache_ = nullptr;
    winnow_cache_desc shape_{};
    int64_t v_skip_ = 0; // where a head's values begin, in elements; with MLA in the keys
    std::vector<Stream> streams_;
    std::vector<std::vector<char>> staging_; // what running steps read
    std::vector<State> states_;              // that are not settled
    const ggml_tensor* last_written_ = nullptr;
    std::string failed_; // why what is stored is not what llama.cpp believes, until it is cleared
    CacheFigures figures_;
    std::optional<AttentionProfile> profile_; // where the report is to have it
};

} // namespace winnow::ggml
