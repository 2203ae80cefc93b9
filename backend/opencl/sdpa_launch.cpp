// From winnow::Sdpa to a launch of sdpa_vector or sdpa_prefill.
#include "opencl/sdpa_launch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "opencl/runtime_state.hpp"
#include "opencl/view.hpp"

namespace winnow::opencl {
namespace {

constexpr int64_t positions_end = 1 << 30; // of slots: sdpa_work_tile.h

// Whether every byte between the view's first and last belongs to it.
Access access_for_output(const Tensor& tensor) {
    uint64_t bytes = type_size(tensor.type);
    for (const int64_t size : tensor.shape) bytes *= static_cast<uint64_t>(size);
    return bytes == tensor.extent() ? Access::write : Access::read_write;
}

// Whether the mask's values are in the host's memory and final, and hide what they say: no slope of 0 makes NaN of
// them.
bool may_read_mask(const RuntimeState& state, const Sdpa& args) {
    return args.mask && args.mask.buffer == nullptr && !args.mask_slopes && state.is_host_memory() &&
           !state.is_pending && !state.workers.is_hosts;
}

// The view of a tensor that KV heads or batch entries may share.
tensor_view shared_view(const Tensor& tensor, const Bound& bound) {
    tensor_view result = view(tensor, bound);
    for (int axis = 0; axis < 2; ++axis)
        if (tensor.shape[axis] == 1) result.stride[axis] = 0;
    return result;
}

// The fields of the segments, and their memory.
void bind_segments(Operation& operation, const Sdpa& args, const SdpaKernel& kernel, const SdpaFused& fused,
                   sdpa_params& params, std::vector<const Memory*>& memory) {
    int64_t first_key = 0, first_score = 0, next_key = 0, next_score = 0;
    sdpa_segment* field = params.segment;
    for (const Segment& segment : args.segments) {
        const Access access = fused.appends_token && field == params.segment ? Access::read_write : Access::read;
        const Bound k = operation.bind(segment.k, access);
        const Bound v = operation.bind(segment.v, access);
        memory.insert(memory.end(), {k.memory, v.memory});
        field->k = view(segment.k, k);
        field->v = view(segment.v, v);
        if (kernel.slots) {
            const Bound tokens = operation.bind(segment.tokens, access);
            const Bound k_mean = operation.bind(segment.k_mean, Access::read);
            const Bound v_mean = operation.bind(segment.v_mean, Access::read);
            memory.insert(memory.end(), {tokens.memory, k_mean.memory, v_mean.memory});
            field->positions = shared_view(segment.tokens, tokens);
            if (segment.k_mean) field->k_mean = view(segment.k_mean, k_mean);
            if (segment.v_mean) field->v_mean = view(segment.v_mean, v_mean);
            field->has_k_mean = static_cast<bool>(segment.k_mean);
            field->has_v_mean = static_cast<bool>(segment.v_mean);
            if (!segment.shares_slots) {
                first_key = next_key;
                first_score = next_score;
                next_key = next_first_key(first_key, segment);
                next_score += segment.slots();
            }
            field->heads = segment.heads;
            field->slots = static_cast<uint32_t>(segment.slots());
            field->first_key = static_cast<uint32_t>(first_key);
            field->first_score = static_cast<uint32_t>(first_score);
        }
        ++field;
    }
}

// Whether a second launch has something to do for each key, which as many groups as there are splits do sooner than
// one.
bool has_keys_to_finish(const SdpaKernel& kernel, const Sdpa& args, const sdpa_params& params) {
    if (kernel.variant->group_size == 1 || args.carry) return false;
    // Above the mean of those that a row sees: each group would have to count them.
    const bool accumulates = params.step.counts_query != 0;
    if (accumulates && kernel.statistic == Statistic::above_mean) return false;
    return accumulates || args.scores_mode == Scores::probs;
}

// The memory for them that a fused attention has is for devices on which it takes several launches.
bool leaves_scores(const SdpaKernel& kernel, const Sdpa& args) {
    return args.scores_mode != Scores::none && !kernel.is_fused;
}
bool leaves_stats(const SdpaKernel& kernel, const Sdpa& args) { return args.row_stats && !kernel.is_fused; }

sdpa_params make_params(const Sdpa& args, const SdpaKernel& kernel, const SdpaDivision& division) {
    sdpa_params params{};
    params.q_offset = args.q_offset;
    params.window_left = args.window_left;
    params.window_right = args.window_right;
    params.batch = static_cast<uint32_t>(args.batch());
    params.kv_heads = static_cast<uint32_t>(args.kv_heads());
    params.group = static_cast<uint32_t>(args.group());
    params.q_len = static_cast<uint32_t>(args.q_len());
    params.kv_len = static_cast<uint32_t>(args.kv_len());
    params.kv_share = static_cast<uint32_t>(args.kv_share());
    params.key_begin = division.key_begin;
    params.key_end = division.key_end;
    params.row_blocks = division.row_blocks;
    params.splits = division.splits;
    params.split_keys = division.split_keys;
    params.partial_floats = (kernel.rows * ((kernel.v_head_size + 15) / 16 * 16 + 3) + 3) / 4 * 4;
    params.scale = args.scale;
    params.softcap = args.softcap;
    params.v_threshold = args.v_threshold;
    params.q_type = static_cast<uint32_t>(args.q.type);
    params.out_type = static_cast<uint32_t>(args.out.type);
    params.mask_type = static_cast<uint32_t>(args.mask.type);
    params.kv_lengths_type = static_cast<uint32_t>(args.kv_lengths.type);
    params.q_offsets_type = static_cast<uint32_t>(args.q_offsets.type);
    params.has_slopes = static_cast<bool>(args.mask_slopes);
    params.has_alibi = static_cast<bool>(args.alibi_slopes);
    params.has_sinks = static_cast<bool>(args.head_sink);
    params.has_stats = leaves_stats(kernel, args);
    params.has_skipped = static_cast<bool>(args.v_rows_skipped);
    params.is_causal = args.is_causal;
    params.scores_mode = static_cast<uint32_t>(leaves_scores(kernel, args) ? args.scores_mode : Scores::none);
    return params;
}

uint64_t bytes_of(const SdpaKernel& kernel, const Sdpa& args) {
    uint64_t bytes = leaves_scores(kernel, args) ? args.scores_out.stored_bytes() : 0;
    for (const Segment& segment : args.segments)
        bytes += segment.k.stored_bytes() + segment.v.stored_bytes() +
                 (segment.shares_slots ? 0 : segment.tokens.stored_bytes());
    return bytes;
}

} // namespace

void check_sdpa(const Sdpa& args) {
    const auto refuse = [](const std::string& reason) { throw Error(WINNOW_ERROR_UNSUPPORTED, reason); };
    if (args.segments.size() > SDPA_MOST_SEGMENTS)
        refuse("attention over more than " + std::to_string(SDPA_MOST_SEGMENTS) + " segments");
    if (args.segments.size() > 1 && args.scores_mode != Scores::none && args.scores_mode != Scores::biased)
        refuse("attention over segments gives biased scores only");
    for (const Segment& segment : args.segments) {
        if (segment.slots() == 0) refuse("attention over segments without a slot");
        for (const auto& [tensor, name] : {std::pair(&segment.k, "k"), std::pair(&segment.v, "v")}) {
            if (!is_storage_format(tensor->type)) {
                refuse(std::string(name) + ": no kernel reads the format " + type_name(tensor->type));
            }
        }
    }
    constexpr int64_t largest_head = 576;
    if (args.head_size() > largest_head || args.v_head_size() > largest_head) {
        refuse("head sizes up to 576 are supported, given are " + std::to_string(args.head_size()) + " for k and " +
               std::to_string(args.v_head_size()) + " for v");
    }
    constexpr int64_t most = std::numeric_limits<int32_t>::max() / 2;
    if (args.kv_len() > most || args.q_len() > most / args.group()) {
        refuse("more than " + std::to_string(most) + " keys, or rows of one KV head");
    }
    if (args.batch() > most / args.kv_heads() ||
        args.batch() * args.kv_heads() > most / (args.group() * args.q_len())) {
        refuse("more than " + std::to_string(most) + " rows");
    }
}

namespace {

// Where the memory arguments of every attention kernel are: kernels/sdpa_memory.h.
enum Argument : size_t {
    q_at,
    out_at,
    mask_at,
    slopes_at,
    alibi_at,
    sinks_at,
    scores_at,
    stats_at,
    skipped_at,
    carried_at
};

// One attention on its way to a launch.
struct Prepared {
    SdpaDivision division;
    sdpa_params params{};
    std::vector<const Memory*> memory;      // arguments after the parameters
    std::vector<const Memory*> accumulated; // what the accumulate alone needs

