// Profiles: files as the ggml host reads them, and budgets as adaptive_budget divides them.
//
//     weights, shape and budget (16 bytes); a line of layers' names; the file, or, by the first bit, doubles
#include <algorithm>
#include <cmath>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend.hpp"
#include "cache/plan/budget.hpp"
#include "device/device.hpp"
#include "input.hpp"
#include "profile_file.hpp"

using namespace winnow;
using namespace winnow::fuzz;

namespace {

struct Case {
    bool is_binary = false;
    cache::Shape shape;
    std::string config;
};

std::string weight(Input& input) {
    static constexpr const char* weights[] = {"1", "0", "0.001", "1000", "1e-300", "0.5", "333.25"};
    return input.choice(weights);
}

Case draw(Input& input) {
    static constexpr const char* budgets[] = {"1/4", "1/1", "1/100", "64", "200", "999", "3000B", "64K", "1M"};
    static constexpr const char* leasts[] = {"1/2", "0/1", "1/1", "1/1000", "9/10"};
    static constexpr const char* policies[] = {"h2o", "winnow", "window", "scissorhands", "random", "tova"};
    Case drawn;
    drawn.is_binary = (input.byte() & 1) != 0;
    cache::LayerShape layer{.v_head_size = 16};
    layer.kv_heads = layer.q_heads = input.within(1, 2);
    layer.head_size = 16 * input.within(1, 2);
    drawn.shape.layers = {layer};
    drawn.shape.context = input.within(1, 4096);
    std::ostringstream text;
    text << "adaptive_budget:budget=" << input.choice(budgets) << ",sink=" << input.within(0, 4)
         << ",least=" << input.choice(leasts) << ",policy=" << input.choice(policies) << ",entropy=" << weight(input)
         << ",concentration=" << weight(input) << ",variance=" << weight(input);
    if (input.chance(64)) text << ",residual=" << input.within(0, 60);
    drawn.config = text.str();
    return drawn;
}

// As many tokens as the flat budget has, none of them less than what is protected, none more than the context.
void check_plan(const Case& drawn, const cache::Plan& plan) {
    require(plan.layer_tokens.size() == drawn.shape.layers.size(), "each layer has a budget");
    int64_t sum = 0;
    for (const int64_t tokens : plan.layer_tokens) {
        require(tokens > plan.sink + plan.residual, "a layer has more than its dense rows");
        require(tokens <= drawn.shape.context, "no layer has more than the context");
        sum += tokens;
    }
    require(sum == plan.tokens * drawn.shape.layer_count(), "the budgets are the flat budget, divided");
}

void divide(Case drawn, const std::vector<double>& numbers) {
    std::vector<cache::LayerProfile> profile;
    for (size_t at = 0; at + 2 < numbers.size(); at += 3) {
        profile.push_back({numbers[at], numbers[at + 1], numbers[at + 2]});
    }
    if (profile.empty()) return;
    drawn.shape.layers.resize(profile.size(), drawn.shape.layer(0));
    const bool is_finite = std::all_of(numbers.begin(), numbers.end(), [](double each) { return std::isfinite(each); });
    try {
        const cache::Plan plan = cache::plan(cache::parse(drawn.config), drawn.shape, profile);
        require(is_finite, "a profile with NaN or infinity is refused");
        check_plan(drawn, plan);
    } catch (const Error& error) {
        require(error.status() == WINNOW_ERROR_INVALID_ARGUMENT, "a refusal is of the argument");
    }
}

std::vector<std::string> words_of(const std::string& line) {
    std::istringstream words(line);
    std::vector<std::string> found;
    for (std::string word; words >> word;) found.push_back(word);
    return found;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const MemoryFile file;
    Input input(data, size);
    const Case drawn = draw(input);
    if (drawn.is_binary) {
        std::vector<double> numbers;
        while (!input.is_empty() && numbers.size() < 300) numbers.push_back(input.number<double>());
        numbers.resize(numbers.size() / 3 * 3);
        divide(drawn, numbers);
        return 0;
    }
    const std::string names = input.text('\n');
    file.write(input.rest());
    try {
        const std::vector<std::string> layers = words_of(names);
        const std::vector<double> numbers = ggml::read_profile(file.path(), layers);
        require(numbers.size() == 3 * layers.size(), "each layer has three numbers");
        for (const double number : numbers) require(std::isfinite(number), "a file's numbers are finite");
        divide(drawn, numbers);
    } catch (const std::runtime_error& error) {
        require(error.what()[0] != 0, "a refusal has a reason");
    }
    return 0;
}
