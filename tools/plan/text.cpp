// The table of a plan, and the same as JSON.
#include "plan.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>

#include <nlohmann/json.hpp>

namespace winnow::tools {

namespace {

using nlohmann::ordered_json;
using Cells = std::vector<std::string>;

std::string fixed(double value, int decimals, bool with_sign = false) {
    char text[64];
    std::snprintf(text, sizeof text, with_sign ? "%+.*f" : "%.*f", decimals, value);
    return text;
}

// Columns of UTF-8 text.
size_t width(const std::string& text) {
    return static_cast<size_t>(std::count_if(
        text.begin(), text.end(), [](char each) { return (static_cast<unsigned char>(each) & 0xc0) != 0x80; }));
}

std::string table(const std::vector<Cells>& rows) {
    std::vector<size_t> widths(rows.front().size(), 0);
    for (const Cells& row : rows) {
        for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
    }
    std::string text;
    for (const Cells& row : rows) {
        std::string line;
        for (size_t i = 0; i < row.size(); ++i) {
            const std::string space(widths[i] - width(row[i]), ' ');
            const bool is_left = i == 0 || i + 1 == row.size(); // names; all else are numbers
            if (i != 0) line.append("  ");
            line.append(is_left ? row[i] : space).append(is_left ? space : row[i]);
        }
        line.erase(line.find_last_not_of(' ') + 1);
        text += line + '\n';
    }
    return text;
}

// The model on which all losses of the plan were measured; "" where they are of several.
std::string model_of_all(const Plan& plan) {
    std::string model;
    for (const PlanRow& row : plan.rows) {
        if (!row.loss) continue;
        if (!model.empty() && row.loss->model != model) return "";
        model = row.loss->model;
    }
    return model;
}

// Lines of at most 110 columns; a line that begins with a space is a command, and stays whole.
std::string wrapped(const std::string& text) {
    std::istringstream lines(text);
    std::string all;
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with(' ')) {
            all += line + '\n';
            continue;
        }
        std::istringstream words(line);
        std::string made;
        for (std::string word; words >> word;) {
            if (!made.empty() && width(made) + 1 + width(word) > 110) {
                all += made + '\n';
                made.clear();
            }
            made.append(made.empty() ? 0 : 1, ' ').append(word);
        }
        all += made + '\n';
    }
    return all;
}

Cells cells_of(const PlanRow& row, const Plan& plan) {
    const auto ratio = [](uint64_t one, uint64_t other) {
        return static_cast<double>(one) / static_cast<double>(other);
    };
    const bool is_plain = row.config.where == Configuration::Where::cpu;
    const auto from = [&](const std::optional<int64_t>& context) {
        return context ? grouped(*context) : std::string(row.config.name == plan.rows[0].config.name ? "-" : "never");
    };
    Cells cells{row.config.name,
                mebibytes(row.cost.bytes),
                grouped(std::llround(ratio(row.cost.bytes, static_cast<uint64_t>(plan.cells)))),
                fixed(ratio(row.cost.bytes, plan.rows[0].cost.bytes), 3),
                is_plain ? "-" : mebibytes(row.cost.added),
                mebibytes(row.cost.total()),
                from(row.from_f16),
                row.config.name == "cpu:k=q8_0,v=q8_0" || !plan.has_q8_0 ? "-" : from(row.from_q8_0),
                "-",
                "-",
                "-"};
    if (row.loss) {
        const Loss& loss = *row.loss;
        cells[8] = plus_minus(loss.kld, loss.kld_se, false);
        cells[9] = plus_minus(loss.ppl_increase_percent, loss.ppl_increase_se, true);
        cells[10] = std::to_string(loss.contexts) + " x " + grouped(loss.context);
        if (model_of_all(plan).empty()) cells[10] += " of " + loss.model;
    }
    return cells;
}

std::string describe(const LayerGroup& group) {
    std::string text = std::to_string(group.layers.size()) + " layers of " + std::to_string(group.q_heads) +
                       " query heads over " + std::to_string(group.kv_heads) + " KV heads of " +
                       std::to_string(group.k_size);
    if (group.values_in_keys)
        text += ", whose first " + std::to_string(group.v_size) + " elements are the values";
    else if (group.v_size != group.k_size)
        text += " and " + std::to_string(group.v_size);
    if (group.window != 0) text += " with a window of " + grouped(group.window);
    return text;
}

ordered_json json_of(const ModelShape& shape, const PlanOptions& options) {
    ordered_json groups = ordered_json::array();
    for (const LayerGroup& group : shape.groups) {
        groups.push_back({{"layers", group.layers},
                          {"q_heads", group.q_heads},
                          {"kv_heads", group.kv_heads},
                          {"k_size", group.k_size},
                          {"v_size", group.v_size},
                          {"window", group.window},
                          {"values_in_keys", group.values_in_keys}});
    }
    return {{"file", options.model},
            {"name", shape.name},
            {"architecture", shape.architecture},
            {"layers", shape.layers},
            {"trained_context", shape.trained_context},
            {"groups", std::move(groups)},
            {"recurrent_layers", shape.recurrent.layers},
            {"recurrent_bytes", shape.recurrent.bytes}};
}

ordered_json json_of(const Loss& loss, bool is_of_this_model) {
    return {{"kld", loss.kld},
            {"kld_se", loss.kld_se},
            {"ppl_increase_percent", loss.ppl_increase_percent},
            {"ppl_increase_se", loss.ppl_increase_se},
            {"configuration", loss.name},
            {"model", loss.model},
            {"is_of_this_model", is_of_this_model},
            {"text", loss.text},
            {"part", loss.part},
            {"context", loss.context},
            {"contexts", loss.contexts},
            {"command", loss.command}};
}

