// Rotary position embeddings, as GroupQueryAttention has them: from tables of cosines and sines by position.
#pragma once

#include <cstdint>
#include <vector>

namespace winnow::ort {

// Rows of a tensor [batch, tokens, heads, size], elements of a row one after the other.
struct Rows {
    const void* data = nullptr;
    bool is_half = false; // F16, else F32
    int64_t batch = 0, tokens = 0, heads = 0, size = 0;
    int64_t token_stride = 0; // elements from a token's first row to the next token's; a batch entry follows another
};

// Tables [positions, half of the elements that are rotated].
struct RotationTables {
    const void *cos = nullptr, *sin = nullptr;
    bool is_half = false;
    int64_t positions = 0, half = 0;
};

void to_floats(const void* data, bool is_half, int64_t count, float* out);

// Writes the rotated rows as F32, [batch, tokens, heads, size] without gaps. position: of each token, by batch entry;
// each lies in the tables. is_interleaved: neighbours make a pair, else elements of the two halves do.
void rotate(const Rows& rows, const RotationTables& tables, const std::vector<int64_t>& positions, bool is_interleaved,
            std::vector<float>& out);

} // namespace winnow::ort
