// Each backend turns the row back by itself, in single precision. With u = 2^-24 its numbers are within
//
//   e = 24 u |x|        of x, in each element:
//
//   16 u |x|   turning back. Each step rounds a number once and keeps the row's length, so it adds at most u |x|: the
//              factor, the transform's scale and the rounding of that constant, up to 9 sums, and 4 for the reflection
//    8 u |x|   the quantizer's own arithmetic, as if it had been done to x: x - bias is at most 2 |x|, and the scale,
//              the difference and the quotient are rounded once each; where 1 / scale is multiplied by, that is one
//              more
//
// So a group is judged by what its quantizer, as docs/formats.md has it, gives for any numbers within e of x: an
// interval for the scale and the bias before they are rounded to halves, and one for each quotient that becomes a code.
// Where the formula jumps, each side that numbers within e reach is tried: which edge of the range is farther from
// zero, how many steps that edge is from zero, which sign the largest element has.
//
// A group whose range, or magnitude, is below 1024 e has codes that say nothing about x (zeros come back as numbers of
// about e). Its values are held to what the quantizer grants any number: one step, or in a format without a bias, whose
// codes are about zero, the group's magnitude.
#include "quantized_judge.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <sstream>

#include "elements.hpp"

namespace winnow::conformance {
namespace {

constexpr double unit = 0x1p-24;
constexpr double fewest_errors = 1024; // in the range of a group whose codes are judged
constexpr double smallest_step = 1e-7; // of affine groups
constexpr double no_half = 65520;      // from here on a number becomes infinity in F16

constexpr std::array<int, 16> iq4_nl_values = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};

struct Range {
    double low, high;
    bool holds(double value) const { return low <= value && value <= high; }
};
Range around(double value, double error) { return {value - error, value + error}; }
Range operator-(Range a, Range b) { return {a.low - b.high, a.high - b.low}; }
Range operator*(Range a, double b) { return b < 0 ? Range{a.high * b, a.low * b} : Range{a.low * b, a.high * b}; }
// b is on one side of zero.
Range operator/(Range a, Range b) {
    const auto [low, high] = std::minmax({a.low / b.low, a.low / b.high, a.high / b.low, a.high / b.high});
    return {low, high};
}
Range in_halves(Range a) {
    return {from_half(f16_format, to_half(f16_format, a.low)), from_half(f16_format, to_half(f16_format, a.high))};
}

struct Group {
    double scale = 0, bias = 0;
    std::vector<int> codes;
};

Group read_group(const Format& format, const std::byte* row, size_t elements, size_t number) {
    const size_t size = static_cast<size_t>(format.multiple), bytes = static_cast<size_t>(format.group_bytes);
    const size_t header = has_bias(format.type) ? 4 : 2, bits = (bytes - header) * 8 / size;
    Group group;
    const auto half = [&](size_t at) { return load_element(WINNOW_TYPE_F16, row + at); };
    const auto byte = [&](size_t at) { return std::to_integer<int>(row[at]); };
    if (format.family == Family::affine) {
        const size_t scales = elements * bits / 8;
        group.scale = half(scales + 2 * number);
        group.bias = half(scales + 2 * (elements / size) + 2 * number);
        for (size_t at = 0; at < size; ++at) {
            const size_t bit = (number * size + at) * bits;
            group.codes.push_back(byte(bit / 8) >> bit % 8 & ((1 << bits) - 1));
        }
        return group;
    }
    row += number * bytes;
    group.scale = half(0);
    if (header == 4) group.bias = half(2);
    const size_t fifth = header, low = header + (bits == 5 ? 4 : 0);
    for (size_t at = 0; at < size; ++at) {
        int code = bits == 8 ? (byte(low + at) ^ 0x80) - 0x80 : byte(low + at % 16) >> at / 16 * 4 & 15;
        if (bits == 5) code |= (byte(fifth + at / 8) >> at % 8 & 1) << 4;
        group.codes.push_back(code);
    }
    return group;
}

// One way in which the quantizer may have gone.
struct Way {
    Range scale, bias;
};

class GroupJudge {
public:
    GroupJudge(const Format& format, const Group& got, const double* x, double error)
        : format_(format), got_(got), x_(x), size_(static_cast<size_t>(format.multiple)), error_(error),
          low_(*std::min_element(x, x + size_)), high_(*std::max_element(x, x + size_)) {
        switch (format.type) {
        case WINNOW_TYPE_Q8_0: least_ = -127, most_ = 127; break;
        case WINNOW_TYPE_Q5_0: zero_ = 16, most_ = 31; break;
        case WINNOW_TYPE_Q4_0: zero_ = 8, most_ = 15; break;
        case WINNOW_TYPE_Q5_1: most_ = 31; break;
        case WINNOW_TYPE_Q4_1:
        case WINNOW_TYPE_IQ4_NL: most_ = 15; break;
        default: most_ = format.group_bytes - 4 == format.multiple ? 255 : 15;
        }
    }

