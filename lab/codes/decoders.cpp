// The decoders for x86. Each gives a sum of float products of one row, which the others' rows do not enter.
#include "decoders.hpp"

#include <cstring>
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,fma,f16c")))
#define AVX512 __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")))
#define AVX2_PART AVX2 __attribute__((always_inline)) inline
#define AVX512_PART AVX512 __attribute__((always_inline)) inline

namespace winnow::lab {
namespace {

inline int load32(const uint8_t* at) {
    int word = 0;
    std::memcpy(&word, at, sizeof word);
    return word;
}

AVX2_PART float row_scale(const uint8_t* at) {
    uint16_t half = 0;
    std::memcpy(&half, at, sizeof half);
    return _cvtsh_ss(half);
}

// ---- AVX2: a chunk of 8 elements is a vector ----

AVX2_PART float sum8(__m256 x) {
    __m128 sum = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
    return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
}

// Codes of b bits of a chunk in the low bits of 8 lanes, with further codes above them.
template <int B>
AVX2_PART __m256i codes8(const uint8_t* at) {
    if (B == 5) { // 40 bits: the later four codes from a word that begins at bit 16
        const __m256i words = _mm256_set_m128i(_mm_set1_epi32(load32(at + 2)), _mm_set1_epi32(load32(at)));
        return _mm256_srlv_epi32(words, _mm256_setr_epi32(0, 5, 10, 15, 4, 9, 14, 19));
    }
    const __m256i steps = _mm256_setr_epi32(0, B, 2 * B, 3 * B, 4 * B, 5 * B, 6 * B, 7 * B);
    return _mm256_srlv_epi32(_mm256_set1_epi32(load32(at)), steps);
}

// The levels of b bits in registers: 4 or 8 of them in each.
template <int B>
struct Levels8 {
    __m256 parts[B == 5 ? 4 : B == 4 ? 2 : 1];
};

template <int B>
AVX2_PART Levels8<B> load_levels8(const Plan& plan) {
    const float* from = plan.levels.data() + (1 << B) - 2;
    Levels8<B> levels;
    if (B == 1) {
        levels.parts[0] = _mm256_setr_ps(from[0], from[1], from[0], from[1], from[0], from[1], from[0], from[1]);
    } else if (B == 2) {
        levels.parts[0] = _mm256_broadcast_ps(reinterpret_cast<const __m128*>(from));
    } else {
        for (int i = 0; i < (1 << B) / 8; ++i) levels.parts[i] = _mm256_loadu_ps(from + 8 * i);
    }
    return levels;
}

template <int B>
AVX2_PART __m256 values8(const uint8_t* at, const Levels8<B>& levels) {
    const __m256i codes = codes8<B>(at);
    if constexpr (B <= 2) return _mm256_permutevar_ps(levels.parts[0], codes);
    if constexpr (B == 3) return _mm256_permutevar8x32_ps(levels.parts[0], codes);
    if constexpr (B >= 4) {
        const __m256 bit3 = _mm256_castsi256_ps(_mm256_slli_epi32(codes, 28));
        const __m256 lower = _mm256_blendv_ps(_mm256_permutevar8x32_ps(levels.parts[0], codes),
                                              _mm256_permutevar8x32_ps(levels.parts[1], codes), bit3);
        if constexpr (B == 4) return lower;
        if constexpr (B == 5) {
            const __m256 upper = _mm256_blendv_ps(_mm256_permutevar8x32_ps(levels.parts[2], codes),
                                                  _mm256_permutevar8x32_ps(levels.parts[3], codes), bit3);
            return _mm256_blendv_ps(lower, upper, _mm256_castsi256_ps(_mm256_slli_epi32(codes, 27)));
        }
    }
}

template <int N>
AVX2 void halves_avx2(const Plan&, const uint8_t* row, size_t count, const float* q, float* out) {
    for (size_t r = 0; r < count; ++r, row += N * 2 + 2) {
        __m256 sums[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
        for (int i = 0; i < N; i += 8) {
            const __m256 values = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row + 2 * i)));
            sums[i / 8 % 2] = _mm256_fmadd_ps(values, _mm256_loadu_ps(q + i), sums[i / 8 % 2]);
        }
        out[r] = row_scale(row + N * 2) * sum8(_mm256_add_ps(sums[0], sums[1]));
    }
}

