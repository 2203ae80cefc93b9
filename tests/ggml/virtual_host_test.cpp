// What a host sees of virtual caches besides results, with ggml's own scheduler: the report and where it is written,
// the log, states that are refused, and contexts that end as late as the process.
//
//   virtual_host_test <libwinnow_ggml.so> <folder for files> [<beginning of the name of the caches' device>]
//
// with WINNOW_KV=winnow:residual=0.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "layer_host.hpp"

namespace {

using layer_host::cells;
using layer_host::expect;
using layer_host::heads;
using layer_host::Host;
using layer_host::size;
using layer_host::tokens;

std::filesystem::path folder;
std::string device_name; // of virtual caches, or its beginning
std::string logged;

void log(enum ggml_log_level, const char *text, void *) { logged += text; }

bool says(const std::string &line) { return logged.find(line) != std::string::npos; }

// A use of a cache, at whose end the report is written.
void use_once() { Host().decode(0); }

void expect_report(const std::string &text, const std::string &where) {
    expect(nlohmann::json::accept(text) && text.find("cache_k_l0") != std::string::npos, where + " has " + text);
}

void writes_through_a_link() {
    const auto link = folder / "link.json", file = folder / "report-of-link.json";
    std::filesystem::remove(link);
    std::ofstream(file) << "old";
    std::filesystem::create_symlink(file, link);
    setenv("WINNOW_REPORT", link.c_str(), 1);
    use_once();
    unsetenv("WINNOW_REPORT");
    expect(std::filesystem::is_symlink(link), "the link was replaced");
    std::ifstream written(file);
    expect_report({std::istreambuf_iterator<char>(written), {}}, "the file that the link leads to");
}

void writes_into_a_pipe() {
    const auto pipe = folder / "pipe.json";
    std::filesystem::remove(pipe);
    expect(mkfifo(pipe.c_str(), 0600) == 0, "no pipe");
    const int end = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
    expect(end >= 0, "the pipe cannot be opened");
    setenv("WINNOW_REPORT", pipe.c_str(), 1);
    std::string text(1 << 16, '\0');
    {
        Host host;
        host.decode(0);
    }
    unsetenv("WINNOW_REPORT");
    const ssize_t count = read(end, text.data(), text.size());
    close(end);
    expect(std::filesystem::is_fifo(pipe), "the pipe was replaced");
    expect(count > 0 && text.find("cache_k_l0") != std::string::npos, "nothing came out of the pipe");
}

// An encoder's keys are no cache's.
void warns_of_caches_only() {
    const char *warning = "are not virtual in spite of WINNOW_KV";
    logged.clear();
    {
        Host host;
        Host::Graph graph = host.begin();
        ggml_tensor *keys = ggml_new_tensor_3d(graph.context, GGML_TYPE_F16, size, cells, heads);
        ggml_set_input(keys);
        ggml_set_name(keys, "keys");
        graph.attention = ggml_flash_attn_ext(graph.context, graph.q, keys, keys, graph.mask, 0.125F, 0, 0);
        ggml_set_output(graph.attention);
        host.give_to_device(graph.attention);
        ggml_build_forward_expand(graph.graph, graph.attention);
        expect(host.compute(graph, 0) == GGML_STATUS_SUCCESS, "an attention without a cache failed");
    }
    expect(says("1 attention and"), "another device computed the attention: " + logged);
    expect(!says(warning), "an attention without a cache is warned of: " + logged);
    {
        Host host;
        Host::Graph graph = host.begin();
        ggml_tensor *scores = ggml_mul_mat(graph.context, host.view(host.k), graph.q); // no virtual cache takes that
        ggml_set_output(scores);
        ggml_build_forward_expand(graph.graph, scores);
        host.attend(graph, graph.mask);
        expect(host.plan(graph) && host.compute(graph, 0) == GGML_STATUS_SUCCESS, "an attention in place failed");
    }
    expect(says(warning), "nobody warns of a cache in place: " + logged);
}

void set_kv(const char *config) {
    using Set = int (*)(const char *, char *, size_t);
    ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(ggml_backend_dev_by_name("Winnow"));
    const auto set = reinterpret_cast<Set>(ggml_backend_reg_get_proc_address(reg, "winnow_ggml_set_kv"));
    char message[512] = "";
    expect(set(config, message, sizeof message) == 0, message);
}

// What there is now: the configuration of the cache with this first tensor and so many cells.
std::string config_of(const char *name, int64_t its_cells) {
    using Write = size_t (*)(char *, size_t);
    ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(ggml_backend_dev_by_name("Winnow"));
    const auto write = reinterpret_cast<Write>(ggml_backend_reg_get_proc_address(reg, "winnow_ggml_caches"));
    std::string text(write(nullptr, 0) + 1, '\0');
    text.resize(write(text.data(), text.size()));
    for (const auto &cache : nlohmann::json::parse(text))
        if (cache.at("name") == name && cache.at("cells") == its_cells) return cache.at("config");
    throw std::runtime_error(std::string("no ") + name + " in " + text);
}

constexpr const char *budget = "window:budget=64,k=f16,v=f16";
constexpr int64_t few_cells = 128; // of the layers with windows

// Plans a graph with an attention over each of two caches, under masks of their own, as a model with windows has it.
// The mask of the first is made first; its cache has no more cells than the other.
void plan_both(Host &first, Host &second) {
    Host::Graph graph = first.begin();
    first.attend(graph, graph.mask);
    ggml_tensor *mask = ggml_new_tensor_2d(graph.context, GGML_TYPE_F16, first.k->ne[1], tokens);
    ggml_set_input(mask);
    ggml_tensor *attention =
        ggml_flash_attn_ext(graph.context, graph.q, first.view(second.k), first.view(second.v), mask, 0.125F, 0, 0);
    ggml_build_forward_expand(graph.graph, attention);
    expect(first.plan(graph), "cannot plan");
}

// Of a model with windows `kv` is what the other layers have, in the report of caches in use, too.
void names_the_string_that_was_asked_for() {
    const auto file = folder / "living.json";
    set_kv(budget);
    setenv("WINNOW_REPORT", file.c_str(), 1);
    Host all, windows("Winnow", 1, few_cells);
    plan_both(windows, all);
    all.decode(0);
    windows.decode(0);
    unsetenv("WINNOW_REPORT");
    set_kv("winnow:residual=0");
    const nlohmann::json report = nlohmann::json::parse(std::ifstream(file));
    expect(report.at("living").size() == 2, "other caches: " + report.at("living").dump());
    expect(report.at("kv") == budget, "kv is " + report.at("kv").dump());
}

bool has_budget(const char *name, int64_t its_cells) {
    return config_of(name, its_cells).find("budget=64") != std::string::npos;
}

// By the masks of one graph: the cache with fewer cells, or, of two with as many, the one whose mask was made later.
void tells_windows_from_other_caches() {
    constexpr int64_t fewest = few_cells / 2;
    set_kv(budget);
    Host all, windows("Winnow", 1, few_cells), other("Winnow", 1, fewest);
    plan_both(windows, all);
    for (Host *host : {&windows, &all, &other}) host->decode(0);
    expect(has_budget("cache_k_l0", cells), "layers beside those with windows have " + config_of("cache_k_l0", cells));
    expect(!has_budget("cache_k_l1", few_cells), "windows have " + config_of("cache_k_l1", few_cells));
    expect(has_budget("cache_k_l1", fewest), "another model's cache has " + config_of("cache_k_l1", fewest));
    Host equal("Winnow", 2, 2 * cells), equal_windows("Winnow", 3, 2 * cells);
    plan_both(equal, equal_windows);
    for (Host *host : {&equal, &equal_windows}) host->decode(0);
    set_kv("winnow:residual=0");
    expect(has_budget("cache_k_l2", 2 * cells), "beside full windows: " + config_of("cache_k_l2", 2 * cells));
    expect(!has_budget("cache_k_l3", 2 * cells), "full windows have " + config_of("cache_k_l3", 2 * cells));
}

// The other layers may be in a cache of another backend.
void tells_windows_beside_another_backend() {
    set_kv(budget);
    Host all("CPU"), windows("Winnow", 1, few_cells);
    plan_both(windows, all);
    windows.decode(0);
    set_kv("winnow:residual=0");
    expect(!has_budget("cache_k_l1", few_cells), "windows have " + config_of("cache_k_l1", few_cells));
}

// Addresses that are only reserved count for no limit.
void reserves_addresses_alone() {
    constexpr size_t more = size_t{1} << 30;
    rlimit limit{};
    expect(getrlimit(RLIMIT_DATA, &limit) == 0, "no limit");
    size_t now = 0; // KiB
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;)
        if (word == "VmData:") status >> now;
    expect(now > 0, "no VmData");
    const rlimit lower{now * 1024 + more / 4, limit.rlim_max};
    ggml_backend_buffer_type_t type = ggml_backend_dev_buffer_type(ggml_backend_dev_by_name("Winnow"));
    expect(setrlimit(RLIMIT_DATA, &lower) == 0, "the limit cannot be set");
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(type, more);
    if (buffer) ggml_backend_buffer_clear(buffer, 0);
    setrlimit(RLIMIT_DATA, &limit);
    expect(buffer != nullptr, "a virtual cache counts as memory");
    ggml_backend_buffer_free(buffer);
}