    std::string verdict() {
        const double extent = has_bias(format_.type) ? high_ - low_ : magnitude();
        if (extent < fewest_errors * error_) return judge_values();
        std::string wrong;
        for (const Way& way : ways()) {
            const std::string now = format_.type == WINNOW_TYPE_IQ4_NL ? judge_iq4_nl(way) : judge(way);
            if (now.empty()) return "";
            if (wrong.size() < 300) wrong += (wrong.empty() ? "" : "; going the other way, ") + now;
        }
        return wrong;
    }

private:
    double magnitude() const { return std::max(std::fabs(low_), std::fabs(high_)); }

    std::vector<Way> ways() const {
        const Range low = around(low_, error_), high = around(high_, error_), none = {0, 0};
        std::vector<Way> all;
        if (format_.type == WINNOW_TYPE_Q8_0) return {{around(magnitude(), error_) * (1.0 / 127), none}};
        if (format_.family == Family::ggml && has_bias(format_.type)) return {{(high - low) * (1.0 / most_), low}};
        // From here on the edge that is farther from zero decides.
        for (const double edge : {low_, high_}) {
            if (std::fabs(edge) < magnitude() - 2 * error_) continue;
            const Range about = around(edge, error_);
            if (format_.family == Family::affine) {
                add_affine_ways(all, about, edge == low_ ? 1 : -1);
            } else {
                all.push_back({about * (-1.0 / (format_.type == WINNOW_TYPE_IQ4_NL ? 127 : zero_)), none});
            }
        }
        return all;
    }

    void add_affine_ways(std::vector<Way>& all, Range edge, double sign) const {
        const Range range = around(high_ - low_, 2 * error_) * (1.0 / most_);
        const Range step = {std::max(range.low, smallest_step), std::max(range.high, smallest_step)};
        const Range steps = edge / (step * sign);
        for (double count = std::rint(steps.low); count <= std::rint(steps.high); ++count)
            all.push_back(count == 0 ? Way{step * sign, {0, 0}} : Way{edge * (1 / count), edge});
    }

    std::string judge_numbers(const Way& way) const {
        std::ostringstream text;
        const Range scale = in_halves(way.scale), bias = in_halves(way.bias);
        if (!scale.holds(got_.scale))
            text << "the scale is " << got_.scale << ", permitted are " << scale.low << " to " << scale.high;
        else if (!bias.holds(got_.bias))
            text << "the bias is " << got_.bias << ", permitted are " << bias.low << " to " << bias.high;
        return text.str();
    }

    std::string judge_code(size_t at, int first, int last) const {
        if (got_.codes[at] >= std::min(first, last) && got_.codes[at] <= std::max(first, last)) return "";
        std::ostringstream text;
        text << "the code of element " << at << " is " << got_.codes[at] << ", permitted are " << std::min(first, last)
             << " to " << std::max(first, last) << " for " << x_[at];
        return text.str();
    }

    std::string judge(const Way& way) const {
        std::string wrong = judge_numbers(way);
        for (size_t at = 0; at < size_ && wrong.empty(); ++at) {
            const Range quotient = (around(x_[at], error_) - way.bias) / way.scale;
            const auto code = [&](double x) {
                return static_cast<int>(std::clamp(zero_ + std::floor(x + 0.5), least_, most_));
            };
            wrong = judge_code(at, code(quotient.low), code(quotient.high));
        }
        return wrong;
    }

    // way.scale: the extreme's by -127, which the codes come from. What is stored is fitted to them.
    std::string judge_iq4_nl(const Way& way) const {
        double products = 0, squares = 0, products_error = 0, squares_error = 0;
        for (size_t at = 0; at < size_; ++at) {
            const Range quotient = around(x_[at], error_) / way.scale;
            std::string wrong = judge_code(at, nearest(quotient.low), nearest(quotient.high));
            if (!wrong.empty()) return wrong;
            const double value = iq4_nl_values[static_cast<size_t>(got_.codes[at])], x = std::fabs(x_[at]),
                         more = x + error_;
            products += value * x_[at] * x * x;
            squares += value * value * x * x;
            // Numbers within e, and three roundings of a product and up to 32 of the sum.
            products_error += std::fabs(value) * (more * more * more - x * x * x + 35 * unit * x * x * x);
            squares_error += value * value * (more * more - x * x + 35 * unit * x * x);
        }
        return judge_numbers({around(products, products_error) / around(squares, squares_error), {0, 0}});
    }

    static int nearest(double x) {
        int code = 0;
        while (code < 15 &&
               2 * x >= iq4_nl_values[static_cast<size_t>(code)] + iq4_nl_values[static_cast<size_t>(code) + 1])
            ++code;
        return code;
    }

    std::string judge_values() const {
        const double step = std::max((high_ - low_ + 2 * error_) / most_, smallest_step);
        // The scale is at most twice the step: the farther edge is at least half of the range from zero.
        const double rounded =
            rounding_error(WINNOW_TYPE_F16, magnitude() + error_) + most_ * rounding_error(WINNOW_TYPE_F16, 2 * step);
        const double bound = has_bias(format_.type) ? step + error_ + rounded : magnitude() + 2 * error_;
        for (size_t at = 0; at < size_; ++at) {
            const int code = got_.codes[at];
            const double multiple =
                format_.type == WINNOW_TYPE_IQ4_NL ? iq4_nl_values[static_cast<size_t>(code)] : code - zero_;
            const double value = got_.scale * multiple + got_.bias;
            if (agrees(value, x_[at], bound, largest(WINNOW_TYPE_F16))) continue;
            std::ostringstream text;
            text << "element " << at << " reads as " << value << " for " << x_[at] << ", permitted error " << bound;
            return text.str();
        }
        return "";
    }