template <int N, int B>
AVX2 void turbo_avx2(const Plan& plan, const uint8_t* row, size_t count, const float* q, float* out) {
    const Levels8<B> levels = load_levels8<B>(plan);
    for (size_t r = 0; r < count; ++r, row += N / 8 * B + 2) {
        __m256 sums[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
        for (int c = 0; c < N / 8; ++c) {
            sums[c % 2] = _mm256_fmadd_ps(values8<B>(row + c * B, levels), _mm256_loadu_ps(q + 8 * c), sums[c % 2]);
        }
        out[r] = row_scale(row + N / 8 * B) * sum8(_mm256_add_ps(sums[0], sums[1]));
    }
}

// All chunks of b bits of a row; their number is known only when the program runs.
template <int B>
AVX2_PART __m256 add_chunks(const Levels8<B>& levels, int chunks, const uint8_t*& at, const float*& q, __m256 sum) {
    for (int c = 0; c < chunks; ++c, at += B, q += 8) {
        sum = _mm256_fmadd_ps(values8<B>(at, levels), _mm256_loadu_ps(q), sum);
    }
    return sum;
}

AVX2 void spectral_avx2(const Plan& plan, const uint8_t* row, size_t count, const float* q, float* out) {
    const Levels8<1> levels1 = load_levels8<1>(plan);
    const Levels8<2> levels2 = load_levels8<2>(plan);
    const Levels8<3> levels3 = load_levels8<3>(plan);
    const Levels8<4> levels4 = load_levels8<4>(plan);
    const Levels8<5> levels5 = load_levels8<5>(plan);
    const std::array<int, 6> chunks = plan.chunks_of;
    const size_t stride = plan.format.row_bytes();
    for (size_t r = 0; r < count; ++r, row += stride) {
        const uint8_t* at = row;
        const float* factor = q;
        __m256 sum = add_chunks<5>(levels5, chunks[5], at, factor, _mm256_setzero_ps());
        __m256 other = add_chunks<4>(levels4, chunks[4], at, factor, _mm256_setzero_ps());
        sum = add_chunks<3>(levels3, chunks[3], at, factor, sum);
        other = add_chunks<2>(levels2, chunks[2], at, factor, other);
        sum = add_chunks<1>(levels1, chunks[1], at, factor, sum);
        out[r] = row_scale(at) * sum8(_mm256_add_ps(sum, other));
    }
}

// The word at whose bottom chunk c of a row of a trellis begins, with zeros above the row's codes.
template <int N, int B>
AVX2_PART int chunk_word(const uint8_t* row, int c) {
    if (c + 1 < N / 8) return load32(row + c * B);
    return static_cast<int>(static_cast<unsigned>(load32(row + N / 8 * B - 4)) >> (32 - 8 * B));
}

template <int N, int B>
AVX2 void trellis_gather_avx2(const Plan& plan, const uint8_t* row, size_t count, const float* q, float* out) {
    const __m256i steps = _mm256_setr_epi32(0, B, 2 * B, 3 * B, 4 * B, 5 * B, 6 * B, 7 * B);
    for (size_t r = 0; r < count; ++r, row += N / 8 * B + 2) {
        __m256 sums[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
        for (int c = 0; c < N / 8; ++c) {
            const __m256i words = _mm256_srlv_epi32(_mm256_set1_epi32(chunk_word<N, B>(row, c)), steps);
            const __m256i states = _mm256_and_si256(words, _mm256_set1_epi32(255));
            const __m256 values = _mm256_i32gather_ps(plan.table.data(), states, 4);
            sums[c % 2] = _mm256_fmadd_ps(values, _mm256_loadu_ps(q + 8 * c), sums[c % 2]);
        }
        out[r] = row_scale(row + N / 8 * B) * sum8(_mm256_add_ps(sums[0], sums[1]));
    }
}

// Two chunks at once: 8 windows of 8 + b bits, and two values for each.
template <int N, int B>
AVX2 void trellis_pairs_avx2(const Plan& plan, const uint8_t* row, size_t count, const float* q, float* out) {
    const __m256i steps = _mm256_setr_epi32(0, 2 * B, 4 * B, 6 * B, 0, 2 * B, 4 * B, 6 * B);
    const auto* pairs = reinterpret_cast<const int*>(plan.pairs.data());
    for (size_t r = 0; r < count; ++r, row += N / 8 * B + 2) {
        __m256 sums[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
        for (int c = 0; c < N / 8; c += 2) {
            const __m256i words = _mm256_set_m128i(_mm_set1_epi32(chunk_word<N, B>(row, c + 1)),
                                                   _mm_set1_epi32(chunk_word<N, B>(row, c)));
            const __m256i windows =
                _mm256_and_si256(_mm256_srlv_epi32(words, steps), _mm256_set1_epi32((256 << B) - 1));
            const __m256i found = _mm256_i32gather_epi32(pairs, windows, 4);
            const __m256 first = _mm256_cvtph_ps(_mm256_castsi256_si128(found));
            const __m256 second = _mm256_cvtph_ps(_mm256_extracti128_si256(found, 1));
            sums[0] = _mm256_fmadd_ps(first, _mm256_loadu_ps(q + 8 * c), sums[0]);
            sums[1] = _mm256_fmadd_ps(second, _mm256_loadu_ps(q + 8 * c + 8), sums[1]);
        }
        out[r] = row_scale(row + N / 8 * B) * sum8(_mm256_add_ps(sums[0], sums[1]));
    }
}

// ---- AVX-512: 64 codes of 8 bits are a vector ----

// The 8 bits that begin at each element's code.
AVX512_PART __m512i windows64(const Plan& plan, size_t group, __m512i row) {
    const __m512i bytes = _mm512_load_si512(plan.bytes_of[group].data());
    const __m512i chunks = _mm512_maskz_permutexvar_epi8(plan.has_byte[group], bytes, row);
    return _mm512_multishift_epi64_epi8(_mm512_load_si512(plan.shifts[group].data()), chunks);
}

// Indices of plan.levels.
AVX512_PART __m512i level_indices(const Plan& plan, size_t group, __m512i row) {
    const __m512i codes = _mm512_and_si512(windows64(plan, group, row), _mm512_load_si512(plan.masks[group].data()));
    return _mm512_add_epi8(codes, _mm512_load_si512(plan.bases[group].data()));
}

template <int Part>
AVX512_PART __m512i part16(__m512i bytes) {
    return _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(bytes, Part));
}

// Adds 64 products to 16 sums. One chain is enough: the processor works on several rows at a time.
AVX512_PART __m512 add_values(__m512 v0, __m512 v1, __m512 v2, __m512 v3, const float* q, __m512 sums) {
    sums = _mm512_fmadd_ps(v0, _mm512_loadu_ps(q), sums);
    sums = _mm512_fmadd_ps(v1, _mm512_loadu_ps(q + 16), sums);
    sums = _mm512_fmadd_ps(v2, _mm512_loadu_ps(q + 32), sums);
    return _mm512_fmadd_ps(v3, _mm512_loadu_ps(q + 48), sums);
}

// Adds 64 values that two vectors hold as low and high bytes of halves (Order::byte_planes).
AVX512_PART __m512 add_planes(__m512i low, __m512i high, const float* q, __m512 sums) {
    const __m512i first = _mm512_unpacklo_epi8(low, high);
    const __m512i second = _mm512_unpackhi_epi8(low, high);
    return add_values(_mm512_cvtph_ps(_mm512_castsi512_si256(first)),
                      _mm512_cvtph_ps(_mm512_extracti64x4_epi64(first, 1)),
                      _mm512_cvtph_ps(_mm512_castsi512_si256(second)),
                      _mm512_cvtph_ps(_mm512_extracti64x4_epi64(second, 1)), q, sums);
}

// 256 bytes in four registers, and a look-up of 64 of them.
struct Bytes256 {
    __m512i part[4];
};

template <class T>
AVX512_PART Bytes256 load_bytes256(const std::array<T, 256>& table) {
    Bytes256 bytes;
    for (size_t i = 0; i < 4; ++i) bytes.part[i] = _mm512_load_si512(table.data() + 64 * i);
    return bytes;
}

AVX512_PART __m512i look_up(const Bytes256& table, __m512i states) {
    const __m512i lower = _mm512_permutex2var_epi8(table.part[0], states, table.part[1]);
    const __m512i upper = _mm512_permutex2var_epi8(table.part[2], states, table.part[3]);
    return _mm512_mask_blend_epi8(_mm512_movepi8_mask(states), lower, upper);
}

template <int N>
AVX512 void halves_avx512(const Plan&, const uint8_t* row, size_t count, const float* q, float* out) {
    for (size_t r = 0; r < count; ++r, row += N * 2 + 2) {
        __m512 sums = _mm512_setzero_ps();
        for (int i = 0; i < N; i += 64) {
            const auto* at = reinterpret_cast<const __m256i*>(row + 2 * i);
            sums = add_values(_mm512_cvtph_ps(_mm256_loadu_si256(at)), _mm512_cvtph_ps(_mm256_loadu_si256(at + 1)),
                              _mm512_cvtph_ps(_mm256_loadu_si256(at + 2)), _mm512_cvtph_ps(_mm256_loadu_si256(at + 3)),
                              q + i, sums);
        }
        out[r] = row_scale(row + N * 2) * _mm512_reduce_add_ps(sums);
    }
}

// Two chunks are a vector. Codes have further codes above them in their lanes, so the levels are repeated.
template <int N, int B>
AVX512 void turbo_avx512(const Plan& plan, const uint8_t* row, size_t count, const float* q, float* out) {
    const __m512 levels = _mm512_load_ps(plan.repeated.data());
    const __m512i steps = _mm512_setr_epi32(0, B, 2 * B, 3 * B, 4 * B, 5 * B, 6 * B, 7 * B, 0, B, 2 * B, 3 * B, 4 * B,
                                            5 * B, 6 * B, 7 * B);
    for (size_t r = 0; r < count; ++r, row += N / 8 * B + 2) {
        __m512 sums = _mm512_setzero_ps();
        for (int c = 0; c < N / 8; c += 2) {
            const uint8_t* at = row + c * B;
            const __m512i words = _mm512_mask_set1_epi32(_mm512_set1_epi32(load32(at)), 0xFF00, load32(at + B));
            const __m512 values = _mm512_permutexvar_ps(_mm512_srlv_epi32(words, steps), levels);
            sums = _mm512_fmadd_ps(values, _mm512_loadu_ps(q + 8 * c), sums);
        }
        out[r] = row_scale(row + N / 8 * B) * _mm512_reduce_add_ps(sums);
    }
}

// What a method makes of a group of 64 elements. Each loads its tables once and then adds groups.
struct SpectralFloats {
    __m512 levels[4];
    AVX512_PART void load(const Plan& plan) {
        for (int i = 0; i < 4; ++i) levels[i] = _mm512_load_ps(plan.levels.data() + 16 * i);
    }
    AVX512_PART __m512 values(__m512i indices) const {
        const __m512 lower = _mm512_permutex2var_ps(levels[0], indices, levels[1]);
        const __m512 upper = _mm512_permutex2var_ps(levels[2], indices, levels[3]);
        return _mm512_mask_blend_ps(_mm512_test_epi32_mask(indices, _mm512_set1_epi32(32)), lower, upper);
    }
    AVX512_PART __m512 add(const Plan& plan, size_t group, __m512i row, const float* q, __m512 sums) const {
        const __m512i indices = level_indices(plan, group, row);
        return add_values(values(part16<0>(indices)), values(part16<1>(indices)), values(part16<2>(indices)),
                          values(part16<3>(indices)), q, sums);
    }
};

struct ChunkHalves {
    __m512i low, high;
    AVX512_PART void load(const Plan& plan) {
        low = _mm512_load_si512(plan.low.data());
        high = _mm512_load_si512(plan.high.data());
    }
    AVX512_PART __m512 add(const Plan& plan, size_t group, __m512i row, const float* q, __m512 sums) const {
        const __m512i indices = level_indices(plan, group, row);
        return add_planes(_mm512_permutexvar_epi8(indices, low), _mm512_permutexvar_epi8(indices, high), q, sums);
    }
};

struct TrellisGather {
    const float* table;
    AVX512_PART void load(const Plan& plan) { table = plan.table.data(); }
    AVX512_PART __m512 add(const Plan& plan, size_t group, __m512i row, const float* q, __m512 sums) const {
        const __m512i states = windows64(plan, group, row);
        return add_values(_mm512_i32gather_ps(part16<0>(states), table, 4),
                          _mm512_i32gather_ps(part16<1>(states), table, 4),
                          _mm512_i32gather_ps(part16<2>(states), table, 4),
                          _mm512_i32gather_ps(part16<3>(states), table, 4), q, sums);
    }
};

struct TrellisBytes {
    Bytes256 table;
    AVX512_PART void load(const Plan& plan) { table = load_bytes256(plan.small); }
    template <int Part>
    AVX512_PART static __m512 floats(__m512i bytes) {
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm512_extracti32x4_epi32(bytes, Part)));
    }
    AVX512_PART __m512 add(const Plan& plan, size_t group, __m512i row, const float* q, __m512 sums) const {
        const __m512i values = look_up(table, windows64(plan, group, row));
        return add_values(floats<0>(values), floats<1>(values), floats<2>(values), floats<3>(values), q, sums);
    }
};

