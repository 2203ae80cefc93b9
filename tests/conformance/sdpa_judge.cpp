// Holds a backend's attention against the reference's. The one place where the permitted error is stated.
//
// A backend computes in single precision, in an order of its own. Each logit may then be off by
//
//   delta[j] = u * ((4 + head_size / 16) * |scale| * |q| * |k[j]| + 16 * |softcap| + 4 * (|mask| + |alibi| + |s[j]|)),
//
// u = 2^-24: the rounding of a dot product summed in 16 lanes, of tanh, and of adding the bias. A probability p[j] may
// then be anything in p[j] * exp(+-delta[j]), and
//
//   |out - reference| <= tolerance * sum_j p[j] |v[j]|                              exp, and the sums over keys
//                        + sum_j dp[j] * (|v[j]| + sum_i p[i] |v[i]|)               the logits' error, first order
//                        + 8 u sum_j p[j] B[j]                                      where V's values have a bias
//                        + half a unit in the last place of out's type              rounding once
//                        + 2^-120                                                   a device may flush denormals, and
//                        what ends near them
//
// with dp[j] = p[j] * (exp(delta[j]) - 1) and tolerance 1e-5. So a result of ordinary size is held to 1e-5, and
// huge logits are granted just what single precision costs them. NaN has to meet NaN, infinity infinity.
//
// Packed keys and values are the same bytes on both sides, so what packing lost is not in question; a value is computed
// as well from a packed row as from a dense one, but for two things. Where V is held rotated, the sum over keys is
// taken of R v[j] and turned back; R is orthogonal, so the error keeps its length and spreads over the row: in the
// first line |v[j]| of an element is then at least the row's root mean square.
//
// Where v = f * code + b, the sums of p f code and of p b may be taken apart and cancel. B is the largest |v| of the
// element's group. The quantizers give some element the code 0, so |b| <= B, and |f code| = |v - b| <= 2 B. Rounding
// p * f, and its product with the code, costs 2 u * 2 B; p * b costs u B; joining the two, of up to 2 B and B, 3 u B.
// What the sums gather over the keys is in the tolerance, as it is for other formats.
//
// With a threshold t, values whose p[j] is below it (the logits' error aside) may be passed over: out may be off by the
// sum of their p[j] |v[j]|, of as many of them as v_rows_skipped says, and it may not say more than there are. Whether
// NaN and infinity in such values reach out is free: an element that they alone make so is the reference's, or what it
// is without them.
#include <algorithm>
#include <cmath>
#include <functional>
#include <sstream>
#include <vector>

#include "elements.hpp"
#include "sdpa_problem.hpp"

