// dst row = R (src row) or R^-1 (src row).
#include "reference/operations.hpp"

#include <vector>

#include "reference/rotation.hpp"
#include "reference/row.hpp"
#include "reference/view.hpp"

namespace winnow::reference {

void require_supported(const Hadamard& args) {
    require_rows(args.src, "hadamard: src");
    require_rows(args.dst, "hadamard: dst");
    if (args.src.shape[3] > largest_rotation)
        throw Error(WINNOW_ERROR_UNSUPPORTED, "hadamard: src.shape[3] is " + std::to_string(args.src.shape[3]) +
                                                  ", expected at most " + std::to_string(largest_rotation));
}

void hadamard(const Hadamard& args) {
    const auto& [as, bs, cs, elements] = args.src.shape;
    std::vector<double> row(static_cast<size_t>(elements));
    for (int64_t a = 0; a < as; ++a)
        for (int64_t b = 0; b < bs; ++b)
            for (int64_t c = 0; c < cs; ++c) {
                decode_row(args.src.type, row_address(args.src, a, b, c), elements, row.data());
                args.inverse ? rotate_back(row.data(), elements) : rotate(row.data(), elements);
                encode_row(args.dst.type, row_address(args.dst, a, b, c), elements, row.data(), Norm::plain);
            }
}

} // namespace winnow::reference
