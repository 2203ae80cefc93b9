// An attention case filled with data, the runs of it, and the eviction pass of a result.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "sdpa_cases.hpp"
#include "session.hpp"
#include "test_tensor.hpp"

namespace winnow::conformance {

struct SdpaProblem {
    SdpaCase shape;
    TestTensor q, k, v, out;
    TestTensor mask, mask_slopes, alibi_slopes, head_sink, slot_positions, kv_lengths, q_offsets;
    TestTensor scores_out, row_stats, v_rows_skipped;
    TestTensor k_numbers, v_numbers; // what packed keys and values stand for; absent where k or v is dense

    SdpaProblem() = default;
    SdpaProblem(const SdpaCase& what, uint64_t seed);

    // The problem that the reference is given: these numbers, packed in host memory, with F32 outputs.
    SdpaProblem for_reference(uint32_t scores_mode) const;
    // One batch entry of such a problem, with as many keys as its length says, at least one.
    SdpaProblem entry_alone(int64_t entry) const;
    winnow_sdpa_desc desc() const;
    void bind(Session& session);
    void fetch(); // outputs
    // "" when nothing was written but the outputs' elements.
    std::string damage() const;
    double key(const Index& at) const { return k_numbers ? k_numbers.get(at) : k.get(at); }
    double value(const Index& at) const { return v_numbers ? v_numbers.get(at) : v.get(at); }
    // The position of key j of a KV head, for a batch entry of k; negative where the slot is free.
    int64_t position(int64_t kv_batch, int64_t kv_head, int64_t j) const;

private:
    void fill(uint64_t seed);
    std::vector<TestTensor*> tensors();
};

// Draws everything that needs no other program: layouts, memory, contents, masks, positions, logits, outputs.
void draw_options(SdpaCase& c, std::mt19937_64& engine);
// A case drawn at random: the same for the same numbers, on every machine.
SdpaCase random_sdpa_case(uint64_t seed, int index, bool has_all_rows);

std::string describe(const SdpaCase& c);

// Executes on the subject and on the reference and compares. "" when all is well, else what is not, first things first.
// A refusal as UNSUPPORTED is counted and put into *refusal.
std::string judge_sdpa(const SdpaCase& shape, uint64_t seed, std::string* refusal);

} // namespace winnow::conformance
