// R = reflection across blocks * Walsh-Hadamard transform of each block * signs. Each of the three is its own inverse,
// so the way back is the same steps in the opposite order.
#include "reference/rotation.hpp"

#include <cmath>

namespace winnow::reference {
namespace {

// Word i of the signs: the low half of the i-th number that splitmix64 gives from the seed 0.
uint32_t sign_word(int64_t i) {
    uint64_t z = (static_cast<uint64_t>(i) + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return static_cast<uint32_t>(z ^ (z >> 31));
}

// The largest power of two that divides n.
int64_t block_elements(int64_t n) { return n & -n; }

void flip_signs(double* x, int64_t n) {
    for (int64_t first = 0; first < n; first += 32) {
        const uint32_t word = sign_word(first / 32);
        for (int64_t e = first; e < n && e < first + 32; ++e)
            if ((word >> (e % 32)) & 1) x[e] = -x[e];
    }
}

// Natural order: y[i] = sum over j of (-1)^(number of ones in i & j) x[j] / sqrt(size).
void transform(double* x, int64_t size) {
    for (int64_t half = 1; half < size; half *= 2)
        for (int64_t first = 0; first < size; first += 2 * half)
            for (int64_t i = first; i < first + half; ++i) {
                const double a = x[i];
                const double b = x[i + half];
                x[i] = a + b;
                x[i + half] = a - b;
            }
    const double root = std::sqrt(static_cast<double>(size));
    for (int64_t i = 0; i < size; ++i) x[i] /= root;
}

void transform_blocks(double* x, int64_t n) {
    const int64_t size = block_elements(n);
    for (int64_t first = 0; first < n; first += size) transform(x + first, size);
}

// Householder's reflection of the m blocks in the hyperplane across (1, ..., 1), for each place in a block.
void reflect(double* x, int64_t n) {
    const int64_t size = block_elements(n);
    const int64_t m = n / size;
    if (m == 1) return;
    for (int64_t place = 0; place < size; ++place) {
        double sum = 0;
        for (int64_t block = 0; block < m; ++block) sum += x[block * size + place];
        for (int64_t block = 0; block < m; ++block) x[block * size + place] -= 2.0 / static_cast<double>(m) * sum;
    }
}

} // namespace

void rotate(double* x, int64_t n) {
    flip_signs(x, n);
    transform_blocks(x, n);
    reflect(x, n);
}

void rotate_back(double* x, int64_t n) {
    reflect(x, n);
    transform_blocks(x, n);
    flip_signs(x, n);
}

} // namespace winnow::reference
