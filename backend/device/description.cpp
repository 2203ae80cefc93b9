// The exact numbers of descriptions.
#include "device/description.hpp"

namespace winnow {

int64_t floor_of(const Share& share, int64_t whole) {
    const int64_t rest = whole % share.whole; // apart, so that no product is too large
    return whole / share.whole * share.part + rest * share.part / share.whole;
}

int64_t ceil_of(const Share& share, int64_t whole) { return (whole * share.part + share.whole - 1) / share.whole; }

int64_t random_rank(uint64_t seed, int64_t head, int64_t position) {
    // splitmix64's finaliser, once for each of the three numbers.
    uint64_t bits = seed;
    for (const int64_t each : {head, position, int64_t{0}}) {
        bits = (bits ^ static_cast<uint64_t>(each)) + 0x9e3779b97f4a7c15u;
        bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
        bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
        bits ^= bits >> 31;
    }
    return static_cast<int64_t>(bits >> 40);
}

} // namespace winnow