    const Format& format_;
    const Group& got_;
    const double* x_;
    size_t size_;
    double error_, low_, high_;
    double zero_ = 0, least_ = 0, most_ = 0; // codes
};

// A block of which the largest elements are there. Which those are is not known of elements whose magnitudes are within
// 2 e of each other.
class SparseJudge {
public:
    SparseJudge(const Format& format, const std::byte* block, const double* x, double error)
        : is_wide_(format.type == WINNOW_TYPE_SPARSE16), count_(is_wide_ ? 21 : 22), block_(block), x_(x),
          error_(error), scale_(load_element(WINNOW_TYPE_F16, block + 4)) {
        for (size_t at = 0; at < 4; ++at) kept_ |= std::to_integer<uint32_t>(block[at]) << 8 * at;
        for (size_t at = 0; at < 32; ++at) magnitude_ = std::max(magnitude_, std::fabs(x[at]));
    }

    std::string verdict() const {
        std::ostringstream text;
        if (is_wide_ && magnitude_ + error_ >= no_half && std::isnan(scale_)) return ""; // all of it is no number
        if (is_wide_ && magnitude_ - error_ >= no_half) text << "d is " << scale_ << " where an element has no half; ";
        if (std::popcount(kept_) != count_) text << std::popcount(kept_) << " elements are there, expected " << count_;
        double smallest = HUGE_VAL, largest_left_out = 0;
        for (size_t at = 0; at < 32; ++at)
            if (has(at))
                smallest = std::min(smallest, std::fabs(x_[at]));
            else
                largest_left_out = std::max(largest_left_out, std::fabs(x_[at]));
        if (largest_left_out > smallest + 2 * error_)
            text << "an element of magnitude " << largest_left_out << " is left out, one of " << smallest << " is not";
        const Range scale = is_wide_ ? Range{1, 1} : in_halves(of_codes());
        if (!scale.holds(scale_)) text << "d is " << scale_ << ", permitted are " << scale.low << " to " << scale.high;
        for (size_t at = 0, front = 0, end = static_cast<size_t>(count_); at < 32 && text.str().empty(); ++at)
            if (has(at)) text << judge_value(at, at < 16 ? front++ : --end);
        return text.str();
    }

private:
    bool has(size_t at) const { return (kept_ >> at & 1) != 0; }
    Range of_codes() const { return around(magnitude_, error_) * (1.0 / 127); }

    std::string judge_value(size_t at, size_t place) const {
        std::ostringstream text;
        if (is_wide_) {
            const double value = load_element(WINNOW_TYPE_F16, block_ + 6 + 2 * place);
            const double bound = error_ + rounding_error(WINNOW_TYPE_F16, std::fabs(x_[at]) + error_);
            if (!agrees(value, x_[at], bound, largest(WINNOW_TYPE_F16)))
                text << "element " << at << " is " << value << " for " << x_[at] << ", permitted error " << bound;
            return text.str();
        }
        const int code = (std::to_integer<int>(block_[6 + place]) ^ 0x80) - 0x80;
        if (magnitude_ < fewest_errors * error_) { // codes say nothing
            if (!agrees(scale_ * code, x_[at], magnitude_ + 2 * error_, largest(WINNOW_TYPE_F16)))
                text << "element " << at << " reads as " << scale_ * code << " for " << x_[at];
        } else {
            const Range quotient = around(x_[at], error_) / of_codes();
            const double first = std::floor(quotient.low + .5), last = std::floor(quotient.high + .5);
            if (code < std::max(first, -127.0) || code > std::min(last, 127.0))
                text << "the code of element " << at << " is " << code << ", permitted are " << first << " to " << last;
        }
        return text.str();
    }

    bool is_wide_;
    int count_;
    const std::byte* block_;
    const double* x_;
    double error_, scale_, magnitude_ = 0;
    uint32_t kept_ = 0;
};

} // namespace

std::string judge_quantized(uint32_t type, const std::byte* row, const std::vector<double>& x) {
    const Format& format = *find_format(type);
    double square = 0;
    for (const double value : x) square += value * value;
    const double error = 24 * unit * std::sqrt(square);
    for (size_t group = 0; group < x.size() / static_cast<size_t>(format.multiple); ++group) {
        const double* const its = x.data() + group * static_cast<size_t>(format.multiple);
        const std::string wrong =
            format.family == Family::sparse
                ? SparseJudge(format, row + group * static_cast<size_t>(format.group_bytes), its, error).verdict()
                : GroupJudge(format, read_group(format, row, x.size(), group), its, error).verdict();
        if (!wrong.empty()) return "group " + std::to_string(group) + ": " + wrong;
    }
    return "";
}

} // namespace winnow::conformance