ordered_json json_of(const TokensOfHead& tokens) {
    ordered_json segments = ordered_json::array();
    for (const auto& [count, k, v] : tokens.segments) segments.push_back({{"tokens", count}, {"k", k}, {"v", v}});
    return {{"retained", tokens.retained},
            {"evicted", tokens.evicted},
            {"segments", std::move(segments)},
            {"packed_bits", tokens.packed_bits}};
}

ordered_json json_of(const PlanRow& row, int64_t context) {
    const char* places[] = {"cpu", "inplace", "winnow"};
    ordered_json object{{"name", row.config.name}, {"cache", places[static_cast<int>(row.config.where)]}};
    if (!row.refused.empty()) {
        object["refused"] = row.refused;
        return object;
    }
    const auto or_null = [](const std::optional<int64_t>& value) {
        return value ? ordered_json(*value) : ordered_json(nullptr);
    };
    object.update(
        {{"config", row.canonical},
         {"bytes", row.cost.bytes},
         {"scratch_bytes", row.cost.scratch},
         {"cold_bytes", row.cost.cold},
         {"codebook_bytes", row.cost.codebooks},
         {"disk_bytes", row.cost.disk},
         {"added_bytes", row.cost.added},
         {"total_bytes", row.cost.total()},
         {"tokens_of_head", row.segments.empty() ? ordered_json(nullptr) : json_of(tokens_of_head(row, context))},
         {"less_than_f16_from", or_null(row.from_f16)},
         {"less_than_q8_0_from", or_null(row.from_q8_0)},
         {"loss", row.loss ? json_of(*row.loss, row.is_measured_on_model) : ordered_json(nullptr)}});
    return object;
}

} // namespace

std::string grouped(int64_t number) {
    std::string text = std::to_string(number);
    const size_t first = text[0] == '-' ? 1 : 0;
    for (size_t at = text.size(); at > first + 3;) text.insert(at -= 3, 1, ',');
    return text;
}

std::string mebibytes(uint64_t bytes) {
    const double value = static_cast<double>(bytes) / (1 << 20);
    return value < 1000 ? fixed(value, 1) : grouped(std::llround(value));
}

// Two digits of the error decide where both end.
std::string plus_minus(double value, double error, bool with_sign) {
    const int decimals = error > 0 ? std::clamp(1 - static_cast<int>(std::floor(std::log10(error))), 0, 6) : 6;
    return fixed(value, decimals, with_sign) + " ± " + fixed(error, decimals);
}

std::string to_text(const Plan& plan) {
    const ModelShape& shape = plan.shape;
    std::string text = (shape.name.empty() ? plan.options.model : shape.name) + " (" + shape.architecture + ")";
    for (size_t i = 0; i < shape.groups.size(); ++i) text += (i == 0 ? ": " : ", ") + describe(shape.groups[i]);
    if (shape.recurrent.layers != 0)
        text += "\n" + std::to_string(shape.recurrent.layers) +
                (shape.recurrent.layers == 1 ? " layer keeps" : " layers keep") + " a state of " +
                mebibytes(shape.recurrent.bytes) + " MiB, which no configuration changes and no column counts";
    text += "\na full context of " + grouped(plan.context) + " tokens, " + grouped(plan.cells) + " cells, one sequence";
    if (shape.trained_context != 0 && plan.context > shape.trained_context)
        text += "; the model was trained on " + grouped(shape.trained_context);
    text += "\n\n";
    std::vector<Cells> rows{{"configuration", "cache", "bytes of", "share", "Winnow", "in all", "less than",
                             "less than", "KLD", "perplexity", "measured on"},
                            {"", "MiB", "a token", "of f16", "adds, MiB", "MiB", "f16 from", "q8_0 from", "nats",
                             "more, %", model_of_all(plan)}};
    std::string refused;
    for (const PlanRow& row : plan.rows) {
        if (row.refused.empty())
            rows.push_back(cells_of(row, plan));
        else
            refused += "not with this model: " + row.config.name + ": " + row.refused + '\n';
    }
    text += table(rows) + refused + '\n';
    for (const PlanRow& row : plan.rows)
        if (std::ranges::find(plan.options.kv, row.config.kv) != plan.options.kv.end() && !row.segments.empty())
            text += wrapped(row.config.name + ": " + where_tokens_lie(row, plan.cells));
    for (const std::string& sentence : plan.advice) text += wrapped(sentence);
    return text;
}

std::string to_json(const Plan& plan) {
    ordered_json rows = ordered_json::array(), curves = ordered_json::array();
    for (const PlanRow& row : plan.rows) rows.push_back(json_of(row, plan.cells));
    for (const Curve& curve : plan.curves) curves.push_back({{"name", curve.name}, {"total_bytes", curve.totals}});
    const Measured& measured = plan.measured;
    const ordered_json all{
        {"format", 1},
        {"model", json_of(plan.shape, plan.options)},
        {"context", plan.context},
        {"cells", plan.cells},
        {"ubatch", plan.options.ubatch},
        {"max_kld", plan.options.max_kld},
        {"added",
         {{"in_place_bytes", measured.added().in_place},
          {"winnow_bytes", measured.added().winnow},
          {"model", measured.added_model()},
          {"device", measured.added_device()},
          {"command", measured.added_command()}}},
        {"configurations", std::move(rows)},
        {"contexts", plan.contexts},
        {"curves", std::move(curves)},
        {"recommended", plan.recommended.empty() ? ordered_json(nullptr) : ordered_json(plan.recommended)},
        {"advice", plan.advice}};
    return all.dump(2, ' ', false, ordered_json::error_handler_t::replace) + '\n';
}

} // namespace winnow::tools