namespace winnow::conformance {
namespace {

constexpr double unit = 0x1p-24;
constexpr double tolerance = 1e-5;
constexpr double smallest = 0x1p-120;

// Collects what is wrong: the first few in full, the rest by number.
class Complaints {
public:
    void add(const char* what, const Index& at, double got, double want, double bound) {
        if (++count_ > 3) return;
        text_ << what << "[" << at[0] << ", " << at[1] << ", " << at[2] << ", " << at[3] << "] is " << got
              << ", the reference says " << want << ", permitted error " << bound << "\n";
    }
    std::string text() const {
        if (count_ == 0) return "";
        return text_.str() + (count_ > 3 ? "... " + std::to_string(count_) + " elements in all" : "");
    }

private:
    std::ostringstream text_;
    int count_ = 0;
};

template <typename Element>
double norm_of_row(Index at, int64_t size, const Element& element) {
    double sum = 0;
    for (at[3] = 0; at[3] < size; ++at[3]) sum += element(at) * element(at);
    return std::sqrt(sum);
}

template <typename Iterator>
double largest_magnitude(Iterator begin, Iterator end) {
    return std::fabs(*std::max_element(begin, end, [](double a, double b) { return std::fabs(a) < std::fabs(b); }));
}

class Judge {
public:
    Judge(const SdpaProblem& got, const SdpaProblem& want, const SdpaProblem& biased)
        : c_(got.shape), got_(got), want_(want), biased_(biased), k_batches_(c_.batch / c_.kv_batch),
          group_(c_.q_heads / c_.kv_heads), v_group_(has_bias(c_.v_type) ? find_format(c_.v_type)->multiple : 1),
          v_groups_(has_bias(c_.v_type) ? c_.v_head_size / v_group_ : 0) {
        for (int64_t b = 0; b < c_.kv_batch; ++b)
            for (int64_t g = 0; g < c_.kv_heads; ++g)
                for (int64_t j = 0; j < c_.kv_len; ++j) {
                    const Index row = {b, g, j, 0};
                    key_norms_.push_back(norm_of_row(row, c_.head_size, [&](const Index& at) { return got.key(at); }));
                    for (int64_t d = 0; d < c_.v_head_size; ++d) values_.push_back(got.value({b, g, j, d}));
                    if (is_turbo(c_.v_type))
                        value_sizes_.push_back(
                            norm_of_row(row, c_.v_head_size, [&](const Index& at) { return got.value(at); }) /
                            std::sqrt(static_cast<double>(c_.v_head_size)));
                    for (auto at = values_.end() - v_group_ * v_groups_; at != values_.end(); at += v_group_)
                        group_sizes_.push_back(largest_magnitude(at, at + v_group_));
                }
        scale_ =
            c_.scale != 0 ? std::fabs(static_cast<double>(c_.scale)) : 1 / std::sqrt(static_cast<double>(c_.head_size));
    }

    std::string verdict() {
        for (int64_t b = 0; b < c_.batch; ++b)
            for (int64_t h = 0; h < c_.q_heads; ++h)
                for (int64_t i = 0; i < c_.q_len; ++i) row(b, h, i);
        return complaints_.text();
    }

private:
    void row(int64_t b, int64_t h, int64_t i) {
        const size_t keys = static_cast<size_t>(c_.kv_len);
        const size_t first_key = static_cast<size_t>((b / k_batches_ * c_.kv_heads + h / group_) * c_.kv_len);
        const double q_norm = norm_of_row({b, h, i, 0}, c_.head_size, [&](const Index& at) { return got_.q.get(at); });
        const double maximum = biased_.row_stats.get({b, h, i, 0});
        const double sum = biased_.row_stats.get({b, h, i, 1});
        std::vector<double> dot_error(keys), delta(keys), p(keys, 0), dp(keys, 0);
        double sum_error = 0, worst_delta = 0;
        for (size_t j = 0; j < keys; ++j) {
            const double logit = biased_.scores_out.get({b, h, i, static_cast<int64_t>(j)});
            dot_error[j] =
                unit * (4 + static_cast<double>(c_.head_size) / 16) * scale_ * q_norm * key_norms_[first_key + j];
            delta[j] = dot_error[j] + unit * (16 * std::fabs(static_cast<double>(c_.softcap)) +
                                              4 * bias_size(b, h, i, static_cast<int64_t>(j)));
            if (std::isinf(logit) || sum == 0) continue;
            delta[j] += unit * 4 * std::fabs(logit);
            p[j] = std::exp(logit - maximum) / sum;
            dp[j] = std::exp(logit - maximum + std::min(delta[j], 60.0)) / sum - p[j]; // finite: values may be 0
            if (p[j] > 1e-9) worst_delta = std::max(worst_delta, delta[j]);
            sum_error += dp[j];
        }
        outputs(b, h, i, first_key, p, dp, sum_error);
        scores(b, h, i, p, dp, sum_error, dot_error, delta);
        if (!c_.row_stats) return;
        // The largest logit, and a sum that is relative to it. Where a NaN was seen, NaN in the sum is enough: it makes
        // every probability NaN, and a maximum that skips NaN is what devices have.
        if (std::isnan(sum)) {
            check("row_stats", got_.row_stats, {b, h, i, 1}, sum, 0);
            return;
        }
        check("row_stats", got_.row_stats, {b, h, i, 0}, maximum, worst_delta + unit * std::fabs(maximum) + 1e-6);
        check("row_stats", got_.row_stats, {b, h, i, 1}, sum, sum * (tolerance + sum_error + std::expm1(worst_delta)));
    }

