// winnow-conformance: holds a backend, given as a shared object, against the reference backend through the C table.
//
// Exit status: 0 when every test passed, 1 when some failed or nothing was really tried, 2 when it could not start.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "levels.hpp"
#include "registered_cases.hpp"
#include "session.hpp"

namespace winnow::conformance {
namespace {

constexpr const char* usage =
    "usage: winnow-conformance --backend PATH [options] [--gtest_...]\n"
    "\n"
    "Holds a Winnow backend against the reference backend, through the C headers alone.\n"
    "\n"
    "  --backend PATH    the shared object under test, or a short name such as opencl\n"
    "  --reference PATH  what it is held against (default: the reference that lies beside this program)\n"
    "  --device STRING   as winnow_context_desc.device: gpu, cpu, a number, a part of a name\n"
    "  --variants STRING as winnow_context_desc.variants: forces kernel variants\n"
    "  --level NAMES     run these levels alone: some of core, formats, cache and opencl, with commas in between\n"
    "                    core is what every backend has to pass: the functions of winnow.h, with dense types\n"
    "                    the others are optional: packed formats and operations on rows, and one level for each table\n"
    "  --filter STRING   run the tests whose name contains it; a pattern of GoogleTest's where it has * ? : or -\n"
    "  --seed N          seed of the random cases (default 1)\n"
    "  --cases N         random cases per operation (default 200)\n"
    "  --pairs STRING    formats: all for every format of K with every format of V, sample (40 pairs) or few (20)\n"
    "                    cache: all for every policy in every shape, and ten times as many random schedules\n"
    "                    sdpa: all for any number of rows with all formats and sizes of the random cases\n"
    "  --share K/N       cache: one N-th of the tests, number K from 0 on, by their names; the others are skipped\n"
    "  --small           also the suites formats/small and cache/small: every format in the smallest shapes, for\n"
    "                    devices that are very slow\n"
    "  --log PATH        write what the backend under test logs: on every level, a line each\n"
    "  --list            print the names of the tests and end\n"
    "\n"
    "Exit status: 0 passed, 1 failed, 2 could not start.\n";

Options the_options;
Session the_subject, the_reference;
std::vector<const Level*> chosen_levels;

[[noreturn]] void refuse(const std::string& text) {
    std::fprintf(stderr, "winnow-conformance: %s\n%s", text.c_str(), usage);
    std::exit(2);
}

std::string as_pattern(const std::string& filter) {
    return filter.find_first_of("*?:-") == std::string::npos ? "*" + filter + "*" : filter;
}

void choose_levels(const std::string& text) {
    for (size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
        end = text.find(',', begin);
        const std::string name = text.substr(begin, end == std::string::npos ? end : end - begin);
        const Level* const level = find_level(name);
        if (!level) refuse("--level: expected some of " + names_of_levels() + ", got \"" + name + "\"");
        chosen_levels.push_back(level);
    }
}

uint64_t as_number(const std::string& option, const std::string& text) {
    size_t read = 0;
    try {
        const uint64_t number = std::stoull(text, &read);
        if (read == text.size() && text[0] != '-') return number;
    } catch (const std::exception&) {
    }
    refuse(option + ": expected a number, got \"" + text + "\"");
}

void set_share(const std::string& text) {
    const size_t slash = text.find('/');
    if (slash == std::string::npos) refuse("--share: expected K/N, got \"" + text + "\"");
    the_options.share = static_cast<uint32_t>(as_number("--share", text.substr(0, slash)));
    the_options.shares = static_cast<uint32_t>(as_number("--share", text.substr(slash + 1)));
    if (the_options.share >= the_options.shares) refuse("--share: expected K below N, got \"" + text + "\"");
}

Pairs as_pairs(const std::string& text) {
    if (text == "few") return Pairs::few;
    if (text == "sample") return Pairs::sample;
    if (text == "all") return Pairs::all;
    refuse("--pairs: expected few, sample or all, got \"" + text + "\"");
}

// What InitGoogleTest has left over is ours.
void parse(int argc, char** argv) {
    for (int at = 1; at < argc; ++at) {
        std::string option = argv[at], value;
        if (option == "--help") {
            std::printf("%s", usage);
            std::exit(0);
        }
        if (option == "--list") {
            GTEST_FLAG_SET(list_tests, true);
            continue;
        }
        if (option == "--small") {
            the_options.has_small = true;
            continue;
        }
        if (const size_t equals = option.find('='); equals != std::string::npos) {
            value = option.substr(equals + 1);
            option.resize(equals);
        } else {
            if (at + 1 == argc) refuse(option + ": unknown, or without its value");
            value = argv[++at];
        }
        if (option == "--backend")
            the_options.backend = value;
        else if (option == "--reference")
            the_options.reference = value;
        else if (option == "--device")
            the_options.device = value;
        else if (option == "--variants")
            the_options.variants = value;
        else if (option == "--level")
            choose_levels(value);
        else if (option == "--filter")
            GTEST_FLAG_SET(filter, as_pattern(value));
        else if (option == "--seed")
            the_options.seed = as_number(option, value);
        else if (option == "--cases")
            the_options.cases = static_cast<int>(as_number(option, value));
        else if (option == "--pairs")
            the_options.pairs = as_pairs(value);
        else if (option == "--share")
            set_share(value);
        else if (option == "--log")
            the_options.log = value;
        else
            refuse(option + ": unknown");
    }
    if (the_options.backend.empty()) refuse("--backend is missing");
}

// How many tests of the suites with this prefix were selected, skipped ones among them.
int ran(const std::string& prefix) {
    int count = 0;
    const testing::UnitTest& all = *testing::UnitTest::GetInstance();
    for (int at = 0; at < all.total_test_suite_count(); ++at) {
        const testing::TestSuite& suite = *all.GetTestSuite(at);
        if (std::string(suite.name()).rfind(prefix, 0) == 0) count += suite.test_to_run_count();
    }
    return count;
}

// The plugin's own count must be what we believe to have called, and not nothing.
bool was_really_called(const char* operation, uint64_t counted, uint64_t called, int tests) {
    std::printf("  %-10s %llu calls, %d tests\n", operation, static_cast<unsigned long long>(counted), tests);
    if (counted != called) {
        std::printf("FAILED: context_stats says %llu calls of %s, but %llu returned WINNOW_OK\n",
                    static_cast<unsigned long long>(counted), operation, static_cast<unsigned long long>(called));
        return false;
    }
    if (tests > 0 && counted == 0) {
        std::printf("FAILED: tests of %s were selected, but the backend never carried one out\n", operation);
        return false;
    }
    return true;
}

bool core_was_really_called() {
    const winnow_stats stats = the_subject.stats();
    const bool sdpa = was_really_called("sdpa", stats.sdpa_calls, the_subject.sdpa_calls(), ran("sdpa"));
    return was_really_called("kv_append", stats.kv_append_calls, the_subject.kv_append_calls(), ran("kv_append")) &&
           sdpa;
}

// The level formats asks every operation, and has no count of calls for the later ones: that one was carried out is
// known here, what it did by its results.
bool formats_were_really_called() {
    const int tests = ran("formats/") - ran("formats/bad_input") - ran("formats/row_bytes"); // which carry out nothing
    if (tests == 0) return true;
    const uint64_t calls = the_subject.calls();
    std::printf("  %-10s %llu calls of every operation, %llu of them on rows, %d tests\n", "formats",
                static_cast<unsigned long long>(calls), static_cast<unsigned long long>(the_subject.row_calls()),
                tests);
    if (calls > 0 || the_subject.has_not_offered("formats")) return true;
    std::printf("FAILED: tests of formats were selected, but the backend never carried one out\n");
    return false;
}

bool cache_was_really_called() {
    const int tests = ran("cache/") - ran("cache/bad_input"); // which carries out nothing
    if (tests == 0) return true;
    std::printf("  %-10s %llu steps, %d tests\n", "cache", static_cast<unsigned long long>(the_subject.cache_steps()),
                tests);
    if (the_subject.cache_steps() > 0 || the_subject.has_not_offered("cache")) return true;
    std::printf("FAILED: tests of Cache were selected, but the backend never carried out a step\n");
    return false;
}

void list(const char* what, const std::map<std::string, int>& reasons) {
    int cases = 0;
    for (const auto& [reason, count] : reasons) cases += count;
    std::printf("  %s: %d cases%s\n", what, cases, cases ? ", by reason:" : "");
    for (const auto& [reason, count] : reasons) std::printf("    %5d  %s\n", count, reason.c_str());
}

// A level is passed by a run of all of it.
const char* verdict_of(const Level& level, const Tally& tally, bool is_well) {
    if (!is_well || tally.failed > 0) return "DOES NOT CONFORM";
    if (tally.selected < tally.all) return "a part, chosen by --filter";
    if (the_options.shares > 1 && &level == find_level("cache")) return "a part, chosen by --share";
    return tally.passed > 0 ? "CONFORMS" : "NOT OFFERED";
}

bool summarize() {
    const winnow_device_info info = the_subject.info();
    std::printf("\nwinnow-conformance: %s (%s %s)\n  device     %s, %s, %s, kernels \"%s\"\n",
                the_subject.path().c_str(), the_subject.api().backend_name, the_subject.api().backend_version,
                info.name, info.platform, info.driver_version, info.kernel_shape);
    const bool core = core_was_really_called(), formats = formats_were_really_called(),
               cache = cache_was_really_called();
    list("UNSUPPORTED", the_subject.unsupported());
    if (ran("formats"))
        for (const auto& [what, count] : left_out())
            std::printf("  left out: %d %s, which --pairs all has\n", count, what.c_str());
    if (!the_subject.not_offered().empty()) list("NOT OFFERED", the_subject.not_offered());
    int selected = 0;
    for (const Level& level : levels()) {
        const Tally tally = tally_of(level);
        const bool is_well =
            core && (formats || &level != find_level("formats")) && (cache || &level != find_level("cache"));
        selected += tally.selected;
        if (tally.selected > 0)
            std::printf("  level %s: %d passed, %d skipped, %d failed: %s\n", level.name, tally.passed, tally.skipped,
                        tally.failed, verdict_of(level, tally, is_well));
    }
    if (selected == 0) std::printf("FAILED: no test was selected; --list prints their names\n");
    return core && formats && cache && selected > 0;
}

// A suite that were in no level would run in none.
void require_levels() {
    const testing::UnitTest& all = *testing::UnitTest::GetInstance();
    for (int at = 0; at < all.total_test_suite_count(); ++at) {
        const std::string suite = all.GetTestSuite(at)->name();
        if (level_of(suite)) continue;
        std::fprintf(stderr, "winnow-conformance: the suite \"%s\" is in no level of levels.cpp\n", suite.c_str());
        std::exit(2);
    }
}

} // namespace

const Options& options() { return the_options; }
std::map<std::string, int>& left_out() {
    static std::map<std::string, int> instance;
    return instance;
}
Session& subject() { return the_subject; }
Session& reference() { return the_reference; }

} // namespace winnow::conformance

