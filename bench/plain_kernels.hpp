// The benchmarks' own OpenCL kernels, which say what a device can do: read, multiply and add, convert, and be launched.
// -D WIDTH: floats of a vector, 16 or 4; -D ITEMS: work-items of a group.
#pragma once

namespace winnow::bench {

inline constexpr const char* plain_kernels = R"(
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
typedef JOIN(float, WIDTH) numbers;
#define GROUP __attribute__((reqd_work_group_size(ITEMS, 1, 1)))

// Read, so many times: a work-item to a group, or side by side. A sink gets the xor of all 32-bit words that its group,
// or its work-item, has read. A group has a part of its own, and with each further time the next group's: what it has
// read may lie in a cache near it, and everything where all of it lies.

// Of the bytes behind whole loads, as words with zeros behind them.
uint xor_of_bytes(__global const uchar *bytes, ulong begin, ulong end) {
    uint x = 0;
    for (ulong i = begin; i < end; ++i) x ^= (uint)bytes[i] << (8 * (i % 4));
    return x;
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void read_all(uint times, __global const uint16 *data,
                                                                      ulong bytes, __global uint *sink) {
    const ulong groups = get_num_groups(0), loads = bytes / sizeof(uint16);
    uint16 a = 0, b = 0, c = 0, d = 0;
    uint rest = 0;
    for (uint time = 0; time < times; ++time) {
        const ulong part = (get_group_id(0) + time) % groups;
        const ulong end = loads * (part + 1) / groups;
        ulong i = loads * part / groups;
        for (; i + 4 <= end; i += 4) {
            a ^= data[i];
            b ^= data[i + 1];
            c ^= data[i + 2];
            d ^= data[i + 3];
        }
        for (; i < end; ++i) a ^= data[i];
        if (part + 1 == groups) rest ^= xor_of_bytes((__global const uchar *)data, loads * sizeof(uint16), bytes);
    }
    a ^= b ^ c ^ d;
    const uint8 x = a.lo ^ a.hi;
    const uint4 y = x.lo ^ x.hi;
    sink[get_group_id(0)] = y.x ^ y.y ^ y.z ^ y.w ^ rest;
}

GROUP __kernel void read_abreast(uint times, __global const uint4 *data, ulong bytes, __global uint *sink) {
    const ulong step = get_global_size(0), loads = bytes / sizeof(uint4);
    uint4 a = 0, b = 0, c = 0, d = 0;
    uint rest = 0;
    for (uint time = 0; time < times; ++time) {
        ulong i = (get_global_id(0) + time * get_local_size(0)) % step;
        for (; i + 3 * step < loads; i += 4 * step) {
            a ^= data[i];
            b ^= data[i + step];
            c ^= data[i + 2 * step];
            d ^= data[i + 3 * step];
        }
        for (; i < loads; i += step) a ^= data[i];
        if (get_global_id(0) == 0) rest ^= xor_of_bytes((__global const uchar *)data, loads * sizeof(uint4), bytes);
    }
    a ^= b ^ c ^ d;
    sink[get_global_id(0)] = a.x ^ a.y ^ a.z ^ a.w ^ rest;
}

// Arithmetic: chains that do not wait for each other, as many as keep two units busy whose results come four or five
// cycles later, and as fit into registers: 16 of 32 bytes, or 32 of 64. Of each round and work-item 12 vectors. No two
// work-items have the same numbers, which a compiler would compute once.
#define EACH_OF_6(a, b, c, d, e, f)                                                                                    \
    a = a * x + y;                                                                                                     \
    b = b * x + y;                                                                                                     \
    c = c * x + y;                                                                                                     \
    d = d * x + y;                                                                                                     \
    e = e * x + y;                                                                                                     \
    f = f * x + y;

GROUP __kernel void multiply_add(uint rounds, float factor, float addend, __global float *sink) {
    const numbers x = (numbers)(factor), y = (numbers)(addend + (float)get_global_id(0));
    numbers a = y, b = x, c = y + 1, d = x + 1, e = y + 2, f = x + 2;
#ifdef __AVX512F__
    numbers g = y + 3, h = x + 3, i = y + 4, j = x + 4, k = y + 5, l = x + 5;
#endif
    for (uint round = 0; round < rounds; ++round) {
        EACH_OF_6(a, b, c, d, e, f)
#ifdef __AVX512F__
        EACH_OF_6(g, h, i, j, k, l)
#else
        EACH_OF_6(a, b, c, d, e, f)
#endif
    }
    a += b + c + d + e + f;
#ifdef __AVX512F__
    a += g + h + i + j + k + l;
#endif
    JOIN(vstore, WIDTH)(a, get_global_id(0), sink);
}

// One instruction where the compiler has it, as in kernels/format_f16.h.
#if WIDTH == 16 && defined(__AVX512F__) && defined(__has_builtin)
#if __has_builtin(__builtin_ia32_vcvtph2ps512_mask)
#define LOAD(at, p)                                                                                                    \
    __builtin_ia32_vcvtph2ps512_mask(vload16(at, (__global const short *)(p)), (float16)(0.0f), (ushort)-1, 4)
#endif
#endif
#ifndef LOAD
#define LOAD(at, p) JOIN(vload_half, WIDTH)(at, p)
#endif

// Conversion, each with a multiply-add: of the same vectors in each round, which stay in the first cache.
GROUP __kernel void convert(uint rounds, float factor, __global const half *from, uint vectors, __global float *sink) {
    const numbers x = (numbers)(factor);
    numbers a = x, b = x, c = x, d = x;
    const uint lane = get_local_id(0), step = get_local_size(0);
    for (uint round = 0; round < rounds; ++round)
        for (uint at = lane; at < vectors; at += 4 * step) {
            a += LOAD(at, from) * x;
            b += LOAD(at + step, from) * x;
            c += LOAD(at + 2 * step, from) * x;
            d += LOAD(at + 3 * step, from) * x;
        }
    JOIN(vstore, WIDTH)(a + b + c + d, get_global_id(0), sink);
}

GROUP __kernel void nothing(__global uint *sink) {
    if (sink == 0) return;
}
)";

} // namespace winnow::bench
