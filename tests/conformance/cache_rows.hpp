// Rows as a cache stores them: what comes back of them from the backend's own kv_append and kv_dequantize, which the
// level formats judges.
#pragma once

#include <cstdint>
#include <vector>

#include "cache_attention.hpp"
#include "cache_setup.hpp"
#include "session.hpp"

namespace winnow::conformance {

// A token's key and value for one KV head, and what is subtracted before they are stored (empty: nothing).
struct RowPair {
    std::vector<float> k, v;
    const std::vector<float>*k_mean = nullptr, *v_mean = nullptr;
};

// Rows that are stored dense: rounded to the dense formats.
StoredRow as_dense(const CacheSetup& setup, const RowPair& row);
// Whether elements of a row may as well be zeros, as their slack says; and what becomes of it when it is stored as
// `stored`, which then may be off by as much as the row with zeros is stored differently.
bool may_have_zeros(const StoredRow& row);
RowPair with_zeros(RowPair pair, const StoredRow& row);
void allow_zeros(StoredRow& stored, const StoredRow& with_zeros);
// Rows of the packed segment.
std::vector<StoredRow> as_packed(Session& session, const CacheSetup& setup, const std::vector<RowPair>& rows);
// The same of a row that lies in another packed segment less its means, which both have. No mean is added on the way.
StoredRow as_requantized(Session& session, const CacheSetup& setup, const StoredRow& row, const RowPair& means);

} // namespace winnow::conformance
