// Softmax in double over floats, a token by one thread. GCC on x86-64 makes vectors of it, with glibc's exp of vectors,
// as wide as the processor has them: results differ by compiler and processor in the last bits. (Not with
// ThreadSanitizer: it does not bear functions that are chosen for a processor when the program is loaded.)
#include "divergence.hpp"

#include <algorithm>
#include <cmath>
#include <thread>

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define FOR_EACH_CPU __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#pragma omp declare simd notinbranch
extern "C" double exp(double) noexcept;
#else
#define FOR_EACH_CPU
#endif

namespace winnow::measure {

namespace {

FOR_EACH_CPU float largest(const float* logits, size_t count) {
    float most = logits[0];
#pragma omp simd reduction(max : most)
    for (size_t i = 1; i < count; ++i) most = std::max(most, logits[i]);
    return most;
}

FOR_EACH_CPU double log_of_sum(const float* logits, size_t count) {
    const double most = largest(logits, count);
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < count; ++i) sum += ::exp(logits[i] - most);
    return most + std::log(sum);
}

// Words that the base rules out, with -infinity, add nothing.
FOR_EACH_CPU double divergence_of(const float* logits, double log_sum, const float* base, double base_log_sum,
                                  size_t count) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < count; ++i) {
        const double log_p = base[i] - base_log_sum, p = ::exp(log_p);
        const double term = p * (log_p - (logits[i] - log_sum));
        sum += p == 0 ? 0 : term;
    }
    return sum;
}

ptrdiff_t likeliest(const float* logits, size_t count) {
    return std::find(logits, logits + count, largest(logits, count)) - logits;
}

// Calls work(token) of each token once.
template <typename Work>
void divide(size_t count, unsigned threads, const Work& work) {
    const auto part = [&](size_t first) {
        for (size_t token = first; token < count; token += threads) work(token);
    };
    std::vector<std::jthread> helpers;
    for (unsigned thread = 1; thread < threads; ++thread) helpers.emplace_back(part, thread);
    part(0);
} // and waits for the helpers

} // namespace

void add_scores(const float* logits, const Base* base, size_t first, const int32_t* next, size_t count,
                size_t vocabulary, unsigned threads, Scores& scores) {
    std::vector<double> nll(count), divergence(base ? count : 0);
    std::vector<char> same_top(base ? count : 0);
    divide(count, threads, [&](size_t token) {
        const float* its = logits + token * vocabulary;
        const double log_sum = log_of_sum(its, vocabulary);
        nll[token] = log_sum - its[next[token]];
        if (!base) return;
        const float* of_base = base->logits.data() + (first + token) * vocabulary;
        divergence[token] = divergence_of(its, log_sum, of_base, base->log_sums[first + token], vocabulary);
        same_top[token] = likeliest(its, vocabulary) == likeliest(of_base, vocabulary);
    });
    scores.nll.insert(scores.nll.end(), nll.begin(), nll.end());
    scores.divergence.insert(scores.divergence.end(), divergence.begin(), divergence.end());
    scores.same_top.insert(scores.same_top.end(), same_top.begin(), same_top.end());
}

void add_to_base(const float* logits, size_t count, size_t vocabulary, unsigned threads, Base& base) {
    std::vector<double> log_sums(count);
    divide(count, threads,
           [&](size_t token) { log_sums[token] = log_of_sum(logits + token * vocabulary, vocabulary); });
    base.logits.insert(base.logits.end(), logits, logits + count * vocabulary);
    base.log_sums.insert(base.log_sums.end(), log_sums.begin(), log_sums.end());
}

} // namespace winnow::measure