struct TrellisHalves {
    Bytes256 low, high;
    AVX512_PART void load(const Plan& plan) {
        low = load_bytes256(plan.low);
        high = load_bytes256(plan.high);
    }
    AVX512_PART __m512 add(const Plan& plan, size_t group, __m512i row, const float* q, __m512 sums) const {
        const __m512i states = windows64(plan, group, row);
        return add_planes(look_up(low, states), look_up(high, states), q, sums);
    }
};

// Rows of at most 64 bytes of codes, by one of the methods above.
template <int N, class Method, bool InUnits = false>
AVX512 void rows_avx512(const Plan& plan, const uint8_t* row, size_t count, const float* q, float* out) {
    Method method;
    method.load(plan);
    const size_t bytes = plan.format.code_bytes();
    const float unit = InUnits ? plan.small_unit : 1.0F;
    for (size_t r = 0; r < count; ++r, row += bytes + 2) {
        const __m512i codes = _mm512_loadu_si512(row);
        __m512 sums = _mm512_setzero_ps();
        for (size_t group = 0; group < N / group_elements; ++group) {
            sums = method.add(plan, group, codes, q + group * group_elements, sums);
        }
        out[r] = row_scale(row + bytes) * unit * _mm512_reduce_add_ps(sums);
    }
}

