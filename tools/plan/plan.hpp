// `winnow plan`: what each configuration of the KV cache takes in memory and what it is known to lose, for one model
// and one context.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "costs.hpp"
#include "measured.hpp"

namespace winnow::tools {

struct PlanOptions {
    std::string model;
    int64_t context = 0;              // 0: that which the model was trained on
    std::vector<std::string> budgets; // of `winnow`
    std::vector<std::string> kv;      // further configurations
    int64_t ubatch = 512;
    double max_kld = 0.01; // that a recommendation may have lost
    std::string backend = "reference";
    std::string json; // file, "-" for the output instead of the table; empty: none
    std::string plot; // file, empty: none
};

struct PlanRow {
    Configuration config;
    std::string refused; // why this model cannot have it; then there is nothing else
    std::string canonical;
    bool evicts = false;                       // what is far above may be forgotten
    std::vector<ggml::SegmentTokens> segments; // of a head when the context is full; of Winnow's caches
    double key_bits = 0;                       // of an element's code, where keys have fewest
    Cost cost;
    std::optional<int64_t> from_f16, from_q8_0; // the context from which on it takes less than llama.cpp's own
    std::optional<Loss> loss;
    bool is_measured_on_model = false;
};

// A KV head's tokens when the context is full.
struct TokensOfHead {
    int64_t retained = 0, evicted = 0;
    struct Segment {
        int64_t tokens;
        std::string k, v; // formats
    };
    std::vector<Segment> segments; // that have any, the dense one first
    double packed_bits = 0;        // of a code where packed, K and V on average; 0: nothing is
};
TokensOfHead tokens_of_head(const PlanRow& row, int64_t context);
std::string where_tokens_lie(const PlanRow& row, int64_t context); // the same in a line

struct Curve { // of a row that is not refused
    std::string name;
    std::vector<uint64_t> totals; // at Plan::contexts; 0 where it cannot be
};

struct Plan {
    PlanOptions options;
    ModelShape shape;
    Measured measured;
    int64_t context = 0, cells = 0;
    std::vector<PlanRow> rows; // llama.cpp's own f16 cache is the first
    bool has_q8_0 = true;      // whether the model may have a q8_0 cache to compare with
    std::vector<int64_t> contexts;
    std::vector<Curve> curves;
    std::string recommended; // "" for none
    std::vector<std::string> advice;
};

// Throws std::runtime_error where options or file are refused: of --kv and --budget what is no configuration whatever
// the model is. What only this model cannot have is a row that says so.
Plan make_plan(const PlanOptions& options);

// Fills in `recommended` and `advice`.
void recommend(Plan& plan, const Costs& costs);

std::string to_text(const Plan& plan);
std::string to_json(const Plan& plan);
std::string to_svg(const Plan& plan);
std::string plus_minus(double value, double error, bool with_sign); // "0.0097 ± 0.0006"
std::string grouped(int64_t number);                                // "8,192"
std::string mebibytes(uint64_t bytes);                              // "12.5"

// Returns the exit status: 0, or 1 if the model cannot have what was asked for by name. Throws std::runtime_error,
// before anything is printed, as make_plan does, and where a file cannot be written.
int run_plan(const PlanOptions& options, std::ostream& out, std::ostream& err);

} // namespace winnow::tools
