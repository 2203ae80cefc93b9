// Exact rows as they come from a host, read and checked: in which head each token is resident, values, packed bytes,
// and the ledger.
#pragma once

#include <optional>
#include <vector>

#include "cache/state/exact_rows.hpp"
#include "cache/state/ledger.hpp"

namespace winnow::cache {

class IncomingRows {
public:
    // Throws Error where a record is damaged, or the sides do not agree.
    IncomingRows(CacheState& cache, const CacheRows& args);

    int64_t count() const { return count_; }
    bool is_resident(int64_t head, int64_t token) const { return k_.is_resident[at(head, token)]; }
    // The bytes of a row that was packed in this format, with a mean subtracted or without; none for any other row.
    std::span<const std::byte> packed_key(int64_t head, int64_t token, Type type, bool has_mean) const;
    std::span<const std::byte> packed_value(int64_t head, int64_t token, Type type, bool has_mean) const;
    // The importance that the token had when the row was exported; 0 where none was kept.
    float importance(int64_t head, int64_t token) const { return importance_[at(head, token)]; }
    bool has_importance() const; // some row has one
    // The values of the rows, F32 [1, kv_heads, count, size]; the row of a token that is not resident is NaN.
    const Tensor& keys() const { return k_.values; }
    const Tensor& values() const { return v_.values; }
    // The ledger of all tokens; none where the rows of some token carry none.
    const std::optional<Ledger>& ledger() const { return ledger_; }

private:
    // Packed rows of one format.
    struct Packed {
        Type type = Type::none;
        bool has_mean = false;
        std::vector<size_t> of; // which rows
        std::vector<std::byte> bytes;
    };
    struct Side {
        const char* name = "";
        int64_t size = 0;
        std::vector<bool> is_resident;
        std::vector<Packed> packed;
        std::vector<int64_t> place; // of each row among its format's, or -1
        std::vector<float> numbers;
        Tensor values;
    };

    size_t at(int64_t head, int64_t token) const { return static_cast<size_t>(head * count_ + token); }
    void parse(Side& side, ExactRows& rows, int64_t v_first);
    void add_packed(Side& side, size_t row, Type type, bool has_mean, std::span<const std::byte> bytes) const;
    void collect(int64_t token, std::span<const std::byte> room);
    void join_ledgers();
    void convert(Side& side, ExactRows& rows, const std::vector<float>& means);
    void check_means() const;
    void weigh(const Ledger& ledger);
    static std::span<const std::byte> packed(const Side& side, size_t row, Type type, bool has_mean);

    CacheState& cache_;
    int64_t heads_, count_;
    Side k_, v_;
    std::vector<float> importance_;
    bool has_v_in_k_ = false;
    std::vector<std::pair<int64_t, std::vector<std::byte>>> rooms_; // of one side's records, with their tokens
    std::optional<Ledger> ledger_;
};

} // namespace winnow::cache