    double bias_size(int64_t b, int64_t h, int64_t i, int64_t j) const {
        const int64_t position = got_.position(b / k_batches_, h / group_, j);
        if (position < 0) return 0;
        double size = 0;
        if (got_.mask && c_.mask_type != WINNOW_TYPE_BOOL) {
            const Shape m = got_.mask.shape();
            if (m[3] != 1 && position >= m[3]) return 0;
            const double mask = got_.mask.get({b % m[0], h % m[1], m[2] == 1 ? 0 : i, m[3] == 1 ? 0 : position});
            const double slope = got_.mask_slopes ? got_.mask_slopes.get({0, 0, 0, h}) : 1;
            if (std::isfinite(mask)) size += std::fabs(slope * mask);
        }
        if (got_.alibi_slopes)
            size +=
                std::fabs(got_.alibi_slopes.get({0, 0, 0, h}) * static_cast<double>(position - c_.offset_of(b) - i));
        return size;
    }

    void outputs(int64_t b, int64_t h, int64_t i, size_t first_key, const std::vector<double>& p,
                 const std::vector<double>& dp, double sum_error) {
        const size_t size = static_cast<size_t>(c_.v_head_size), groups = static_cast<size_t>(v_groups_);
        const std::vector<size_t> passable = passable_keys(b, h, i, p, dp);
        std::vector<bool> may_pass(p.size(), false);
        for (const size_t j : passable) may_pass[j] = true;
        // Sums over the finite values. An element that meets another one is demanded, or free.
        std::vector<double> finite(size, 0), weighted(size, 0), spread(size, 0), apart(groups, 0);
        std::vector<bool> is_demanded(size, false), is_free(size, false);
        for (size_t j = 0; j < p.size(); ++j) {
            if (p[j] == 0 && !may_pass[j]) continue;
            const double* value = &values_[(first_key + j) * size];
            const double least = value_sizes_.empty() ? 0 : value_sizes_[first_key + j];
            for (size_t g = 0; g < groups; ++g)
                if (const double most = group_sizes_[(first_key + j) * groups + g]; std::isfinite(most))
                    apart[g] += 8 * unit * p[j] * most;
            for (size_t d = 0; d < size; ++d) {
                if (!std::isfinite(value[d])) {
                    (may_pass[j] ? is_free : is_demanded)[d] = true;
                    continue;
                }
                finite[d] += p[j] * value[d];
                weighted[d] += p[j] * std::max(std::fabs(value[d]), least);
                spread[d] += dp[j] * std::fabs(value[d]);
            }
        }
        const std::vector<double> passed_over = passed_over_by(b, h, i, first_key, p, passable);
        for (size_t d = 0; d < size; ++d) {
            const Index at = {b, h, i, static_cast<int64_t>(d)};
            const bool is_choice = is_free[d] && !is_demanded[d];
            if (is_choice && !std::isfinite(got_.out.get(at))) continue;
            const double want = is_choice ? finite[d] : want_.out.get(at);
            const double unrounded = (tolerance + sum_error) * weighted[d] + spread[d] +
                                     (groups ? apart[d / static_cast<size_t>(v_group_)] : 0) + passed_over[d] +
                                     smallest;
            const double bound = unrounded + rounding_error(c_.out_type, std::fabs(want) + unrounded);
            check("out", got_.out, at, want, bound);
        }
    }