// %p is the number of the process, in the trace's name, too, which was there before the first context.
void writes_files_of_its_own() {
    setenv("WINNOW_REPORT", (folder / "report-%p.json").c_str(), 1);
    use_once();
    unsetenv("WINNOW_REPORT");
    for (const char *name : {"report-", "trace-"}) {
        const auto file = folder / (name + std::to_string(getpid()) + ".json");
        std::ifstream written(file);
        const std::string text{std::istreambuf_iterator<char>(written), {}};
        std::filesystem::remove(file);
        expect(nlohmann::json::accept(text), file.string() + " has " + text);
    }
}

// A long sequence, and a short one in its first cells.
void reports_the_fullest() {
    {
        Host host;
        for (int64_t first = 0; first < 10 * tokens; first += tokens) host.decode(first);
        host.decode(0);
    }
    const nlohmann::json cache = layer_host::report().at("caches").back();
    expect(cache.at("tokens") == 10 * tokens, "at its fullest: " + cache.dump());
    expect(cache.at("tokens_seen") == 11 * tokens && cache.at("steps") == 11, "counted twice: " + cache.dump());
}

// Of a cache that attended twice: the graphs, and nothing else.
void counts_by_device() {
    const auto counts_of = [] { // kernel launches, copies and waits
        const nlohmann::json devices = layer_host::report().at("devices");
        for (const auto &device : devices)
            if (device.at("name").get<std::string>().find(device_name) == 0)
                return std::vector<uint64_t>{device.at("kernel_launches"), device.at("host_copies"),
                                             device.at("waits")};
        throw std::runtime_error("nothing is counted on " + device_name + ": " + devices.dump());
    };
    use_once();
    const auto before = counts_of();
    {
        Host host;
        host.decode(0);
        host.decode(tokens);
    }
    const auto after = counts_of();
    expect(after[0] > before[0], "no launch is counted");
    expect(after[2] == before[2] + 2, std::to_string(after[2] - before[2]) + " waits for two graphs");
    expect((after[1] > before[1]) == !device_name.empty(), "copies: " + std::to_string(after[1] - before[1]));
}