    uint64_t partial_floats() const {
        return division.splits > 1 ? division.work_tiles * division.splits * params.partial_floats : 0;
    }
};

Prepared prepare(Runtime& runtime, const SdpaKernel& kernel, const Sdpa& args, const VariantOptions& options) {
    const int64_t seen_end =
        may_read_mask(runtime.state(), args) ? end_of_seen(args.mask, args.kv_len()) : args.kv_len();
    Prepared prepared;
    prepared.division =
        divide(args, kernel, runtime.capabilities().compute_units, options, runtime.state().tuning, seen_end);
    prepared.params = make_params(args, kernel, prepared.division);
    return prepared;
}

size_t params_size(const SdpaKernel& kernel) {
    return offsetof(sdpa_params, segment) + kernel.segments * sizeof(sdpa_segment);
}

uint64_t scratch_bytes(uint64_t partial_floats) { return SDPA_COUNTER_BYTES + partial_floats * sizeof(float); }

// Binds its memory. scratch: of its partial results, where it is split.
void bind(Operation& operation, const SdpaKernel& kernel, const Sdpa& args, const SdpaFused& fused,
          const Memory* scratch, Prepared& prepared) {
    sdpa_params& params = prepared.params;
    std::vector<const Memory*>& memory = prepared.memory;
    const Bound q = operation.bind(args.q, Access::read);
    const Bound mask = operation.bind(args.mask, Access::read);
    const Bound slopes = operation.bind(args.mask_slopes, Access::read);
    const Bound alibi = operation.bind(args.alibi_slopes, Access::read);
    const Bound sinks = operation.bind(args.head_sink, Access::read);
    Bound out, scores, stats, skipped;
    if (!args.carry.leaves) out = operation.bind(args.out, access_for_output(args.out));
    const bool has_scores = leaves_scores(kernel, args), has_stats = leaves_stats(kernel, args);
    if (has_scores) scores = operation.bind(args.scores_out, access_for_output(args.scores_out));
    if (has_stats) stats = operation.bind(args.row_stats, access_for_output(args.row_stats));
    Bound carried;
    if (args.carry) carried = operation.bind(args.carry.rows, Access::read_write);
    if (args.v_rows_skipped) skipped = operation.bind(args.v_rows_skipped, access_for_output(args.v_rows_skipped));

    params.q = view(args.q, q);
    params.out = view(args.out, out);
    params.mask_batch = params.mask_heads = 1;
    if (args.mask) {
        params.mask = view(args.mask, mask);
        params.mask_batch = static_cast<uint32_t>(args.mask.shape[0]);
        params.mask_heads = static_cast<uint32_t>(args.mask.shape[1]);
        if (args.mask.shape[2] == 1) params.mask.stride[2] = 0;
        params.mask_key_broadcast = args.mask.shape[3] == 1;
        params.mask_columns = static_cast<uint32_t>(std::min<int64_t>(args.mask.shape[3], positions_end));
    }
    params.slopes_offset = slopes.offset;
    params.alibi_offset = alibi.offset;
    params.sinks_offset = sinks.offset;
    if (has_scores) params.scores = view(args.scores_out, scores);
    if (has_stats) params.stats = view(args.row_stats, stats);
    if (args.v_rows_skipped) params.skipped = view(args.v_rows_skipped, skipped);

    if (args.carry) params.carried = view(args.carry.rows, carried);
    params.joins_carried = args.carry.joins;
    params.leaves_carried = args.carry.leaves;

    memory.reserve(SDPA_ADDRESSES(SDPA_MOST_SEGMENTS));
    memory.assign({q.memory, out.memory, mask.memory, slopes.memory, alibi.memory, sinks.memory, scores.memory,
                   stats.memory, skipped.memory, carried.memory, prepared.division.splits > 1 ? scratch : nullptr});
    bind_segments(operation, args, kernel, fused, params, memory);
    if (kernel.lengths) {
        const Bound lengths = operation.bind(args.kv_lengths, Access::read);
        const Bound offsets = operation.bind(args.q_offsets, Access::read);
        params.kv_lengths_offset = lengths.offset;
        params.q_offsets_offset = offsets.offset;
        memory.insert(memory.end(), {lengths.memory, offsets.memory});
    }
    if (kernel.append) bind_deferred(operation, *fused.deferred, params, memory);
    if (kernel.is_fused) prepared.accumulated = bind_fused(operation, kernel, fused, prepared.division, params, memory);
    params.combine_groups = has_keys_to_finish(kernel, args, params) ? prepared.division.splits : 1;
}

Grid grid_of(const SdpaKernel& kernel, uint64_t groups, uint64_t work) {
    return {
        .groups = {static_cast<size_t>(groups), 1, 1}, .group_size = {kernel.variant->group_size, 1, 1}, .work = work};
}

// kernels/sdpa_entries.h
size_t entry_size(const SdpaKernel& kernel) {
    return 2 * sizeof(uint32_t) + SDPA_ADDRESSES(kernel.segments) * sizeof(uint64_t) + params_size(kernel);
}
static_assert(2 * sizeof(uint32_t) + SDPA_ADDRESSES(SDPA_MOST_SEGMENTS) * sizeof(uint64_t) + sizeof(sdpa_params) +
                  sizeof(cl_uint) <=
              most_argument_bytes);

// Returns the entry's end.
std::byte* write_entry(const SdpaKernel& kernel, const Prepared& one, std::byte* entry) {
    if (one.memory.size() != SDPA_ADDRESSES(kernel.segments))
        throw Error(WINNOW_ERROR_INTERNAL, "an entry of a launch has " + std::to_string(one.memory.size()) +
                                               " addresses, expected " +
                                               std::to_string(SDPA_ADDRESSES(kernel.segments)));
    const auto add = [&entry](const void* data, size_t size) {
        std::memcpy(entry, data, size);
        entry += size;
    };
    const std::array<uint32_t, 2> groups{static_cast<uint32_t>(one.division.work_tiles * one.division.splits), 0};
    add(groups.data(), sizeof groups);
    for (const Memory* memory : one.memory) {
        const void* address = memory != nullptr ? memory->host() : nullptr;
        add(&address, sizeof address);
    }
    add(&one.params, params_size(kernel));
    return entry;
}

} // namespace

std::unique_ptr<Event> launch_sdpa(Runtime& runtime, SdpaPrograms& programs, SdpaKernel kernel, const Sdpa& args,
                                   const VariantOptions& options, bool want_event, const SdpaFused& fused) {
    // A driver may copy each argument for each launch: an entry is one.
    kernel.has_entries = kernel.is_fused && can_launch_together(runtime, kernel, {&fused, 1});
    Prepared prepared = prepare(runtime, kernel, args, options);
    const SdpaPrograms::Pair& pair = programs.find(runtime, kernel);
    Operation operation(runtime);
    const SdpaDivision& division = prepared.division;
    const Memory* scratch = division.splits > 1 ? runtime.scratch(scratch_bytes(prepared.partial_floats())) : nullptr;
    bind(operation, kernel, args, fused, scratch, prepared);
    Grid grid = grid_of(kernel, division.work_tiles * division.splits, division.work);
    if (runtime.state().times.are_wanted()) grid.bytes = bytes_of(kernel, args);
    const std::vector<const Memory*>& memory = prepared.memory;
    if (kernel.has_entries) {
        std::array<std::byte, most_argument_bytes> entry;
        write_entry(kernel, prepared, entry.data());
        operation.launch(*pair.attend, entry.data(), entry_size(kernel), {}, grid);
    } else {
        operation.launch(*pair.attend, &prepared.params, params_size(kernel), memory, grid);
    }
    if (pair.combine != nullptr && division.splits > 1) {
        grid = grid_of(kernel, division.work_tiles * prepared.params.combine_groups, 0);
        grid.bytes = prepared.partial_floats() * sizeof(float);
        std::vector<const Memory*> combined{memory[sinks_at], memory[out_at],     memory[scores_at],
                                            memory[stats_at], memory[skipped_at], memory[carried_at],
                                            scratch};
        combined.insert(combined.end(), prepared.accumulated.begin(), prepared.accumulated.end());
        operation.launch(*pair.combine, &prepared.params, params_size(kernel), combined, grid);
    }
    return operation.complete(want_event);
}

bool can_launch_together(const Runtime& runtime, const SdpaKernel& kernel, std::span<const SdpaFused> all) {
    if (!runtime.capabilities().has_hosts_addresses || !kernel.single_launch || kernel.variant->group_size != 1)
        return false;
    const auto has_address = [](const Tensor* tensor) {
        return tensor->buffer == nullptr || static_cast<const ClBuffer*>(tensor->buffer)->memory()->host() != nullptr;
    };
    const auto have_addresses = [&](std::initializer_list<const Tensor*> tensors) {
        return std::all_of(tensors.begin(), tensors.end(), has_address);
    };
    uint64_t tiles = 0; // of a row block each
    for (const SdpaFused& each : all) {
        const Sdpa& args = each.args->attention;
        tiles += static_cast<uint64_t>(args.kv_heads());
        if (!have_addresses({&args.q, &args.out, &args.mask, &args.mask_slopes, &args.alibi_slopes, &args.head_sink}))
            return false;
        if (const auto& append = each.args->append; append && !have_addresses({&append->k, &append->v})) return false;
    }
    return tiles <= SDPA_MAX_TILES_SPLIT;
}

void launch_together(Runtime& runtime, SdpaPrograms& programs, SdpaKernel kernel, std::span<SdpaFused> all,
                     const VariantOptions& options, const std::function<void(SdpaFused&)>& begin) {
    std::vector<Prepared> prepared;
    uint64_t tiles = 0, floats = 0, groups = 0, work = 0, bytes = 0;
    for (const SdpaFused& each : all) {
        Prepared& one = prepared.emplace_back(prepare(runtime, kernel, each.args->attention, options));
        one.params.first_counter = static_cast<uint32_t>(tiles);
        one.params.first_partial = floats;
        if (one.division.splits > 1) tiles += one.division.work_tiles;
        floats += one.partial_floats();
    }
    kernel.has_entries = kernel.is_table = true;
    Kernel& program = *programs.find(runtime, kernel).attend;
    const Memory* scratch = tiles > 0 ? runtime.scratch(scratch_bytes(floats)) : nullptr;
    for (SdpaFused& each : all) begin(each);
    Operation operation(runtime);

    std::vector<std::byte> table(all.size() * entry_size(kernel));
    std::byte* entry = table.data();
    for (size_t i = 0; i < all.size(); ++i) {
        Prepared& one = prepared[i];
        bind(operation, kernel, all[i].args->attention, all[i], scratch, one);
        entry = write_entry(kernel, one, entry);
        groups += one.division.work_tiles * one.division.splits;
        work += one.division.work;
        if (runtime.state().times.are_wanted()) bytes += bytes_of(kernel, all[i].args->attention);
    }
    Grid grid = grid_of(kernel, groups, work);
    grid.bytes = bytes;
    operation.launch(program, table.data(), table.size(), {}, grid, true);
    operation.complete(false);
}

} // namespace winnow::opencl