int main(int argc, char** argv) {
    using namespace winnow::conformance;
    for (int at = 1; at < argc; ++at)
        if (std::string(argv[at]) == "--help") parse(argc, argv);
    testing::InitGoogleTest(&argc, argv);
    parse(argc, argv);
    register_abi_checks();
    register_sdpa_vector_cases();
    register_sdpa_prefill_cases();
    register_kv_append_cases();
    register_format_attention();
    register_format_appends();
    register_format_rows();
    register_format_bad_input();
    register_cache_schedules();
    register_cache_steps();
    register_cache_cells();
    register_cache_together();
    register_cache_unlike_layers();
    register_cache_recall();
    register_cache_cold_file();
    register_cache_files();
    register_cache_contract();
    register_cache_no_wait();
    register_cache_rows();
    register_cache_exact_rows();
    register_cache_stats();
    register_cache_describe();
    register_cache_bad_input();
    require_levels();
    GTEST_FLAG_SET(filter, within_levels(GTEST_FLAG_GET(filter), chosen_levels));
    if (GTEST_FLAG_GET(list_tests)) return RUN_ALL_TESTS();
    try {
        the_subject.write_log(the_options.log);
        the_subject.open(the_options.backend, the_options.device, the_options.variants);
        the_reference.open(the_options.reference, "0", "");
    } catch (const std::exception& error) {
        std::fprintf(stderr, "winnow-conformance: %s\n", error.what());
        return 2;
    }
    const int failed = RUN_ALL_TESTS();
    const bool is_well = summarize();
    the_subject.close();
    the_reference.close();
    return failed != 0 || !is_well ? 1 : 0;
}