// A bit of a record is another: whoever needs the state fails, until its cells are used again.
void loses_a_state_only() {
    Host host;
    std::vector<char> k(static_cast<size_t>(heads * size * 2 * tokens)), v(k.size());
    const auto expected = host.decode(0);
    ggml_backend_tensor_get(host.k, k.data(), 0, k.size());
    ggml_backend_tensor_get(host.v, v.data(), 0, v.size());
    const auto restore = [&] { // and nothing else is there
        for (ggml_tensor *cache : {host.k, host.v}) ggml_backend_tensor_memset(cache, 0, 0, 2 * k.size());
        ggml_backend_tensor_set(host.k, k.data(), 0, k.size());
        ggml_backend_tensor_set(host.v, v.data(), 0, v.size());
    };
    const auto goes_on = [&] {
        Host::Graph graph = host.begin();
        host.attend(graph, graph.mask);
        return host.compute(graph, tokens) == GGML_STATUS_SUCCESS;
    };
    restore();
    expect(goes_on(), "the whole state fails");
    k[k.size() - size] ^= 4; // of the last token, which is packed
    logged.clear();
    restore();
    expect(!goes_on() && says("a state was refused") && says("a sequence needs cell 0"), "is taken: " + logged);
    std::vector<char> saved(k.size());
    ggml_backend_tensor_get(host.k, saved.data(), 0, saved.size());
    expect(host.decode(0) == expected, "another sequence in the same cells gives something else");
    expect(goes_on(), "a sequence in the same cells does not go on");
    k = saved; // of what was lost
    restore();
    expect(!goes_on(), "what was lost became a state");
}

// A program that does not ask the buffer ends, and never takes zeros for a cache.
void stops_accesses_by_address() {
    const Host host;
    const pid_t child = fork();
    expect(child >= 0, "no child");
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); // an OpenCL driver may have a handler
        _exit(*(static_cast<const volatile char *>(host.v->data) + ggml_nbytes(host.v) / 2));
    }
    int status = 0;
    waitpid(child, &status, 0);
    expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "status " + std::to_string(status));
}

// Destroyed after what the plugin has: its library is loaded later.
std::unique_ptr<Host> late;

} // namespace

int main(int count, char **arguments) {
    ggml_log_set(log, nullptr);
    if (count != 3 && count != 4) return 2;
    if (count == 4) device_name = arguments[3];
    folder = arguments[2];
    setenv("WINNOW_TRACE", (folder / "trace-%p.json").c_str(), 1);
    setenv("WINNOW_REPORT_EVERY", "1e-6", 1);
    if (!ggml_backend_load(arguments[1])) return 2;
    int failures = 0;
    const auto run = [&](const char *name, void (*test)()) {
        try {
            test();
            std::printf("ok: %s\n", name);
        } catch (const std::exception &error) {
            std::printf("FAILED: %s: %s\n", name, error.what());
            ++failures;
        }
    };
    run("a report through a link", writes_through_a_link);
    run("a report into a pipe", writes_into_a_pipe);
    run("a warning of caches in place only", warns_of_caches_only);
    run("the report has the fullest", reports_the_fullest);
    run("counts by device", counts_by_device);
    run("a damaged state", loses_a_state_only);
    run("the string that was asked for", names_the_string_that_was_asked_for);
    run("windows beside other caches", tells_windows_from_other_caches);
    run("windows beside another backend", tells_windows_beside_another_backend);
    run("addresses alone", reserves_addresses_alone);
    run("accesses by address", stops_accesses_by_address);
    run("files of each process", writes_files_of_its_own);
    late = std::make_unique<Host>();
    late->decode(0);
    std::fflush(stdout);
    return failures > 0;
}
