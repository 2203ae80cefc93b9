// Gathers the rows of a plan, and writes what was asked for.
#include "plan.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <ostream>
#include <regex>
#include <stdexcept>

#include "format_bits.hpp"
#include "gguf_header.hpp"
#include "whole_file.hpp"

namespace winnow::tools {

namespace {

namespace fs = std::filesystem;

const char* const f16 = "cpu:k=f16,v=f16";
const char* const q8_0 = "cpu:k=q8_0,v=q8_0";
const char* const always[] = {f16,
                              q8_0,
                              "cpu:k=q5_1,v=q5_1",
                              "cpu:k=q5_0,v=q5_0",
                              "cpu:k=q4_0,v=q4_0",
                              "inplace:k=f16,v=f16",
                              "inplace:k=q8_0,v=q8_0",
                              "winnow",
                              "winnow:v=turbo4,center=on",
                              "winnow:budget=1/2",
                              "winnow:budget=1/4",
                              "winnow:budget=1/8",
                              "winnow:budget=1/8,recall=host"};
// Also, where keys have a bias.
const char* const for_biased_keys[] = {"winnow:k=q8_0", "winnow:budget=1/4,k=q8_0",
                                       "winnow:budget=1/8,recall=host,k=q8_0"};

// What an option asks for. Throws std::runtime_error, which names the option, where that is no configuration whatever
// the model is, or names a file that cannot be read.
Configuration asked_for(const std::string& option, const std::string& text, const Backend& backend) {
    try {
        Configuration config = parse_configuration(text);
        if (config.where == Configuration::Where::winnow) backend.check(config.kv);
        return config;
    } catch (const std::runtime_error& error) {
        throw std::runtime_error(option + ": " + error.what());
    }
}

std::vector<Configuration> configurations(const PlanOptions& options, const Backend& backend, bool has_key_bias) {
    std::vector<Configuration> all;
    const auto add = [&](const Configuration& config) {
        const bool is_there =
            std::any_of(all.begin(), all.end(), [&](const Configuration& other) { return other.name == config.name; });
        if (!is_there) all.push_back(config);
    };
    for (const char* text : always) add(parse_configuration(text));
    if (has_key_bias)
        for (const char* text : for_biased_keys) add(parse_configuration(text));
    for (const std::string& budget : options.budgets) add(asked_for("--budget", "winnow:budget=" + budget, backend));
    for (const std::string& text : options.kv) add(asked_for("--kv", text, backend));
    return all;
}

std::string letters_and_digits(const std::string& text) {
    std::string found;
    for (const char each : text) {
        if (std::isalnum(static_cast<unsigned char>(each)))
            found += static_cast<char>(std::tolower(static_cast<unsigned char>(each)));
    }
    return found;
}

// By the model's name or its file's, which ends with the type of the weights: nothing else in the file says which model
// it is.
bool is_same_model(const std::string& model, const Plan& plan) {
    static const std::regex weights("((iq|q|tq)[0-9][0-9a-z]*|bf16|f16|f32|mxfp4)?gguf");
    const std::string name = letters_and_digits(model);
    const std::string file = letters_and_digits(fs::path(plan.options.model).filename().string());
    return letters_and_digits(plan.shape.name) == name ||
           (file.starts_with(name) && std::regex_match(file.substr(name.size()), weights));
}

PlanRow make_row(const Configuration& config, const Plan& plan, const Costs& costs) {
    PlanRow row;
    row.config = config;
    try {
        row.cost = costs.at(config, plan.context);
        const bool is_winnow = config.where == Configuration::Where::winnow;
        const ggml::CacheMeaning meaning = is_winnow ? costs.meaning(config.kv, plan.context) : ggml::CacheMeaning{};
        row.canonical = is_winnow ? meaning.config : config.name;
        row.evicts = meaning.evicts;
        row.segments = meaning.segments;
        row.key_bits = is_winnow ? ggml::fewest_key_bits(meaning) : ggml::bits_of_code(config.k);
        row.from_f16 = costs.pays_from(config, parse_configuration(f16));
        row.from_q8_0 = costs.pays_from(config, parse_configuration(q8_0));
        const auto is_model = [&](const std::string& model) { return is_same_model(model, plan); };
        row.loss = plan.measured.find(config, plan.context, costs, plan.shape, is_model);
        row.is_measured_on_model = row.loss && is_model(row.loss->model);
    } catch (const std::runtime_error& error) {
        row.refused = error.what();
    }
    return row;
}

std::vector<int64_t> contexts_to_draw(int64_t context) {
    std::vector<int64_t> all;
    const int64_t end = std::min(Costs::longest, std::max<int64_t>(4 * context, 32768));
    for (int64_t each = 256; each <= end; each *= 2) {
        all.push_back(each);
        if (each * 3 / 2 <= end && each >= 512) all.push_back(each * 3 / 2);
    }
    return all;
}

Curve make_curve(const PlanRow& row, const Plan& plan, const Costs& costs) {
    Curve curve{row.config.name, {}};
    for (const int64_t context : plan.contexts) {
        uint64_t total = 0;
        try {
            total = costs.at(row.config, context).total();
        } catch (const std::runtime_error&) { // for which a budget in bytes or codebooks are not
        }
        curve.totals.push_back(total);
    }
    return curve;
}

} // namespace

Plan make_plan(const PlanOptions& options) {
    if (!options.plot.empty() && fs::path(options.plot).extension() != ".svg") {
        throw std::runtime_error("--plot " + options.plot + ": expected a name that ends in .svg");
    }
    Plan plan;
    plan.options = options;
    const GgufHeader header(options.model);
    plan.shape = read_shape(header);
    plan.shape.has_key_bias = header.has_key_bias();
    plan.context = options.context != 0 ? options.context : plan.shape.trained_context;
    if (plan.context == 0) throw std::runtime_error(options.model + " has no context_length; say --context");
    if (plan.context < 1 || plan.context > Costs::longest) {
        throw std::runtime_error("--context " + std::to_string(plan.context) + ": expected 1 to " +
                                 std::to_string(Costs::longest));
    }
    plan.cells = cells_of(plan.shape.groups.front(), plan.context, options.ubatch);
    plan.contexts = contexts_to_draw(plan.context);
    const Backend backend(options.backend);
    const Costs costs(backend, plan.shape, options.ubatch, plan.measured.added());
    for (const Configuration& config : configurations(options, backend, plan.shape.has_key_bias)) {
        plan.rows.push_back(make_row(config, plan, costs));
        if (config.name == q8_0) plan.has_q8_0 = plan.rows.back().refused.empty();
        if (plan.rows.back().refused.empty()) plan.curves.push_back(make_curve(plan.rows.back(), plan, costs));
    }
    recommend(plan, costs);
    return plan;
}

int run_plan(const PlanOptions& options, std::ostream& out, std::ostream& err) {
    const Plan plan = make_plan(options);
    // The table comes last, so that a file that cannot be written is not missed behind it.
    if (!options.json.empty() && options.json != "-") write_file(options.json, to_json(plan));
    if (!options.plot.empty()) write_file(options.plot, to_svg(plan));
    out << (options.json == "-" ? to_json(plan) : to_text(plan));
    // What was asked for by name, and the model cannot have.
    int status = 0;
    for (const PlanRow& row : plan.rows) {
        const bool is_asked =
            std::any_of(options.kv.begin(), options.kv.end(),
                        [&](const std::string& text) { return parse_configuration(text).name == row.config.name; }) ||
            std::any_of(options.budgets.begin(), options.budgets.end(),
                        [&](const std::string& budget) { return "winnow:budget=" + budget == row.config.name; });
        if (row.refused.empty() || !is_asked) continue;
        err << "winnow plan: " << row.config.name << ": " << row.refused << '\n';
        status = 1;
    }
    return status;
}

} // namespace winnow::tools