    // The keys whose values may be passed over. Also judges how many are said to have been.
    std::vector<size_t> passable_keys(int64_t b, int64_t h, int64_t i, const std::vector<double>& p,
                                      const std::vector<double>& dp) {
        std::vector<size_t> keys;
        for (size_t j = 0; j < p.size(); ++j) {
            // A visible key whose probability vanishes counts as well.
            const bool is_visible = !std::isinf(biased_.scores_out.get({b, h, i, static_cast<int64_t>(j)}));
            if (c_.v_threshold > 0 && is_visible &&
                p[j] * (1 - tolerance) - dp[j] < static_cast<double>(c_.v_threshold))
                keys.push_back(j);
        }
        if (!got_.v_rows_skipped) return keys;
        const double count = got_.v_rows_skipped.get({b, h, i, 0});
        if (!(count >= 0 && count <= static_cast<double>(keys.size())))
            complaints_.add("v_rows_skipped", {b, h, i, 0}, count, static_cast<double>(keys.size()), 0);
        return keys;
    }

    // What each element of a row may miss for the values passed over: as many as are said to have been.
    std::vector<double> passed_over_by(int64_t b, int64_t h, int64_t i, size_t first_key, const std::vector<double>& p,
                                       const std::vector<size_t>& passable) const {
        const size_t size = static_cast<size_t>(c_.v_head_size);
        size_t most = passable.size();
        if (got_.v_rows_skipped)
            most =
                static_cast<size_t>(std::clamp(got_.v_rows_skipped.get({b, h, i, 0}), 0.0, static_cast<double>(most)));
        std::vector<double> missed(size, 0), parts(passable.size());
        for (size_t d = 0; d < size && most > 0; ++d) {
            for (size_t at = 0; at < parts.size(); ++at) {
                const double value = std::fabs(values_[(first_key + passable[at]) * size + d]);
                parts[at] = std::isfinite(value) ? p[passable[at]] * value : 0;
            }
            std::partial_sort(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(most), parts.end(),
                              std::greater<>());
            for (size_t at = 0; at < most; ++at) missed[d] += parts[at];
        }
        return missed;
    }

    void scores(int64_t b, int64_t h, int64_t i, const std::vector<double>& p, const std::vector<double>& dp,
                double sum_error, const std::vector<double>& dot_error, const std::vector<double>& delta) {
        if (c_.scores_mode == WINNOW_SCORES_NONE) return;
        for (size_t j = 0; j < p.size(); ++j) {
            const Index at = {b, h, i, static_cast<int64_t>(j)};
            const double want = want_.scores_out.get(at);
            // A row that has seen a NaN has no probabilities left; whether its hidden keys say 0 or NaN is free.
            if (c_.scores_mode == WINNOW_SCORES_PROBS && want == 0 && std::isnan(sum_error)) continue;
            double bound = smallest + unit * std::fabs(want);
            if (c_.scores_mode == WINNOW_SCORES_RAW)
                bound += dot_error[j];
            else if (c_.scores_mode == WINNOW_SCORES_PROBS)
                bound += p[j] * (tolerance + sum_error) + dp[j];
            else
                bound += delta[j];
            check("scores_out", got_.scores_out, at, want, bound);
        }
    }

    void check(const char* what, const TestTensor& got, const Index& at, double want, double bound) {
        const double value = got.get(at);
        if (!agrees(value, want, bound, largest(got.type()))) complaints_.add(what, at, value, want, bound);
    }