template <int N, int B>
AVX512 void trellis_pairs_avx512(const Plan& plan, const uint8_t* row, size_t count, const float* q, float* out) {
    const __m512i steps = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 2 * B, 4 * B, 6 * B));
    const auto* pairs = reinterpret_cast<const int*>(plan.pairs.data());
    for (size_t r = 0; r < count; ++r, row += N / 8 * B + 2) {
        __m512 sums[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
        for (int c = 0; c < N / 8; c += 4) {
            const __m128i starts = _mm_setr_epi32(chunk_word<N, B>(row, c), chunk_word<N, B>(row, c + 1),
                                                  chunk_word<N, B>(row, c + 2), chunk_word<N, B>(row, c + 3));
            const __m512i of_chunk = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
            const __m512i words = _mm512_permutexvar_epi32(of_chunk, _mm512_castsi128_si512(starts));
            const __m512i windows =
                _mm512_and_si512(_mm512_srlv_epi32(words, steps), _mm512_set1_epi32((256 << B) - 1));
            const __m512i found = _mm512_i32gather_epi32(windows, pairs, 4);
            const __m512 first = _mm512_cvtph_ps(_mm512_castsi512_si256(found));
            const __m512 second = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(found, 1));
            sums[0] = _mm512_fmadd_ps(first, _mm512_loadu_ps(q + 8 * c), sums[0]);
            sums[1] = _mm512_fmadd_ps(second, _mm512_loadu_ps(q + 8 * c + 16), sums[1]);
        }
        out[r] = row_scale(row + N / 8 * B) * _mm512_reduce_add_ps(_mm512_add_ps(sums[0], sums[1]));
    }
}

