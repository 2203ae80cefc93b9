// The table of types and formats.
#include "device/format.hpp"

#include <array>

namespace winnow {
namespace {

constexpr int64_t chunk = 16; // of turbo formats, whose codes are laid out in chunks

// What size and shape follow from. Of a packed format: `header` bytes beside the codes of each group, or of the row
// where group is 0; codes of half_bits / 2 bits.
struct Facts {
    Type type;
    const char* name;
    size_t size;      // of an element; 0: packed
    int64_t multiple; // of elements in a row
    int64_t group;
    int header;
    int half_bits; // twice the bits of a code
};

constexpr std::array facts = {
    Facts{Type::f32, "F32", 4, 1, 0, 0, 64},
    Facts{Type::f16, "F16", 2, 1, 0, 0, 32},
    Facts{Type::bf16, "BF16", 2, 1, 0, 0, 32},
    Facts{Type::i32, "I32", 4, 1, 0, 0, 64},
    Facts{Type::i64, "I64", 8, 1, 0, 0, 128},
    Facts{Type::boolean, "BOOL", 1, 1, 0, 0, 16},
    Facts{Type::q8_0, "Q8_0", 0, 32, 32, 2, 16},
    Facts{Type::q5_1, "Q5_1", 0, 32, 32, 4, 10},
    Facts{Type::q5_0, "Q5_0", 0, 32, 32, 2, 10},
    Facts{Type::q4_1, "Q4_1", 0, 32, 32, 4, 8},
    Facts{Type::q4_0, "Q4_0", 0, 32, 32, 2, 8},
    Facts{Type::iq4_nl, "IQ4_NL", 0, 32, 32, 2, 8},
    Facts{Type::affine8_g32, "AFFINE8_G32", 0, 32, 32, 4, 16},
    Facts{Type::affine8_g64, "AFFINE8_G64", 0, 64, 64, 4, 16},
    Facts{Type::affine8_g128, "AFFINE8_G128", 0, 128, 128, 4, 16},
    Facts{Type::affine4_g32, "AFFINE4_G32", 0, 32, 32, 4, 8},
    Facts{Type::affine4_g64, "AFFINE4_G64", 0, 64, 64, 4, 8},
    Facts{Type::affine4_g128, "AFFINE4_G128", 0, 128, 128, 4, 8},
    Facts{Type::turbo4, "TURBO4", 0, chunk, 0, 2, 8},
    Facts{Type::turbo3, "TURBO3", 0, chunk, 0, 2, 6},
    Facts{Type::turbo2, "TURBO2", 0, chunk, 0, 2, 4},
    Facts{Type::turbo3_5, "TURBO3_5", 0, chunk, 0, 2, 7},
    Facts{Type::turbo2_5, "TURBO2_5", 0, chunk, 0, 2, 5},
    Facts{Type::sparse16, "SPARSE16", 0, 32, 32, 6, 21},
    Facts{Type::sparse8, "SPARSE8", 0, 32, 32, 6, 11},
};

// By the type's number: a step asks some hundred times.
constexpr std::array by_number = [] {
    std::array<const Facts*, static_cast<size_t>(Type::sparse8) + 1> all{};
    for (const Facts& each : facts) all[static_cast<size_t>(each.type)] = &each;
    return all;
}();

const Facts* find(Type type) {
    const auto number = static_cast<size_t>(type);
    return number < by_number.size() ? by_number[number] : nullptr;
}

} // namespace

const char* type_name(Type type) {
    if (type == Type::none) return "none";
    const Facts* const found = find(type);
    return found ? found->name : "unknown";
}

std::string format_name(Type type) {
    std::string name = type_name(type);
    for (char& letter : name)
        if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
    return name;
}

size_t type_size(Type type) {
    const Facts* const found = find(type);
    return found ? found->size : 0;
}

bool is_packed(Type type) {
    const Facts* const found = find(type);
    return found && found->size == 0;
}

bool is_storage_format(Type type) {
    return type == Type::f32 || type == Type::f16 || type == Type::bf16 || is_packed(type);
}

bool is_rotated(Type type) { return is_packed(type) && row_multiple(type) == chunk; }

bool is_in_order(Type type) { return !is_rotated(type) && (type < Type::affine8_g32 || type > Type::affine4_g128); }

int64_t row_multiple(Type type) {
    const Facts* const found = find(type);
    return found ? found->multiple : 1;
}

int64_t group_elements(Type type) {
    const Facts* const found = find(type);
    return found ? found->group : 0;
}

uint64_t row_bytes(Type type, int64_t elements) {
    const Facts* const found = find(type);
    if (found == nullptr) return 0;
    const auto n = static_cast<uint64_t>(elements);
    if (found->size != 0) return n * found->size;
    // Where the number of chunks is odd, the larger half has the bit more: a chunk of b bits takes 2b bytes.
    if (found->group == 0) return (n / chunk * static_cast<uint64_t>(found->half_bits) + 1) / 2 * 2 + 2;
    const auto group = static_cast<uint64_t>(found->group);
    return n / group * (static_cast<uint64_t>(found->header) + group * static_cast<uint64_t>(found->half_bits) / 16);
}

size_t alignment(Type type) { return is_packed(type) ? 2 : type_size(type); }

} // namespace winnow
