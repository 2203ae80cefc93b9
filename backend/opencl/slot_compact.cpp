// From winnow::SlotCompact to a launch of slot_compact.
#include "opencl/slot_compact.hpp"

#include "opencl/slot_store.hpp"
#include "opencl/variants.hpp"
#include "slot_compact_params.h"

namespace winnow::opencl {

void SlotCompactLauncher::launch(const SlotCompact& args) {
    const Variant& variant = choose_variant("slot_compact", runtime_.capabilities(), {}, 0, 0);
    Kernel& kernel = runtime_.kernel(variant.file, variant.entry_point, "");
    Operation operation(runtime_);
    const BoundStore store = bind_store(operation, args.store, Access::read_write);
    const Bound state = operation.bind(args.head_state, Access::read_write);
    slot_compact_params params{};
    params.store = store.params;
    params.state = view_of_heads(args.head_state, state);
    params.k_bytes = row_bytes(args.store.k.type, args.store.k.shape[3]);
    params.v_bytes = row_bytes(args.store.v.type, args.store.v.shape[3]);
    const auto heads = static_cast<size_t>(args.store.kv_heads());
    operation.launch(
        kernel, params, {store.k, store.v, store.tokens, store.importance, state.memory},
        Grid{.groups = {heads, 1, 1}, .work = heads * params.store.slots * (params.k_bytes + params.v_bytes) / 4});
    operation.complete(false);
}

} // namespace winnow::opencl