template <int N>
std::vector<Decoder> decoders_of_length(const Format& format) {
    constexpr Machine avx2 = Machine::avx2;
    constexpr Machine avx512 = Machine::avx512;
    const int b = format.bits.front();
    if (format.layout == Layout::halves) {
        return {{"convert", avx2, halves_avx2<N>}, {"convert", avx512, halves_avx512<N>}};
    }
    if (format.layout == Layout::trellis) {
        return {{"gather", avx2, b == 2 ? trellis_gather_avx2<N, 2> : trellis_gather_avx2<N, 3>},
                {"pairs", avx2, b == 2 ? trellis_pairs_avx2<N, 2> : trellis_pairs_avx2<N, 3>, Rounding::half},
                {"gather", avx512, rows_avx512<N, TrellisGather>},
                {"pairs", avx512, b == 2 ? trellis_pairs_avx512<N, 2> : trellis_pairs_avx512<N, 3>, Rounding::half},
                {"int8 table", avx512, rows_avx512<N, TrellisBytes, true>, Rounding::byte},
                {"half table", avx512, rows_avx512<N, TrellisHalves>, Rounding::half, Order::byte_planes}};
    }
    const Decoder halves{"half table", avx512, rows_avx512<N, ChunkHalves>, Rounding::half, Order::byte_planes};
    if (b != format.bits.back()) {
        return {{"f32 table", avx2, spectral_avx2}, {"f32 table", avx512, rows_avx512<N, SpectralFloats>}, halves};
    }
    const Dots dots = b == 2 ? turbo_avx2<N, 2> : b == 3 ? turbo_avx2<N, 3> : turbo_avx2<N, 4>;
    const Dots long_dots = b == 2 ? turbo_avx512<N, 2> : b == 3 ? turbo_avx512<N, 3> : turbo_avx512<N, 4>;
    return {{"f32 table", avx2, dots}, {"f32 table", avx512, long_dots}, halves};
}

} // namespace

std::vector<Decoder> decoders_of(const Format& format) {
    return format.elements() == 64 ? decoders_of_length<64>(format) : decoders_of_length<128>(format);
}

} // namespace winnow::lab