    const SdpaCase& c_;
    const SdpaProblem &got_, &want_, &biased_;
    int64_t k_batches_, group_;
    int64_t v_group_, v_groups_; // elements, and groups of a row, that share a bias; no groups where V has none
    double scale_ = 1;
    std::vector<double> key_norms_, values_;
    std::vector<double> group_sizes_; // of each row and group the largest value
    std::vector<double> value_sizes_; // of a rotated row's elements; empty where V is not rotated
    Complaints complaints_;
};

void run_on_reference(SdpaProblem& problem) {
    problem.bind(reference());
    const winnow_sdpa_desc desc = problem.desc();
    if (reference().run(desc) != WINNOW_OK || reference().api().finish(reference().context()) != WINNOW_OK)
        throw std::runtime_error("the reference refuses the case: " + reference().message());
}

// Puts one batch entry's results, which a call for it alone has, where they belong; `keys` of them count.
void take_entry(SdpaProblem& all, const SdpaProblem& alone, int64_t entry, int64_t keys) {
    const double hidden = all.shape.scores_mode == WINNOW_SCORES_PROBS ? 0 : -std::numeric_limits<double>::infinity();
    const auto take = [&](TestTensor& to, const TestTensor& from, int64_t count, double otherwise) {
        from.each_row([&](Index at) {
            for (at[3] = 0; at[3] < to.shape()[3]; ++at[3])
                to.set({entry, at[1], at[2], at[3]}, at[3] < count ? from.get(at) : otherwise);
        });
    };
    take(all.scores_out, alone.scores_out, keys, hidden);
    take(all.out, alone.out, keys > 0 ? all.shape.v_head_size : 0, 0);
    take(all.row_stats, alone.row_stats, keys > 0 ? 2 : 0, 0);
    for (int64_t h = 0; keys == 0 && h < all.shape.q_heads; ++h)
        for (int64_t i = 0; i < all.shape.q_len; ++i)
            all.row_stats.set({entry, h, i, 0}, -std::numeric_limits<double>::infinity());
}

// Where batch entries have lengths or offsets of their own, each comes of a call that knows of neither.
SdpaProblem run_reference(const SdpaProblem& problem, uint32_t scores_mode) {
    SdpaProblem copy = problem.for_reference(scores_mode);
    if (!problem.kv_lengths && !problem.q_offsets) {
        run_on_reference(copy);
        return copy;
    }
    for (int64_t entry = 0; entry < copy.shape.batch; ++entry) {
        SdpaProblem alone = copy.entry_alone(entry);
        run_on_reference(alone);
        take_entry(copy, alone, entry, copy.shape.length_of(entry));
    }
    return copy;
}

} // namespace

std::string judge_sdpa(const SdpaCase& shape, uint64_t seed, std::string* refusal) {
    SdpaProblem problem(shape, seed);
    winnow_sdpa_desc desc = problem.desc();
    const Session::Answer before = subject().supports(desc); // without memory, as the header permits
    problem.bind(subject());
    desc = problem.desc();
    const Session::Answer with_memory = subject().supports(desc);
    const int32_t status = subject().run(desc);
    const std::string text = status == WINNOW_OK ? "" : subject().message();
    if (before.status != status || with_memory.status != status)
        return "supports says " + std::to_string(before.status) + " (" + before.message + ") without memory and " +
               std::to_string(with_memory.status) + " (" + with_memory.message + ") with it, sdpa " +
               std::to_string(status) + " (" + text + ")";
    if (status != WINNOW_OK && before.message.empty()) return "a refusal without a reason";
    if (subject().api().finish(subject().context()) != WINNOW_OK) return "finish: " + subject().message();
    problem.fetch();
    if (status == WINNOW_ERROR_UNSUPPORTED) {
        *refusal = before.message;
        subject().note_unsupported("sdpa", before.message);
        for (const TestTensor* output :
             {&problem.out, &problem.scores_out, &problem.row_stats, &problem.v_rows_skipped})
            if (const std::string change = output->change(); !change.empty())
                return "refused, but an output: " + change;
        return problem.damage();
    }
    if (status != WINNOW_OK) return "sdpa returned " + std::to_string(status) + ": " + text;
    if (before.message.empty()) return "supports names no variant";

    std::string wrong = problem.damage();
    const SdpaProblem biased = run_reference(problem, WINNOW_SCORES_BIASED);
    const bool is_biased = shape.scores_mode == WINNOW_SCORES_BIASED || shape.scores_mode == WINNOW_SCORES_NONE;
    const SdpaProblem wanted = is_biased ? SdpaProblem() : run_reference(problem, shape.scores_mode);
    const std::string verdict = Judge(problem, is_biased ? biased : wanted, biased).verdict();
    if (!verdict.empty()) wrong += (wrong.empty() ? "" : "\n") + verdict;
    return wrong.empty() ? "" : "variant " + before.message + ": " + wrong;
}

} // namespace winnow::conformance
