/* The sum of a KV head's outputs. Needs before it: format_any.h, kv_rows.h, vector_parts.h. */

/* Adds the outputs of `heads` query heads, from `first_head`, and `queries` query tokens. to: [size]. */
static inline void add_outputs(__global float* to, const __global uchar* out, const tensor_view* view, uint type,
                               uint first_head, uint heads, uint queries, uint size) {
    for (uint i = 0; i < size; i += 16) {
        const uint count = min(size - i, 16u);
        float16 total = load_floats(to + i, count, 0.0f);
        for (uint head = first_head; head < first_head + heads; ++head)
            for (uint query = 0; query < queries; ++query) {
                const __global uchar* row = out + row_offset(view, 0, head, query);
                if (count == 16) {
                    total += load16_any(row, type, i);
                    continue;
                }
                float lanes[16] = {0.0f};
                for (uint lane = 0; lane < count; ++lane) lanes[lane] = load_any(row, type, i + lane);
                total += vload16(0, lanes);
            }
        store_floats(to + i, count, total);
    }
}
