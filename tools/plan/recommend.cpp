// Which configuration a plan recommends, in sentences. Only what was measured is recommended: the one that takes least
// memory of those that lost no more than was allowed; of those that take hardly more, the one that lost least.
#include "plan.hpp"

#include <cstdio>

#include "format_bits.hpp"

namespace winnow::tools {

namespace {

constexpr double near_tie = 1.01; // what Winnow adds to a process is not known better

bool is_winnow(const PlanRow& row) { return row.config.where == Configuration::Where::winnow; }

// Whether a row may be recommended at all: few bits lose too much of keys that have a bias.
bool is_fit(const PlanRow& row, const Plan& plan) {
    return row.refused.empty() && (!plan.shape.has_key_bias || row.key_bits >= ggml::least_bits_of_biased_keys);
}

// The row with least memory, among the fit ones that take(row) accepts.
template <typename Take>
const PlanRow* least(const Plan& plan, Take&& take) {
    const PlanRow* best = nullptr;
    for (const PlanRow& row : plan.rows) {
        if (!is_fit(row, plan) || !take(row)) continue;
        if (!best || row.cost.total() < best->cost.total()) best = &row;
    }
    return best;
}

// Of rows that are as good as level with the one that has least memory, the one that lost least.
template <typename Take>
const PlanRow* best_of(const Plan& plan, Take&& take) {
    const PlanRow* best = least(plan, take);
    if (!best) return nullptr;
    const double most = near_tie * static_cast<double>(best->cost.total());
    for (const PlanRow& row : plan.rows) {
        if (!is_fit(row, plan) || !take(row) || static_cast<double>(row.cost.total()) > most) continue;
        if (row.loss->kld < best->loss->kld) best = &row;
    }
    return best;
}

std::string from(const std::optional<int64_t>& context, const std::string& than) {
    if (!context) return "never less than " + than + " (up to " + grouped(Costs::longest) + " tokens)";
    return "less than " + than + " from " + grouped(*context) + " tokens on";
}

std::string number(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", value);
    return text;
}

// Why rows with few bits for keys are not recommended, with what was measured.
std::string advice_on_biased_keys(const Plan& plan) {
    std::string text =
        "The keys of this model have a bias. Such keys have a few large channels, which formats of fewer "
        "than 8 bits store badly, so configurations with such keys are not recommended.";
    for (const PlanRow& row : plan.rows) {
        if (!row.loss || (row.config.name != "winnow" && row.config.name != "winnow:k=q8_0")) continue;
        text += " " + row.config.name + " lost a KL divergence of " +
                plus_minus(row.loss->kld, row.loss->kld_se, false) + " (" + row.loss->model + ", " +
                grouped(row.loss->context) + " tokens).";
    }
    return text;
}

} // namespace

void recommend(Plan& plan, const Costs& costs) {
    const PlanRow& plain = plan.rows.front();
    const auto is_allowed = [&](const PlanRow& row) { return row.loss && row.loss->kld <= plan.options.max_kld; };
    const PlanRow* best = best_of(plan, is_allowed);
    const PlanRow* winnow = best_of(plan, [&](const PlanRow& row) { return is_winnow(row) && is_allowed(row); });
    if (best) {
        plan.recommended = best->config.name;
        const double share = 100 * static_cast<double>(best->cost.total()) / static_cast<double>(plain.cost.total());
        char percent[16];
        std::snprintf(percent, sizeof percent, "%.0f %%", share);
        plan.advice.push_back("Take " + best->config.name + ": at " + grouped(plan.context) + " tokens it takes " +
                              mebibytes(best->cost.total()) + " MiB, " + percent + " of llama.cpp's f16 cache. " +
                              "No configuration with a measured KL divergence of at most " +
                              number(plan.options.max_kld) + " takes less" +
                              (least(plan, is_allowed) == best ? "." : " by more than 1 %, and this one lost least."));
    } else {
        plan.advice.push_back("No configuration lost a KL divergence of at most " + number(plan.options.max_kld) +
                              " where it was measured: keep llama.cpp's f16 cache.");
    }
    if (winnow) {
        plan.advice.push_back(winnow->config.name + " takes " + from(winnow->from_f16, "llama.cpp's f16 cache") +
                              (plan.has_q8_0 ? ", and " + from(winnow->from_q8_0, "its q8_0 cache") : "") + ".");
        if (best && !is_winnow(*best)) {
            plan.advice.push_back("It takes " + from(costs.pays_from(winnow->config, best->config), best->config.name) +
                                  ".");
        }
    }
    if (plan.shape.has_key_bias) plan.advice.push_back(advice_on_biased_keys(plan));
    const PlanRow* keeper = least(plan, [](const PlanRow& row) { return row.cost.recalls() && !row.evicts; });
    if (best && best->evicts && keeper) {
        const std::string where =
            keeper->cost.disk > 0 ? "lie in a file of " + mebibytes(keeper->cost.disk) + " MiB, without which it takes "
                                  : "are memory of the host's, with which it takes ";
        const std::string lost =
            keeper->loss ? ", and it lost " + plus_minus(keeper->loss->kld, keeper->loss->kld_se, false) : "";
        plan.advice.push_back(best->config.name + " forgets what it evicts. " + keeper->config.name +
                              " keeps every token and attends to those that a query picks: its cold rows " + where +
                              mebibytes(keeper->cost.total()) + " MiB" + lost + ".");
    }
    const PlanRow* unknown = least(plan, [](const PlanRow& row) { return !row.loss; });
    if (unknown && (!best || unknown->cost.total() < best->cost.total())) {
        plan.advice.push_back(unknown->config.name + " takes less, " + mebibytes(unknown->cost.total()) +
                              " MiB, but what it loses has not been measured; this measures it:\n" +
                              "    winnow eval --model " + plan.options.model + " --text FILE --contexts " +
                              std::to_string(plan.context) + " " + unknown->config.name);
    }
    for (const PlanRow& row : plan.rows) {
        if (!row.loss || row.is_measured_on_model) continue;
        plan.advice.push_back("The losses are those of " + row.loss->model +
                              ", not of this model, which loses another amount.");
        break;
    }
}

} // namespace winnow::tools
