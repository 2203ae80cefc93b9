// When an operation is tested, and what becomes of the result.
#include "opencl/self_test.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>

#include "opencl/kernel_sources.hpp"
#include "opencl/runtime_state.hpp"
#include "opencl/self_test_cases.hpp"
#include "opencl/variants.hpp"

namespace winnow::opencl {
namespace {

constexpr std::string_view right = "right";

ProgramKey key_of(const Programs& programs, const Variant& variant, const std::string& way) {
    const auto sources = kernel_sources();
    const auto source = std::find_if(sources.begin(), sources.end(),
                                     [&](const KernelSource& each) { return each.name == variant.file; });
    std::string options = programs.options_of_all();
    options.append(" self-test ").append(backend_digest()).append(": ").append(way);
    return programs.key_of(source->hash, options);
}

std::vector<std::byte> bytes_of(std::string_view text) {
    const auto* const first = reinterpret_cast<const std::byte*>(text.data());
    return {first, first + text.size()};
}

std::string text_of(const std::vector<std::byte>& bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Says nothing of a kernel: what is lacking, or does not exist. Out of resources is a kernel that does not fit, or, as
// NVIDIA's driver has it, one that reached beyond memory.
bool is_about_something_else(const Error& error) {
    if (std::string_view(error.what()).find("CL_OUT_OF_RESOURCES") != std::string_view::npos) return false;
    return error.status() == WINNOW_ERROR_UNSUPPORTED || error.status() == WINNOW_ERROR_OUT_OF_MEMORY;
}

} // namespace

SelfTest::SelfTest(RuntimeState& state, const VariantOptions& forced, MakeDevice make)
    : state_(state), forced_(forced), make_(std::move(make)) {}

std::string SelfTest::wrong_with(const Variant& variant, const std::string& way, std::string (*run)(Device&)) {
    if (std::find(used_.begin(), used_.end(), way) != used_.end()) return {};
    std::string wrong = found(variant, way, run);
    if (wrong.empty()) used_.push_back(way);
    return wrong;
}

std::string SelfTest::found(const Variant& variant, const std::string& way, std::string (*run)(Device&)) {
    const ProgramKey key = key_of(state_.programs, variant, way);
    const ProgramCache& cache = state_.programs.cache();
    if (const std::optional<std::vector<std::byte>> kept = cache.load(key)) {
        std::string was = text_of(*kept);
        return was == right ? std::string() : was + " (when it was tested)";
    }
    const auto start = std::chrono::steady_clock::now();
    std::unique_ptr<Device> device;
    std::string wrong;
    try {
        device = make_(state_);
        wrong = run(*device);
    } catch (const Error& error) {
        if (device != nullptr && !is_about_something_else(error)) return error.what(); // which may pass: it is not kept
        state_.log(WINNOW_LOG_INFO, "self-test: " + way + " could not be tested, and is used: " + error.what());
        return {};
    }
    const auto spent = std::chrono::steady_clock::now() - start;
    const std::string obstacle = cache.store(key, bytes_of(wrong.empty() ? right : wrong));
    if (!obstacle.empty() && !std::exchange(is_forgetting_, true))
        state_.log(WINNOW_LOG_INFO, "self-test: results are not kept, and each context tests anew: " + obstacle);
    if (wrong.empty())
        state_.log(WINNOW_LOG_INFO,
                   "self-test: " + way + " is right, which took " +
                       std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(spent).count()) + " ms");
    return wrong;
}

bool SelfTest::is_attention_tested() const {
    const bool is_forced = !forced_.shape.empty() || !forced_.kernel.empty() || !forced_.tensor.empty() ||
                           forced_.subgroup != 0 || forced_.launches != 0 || forced_.splits != 0;
    return make_ != nullptr && !is_forced;
}

void SelfTest::leave_wrong_attention() {
    Capabilities& capabilities = state_.capabilities;
    for (;;) {
        const Variant& variant = choose_variant("sdpa", capabilities, forced_, 1, 1);
        if (variant.shape == "cpu") return;
        const bool has_subgroups = variant.shape == "subgroup";
        const bool multiplies = has_subgroups && choose_subgroups(capabilities, forced_).multiplies;
        const std::string way = multiplies ? "tensor cores" : "the shape " + std::string(variant.shape);
        std::string wrong;
        const auto its = std::find_if(attention_.begin(), attention_.end(), [&](const AttentionTest& each) {
            wrong = wrong_with(variant, std::string(each.what) + " with " + way, each.run);
            return !wrong.empty();
        });
        if (its == attention_.end()) return;
        if (multiplies)
            capabilities.has_tensor_cores = false;
        else if (has_subgroups)
            capabilities.subgroup_sizes = 0;
        else
            capabilities.wrong_in_groups.push_back(variant.operation);
        std::string warning = "this driver gets ";
        warning.append(its->what).append(" wrong with ").append(way);
        state_.log(WINNOW_LOG_WARNING,
                   warning.append(", so attention does not use ").append(way).append(": ").append(wrong));
    }
}

void SelfTest::test_attention() {
    if (!is_attention_tested()) return;
    test_also({"attention", opencl::test_attention});
    Capabilities& capabilities = state_.capabilities;
    const Variant& prompt =
        choose_variant("sdpa", capabilities, forced_, self_test_tokens, self_test_heads * self_test_tokens);
    if (prompt.fewest_rows <= 1) return; // the kernel that was tested
    const std::string wrong = wrong_with(prompt, "attention of prompts", test_prompt);
    if (wrong.empty()) return;
    capabilities.wrong_in_groups.push_back(prompt.entry_point);
    state_.log(WINNOW_LOG_WARNING, "this driver gets " + std::string(prompt.entry_point) +
                                       " of many query tokens wrong, so prompts use another kernel: " + wrong);
}

void SelfTest::test_slot_attention() { test_also({"a step of a cache", test_fused_attention}); }

void SelfTest::test_packed_attention() { test_also({"attention over packed rows", test_packed_rows}); }

void SelfTest::test_also(const AttentionTest& wanted) {
    const auto is_it = [&](const AttentionTest& each) { return each.run == wanted.run; };
    if (!is_attention_tested() || std::any_of(attention_.begin(), attention_.end(), is_it)) return;
    attention_.push_back(wanted);
    try {
        leave_wrong_attention();
    } catch (...) { // for want of memory: it is tested before the next launch
        attention_.pop_back();
        throw;
    }
}

void SelfTest::test_before(std::string_view operation) {
    const bool is_forced = !forced_.shape.empty() || !forced_.slot_shape.empty();
    if (make_ == nullptr || is_forced || std::find(tested_.begin(), tested_.end(), operation) != tested_.end()) return;
    const Variant& variant = choose_variant(operation, state_.capabilities, {}, 0, 0);
    if (variant.shape != "cpu") test(operation, variant);
    tested_.push_back(operation); // now, so that what fails above for want of memory is tested before the next launch
}

void SelfTest::test(std::string_view operation, const Variant& variant) {
    const auto cases = operation_cases();
    const auto its = std::find_if(cases.begin(), cases.end(),
                                  [&](const OperationCase& each) { return each.operation == operation; });
    if (its == cases.end()) throw Error(WINNOW_ERROR_INTERNAL, "there is no self-test of " + std::string(operation));
    const std::string way = std::string(operation) + " with the shape " + std::string(variant.shape);
    const std::string wrong = wrong_with(variant, way, its->run);
    if (wrong.empty()) return;
    state_.capabilities.wrong_in_groups.push_back(variant.operation);
    state_.log(WINNOW_LOG_WARNING, "this driver gets " + way + " wrong, so another shape is used: " + wrong);
}

} // namespace winnow::opencl
