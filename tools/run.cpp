// Checks what was asked for, sets the plugin's variables, adds flags, runs the program and reads the plugin's notes.
#include "run.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>
#include <stdexcept>

#include "environment_check.hpp"
#include "installation.hpp"
#include "last_run.hpp"
#include "run_child.hpp"
#include "run_flags.hpp"
#include "run_outcome.hpp"

namespace winnow::tools {

namespace fs = std::filesystem;

namespace {

constexpr int cannot_start = 126, not_there = 127;
constexpr std::chrono::seconds longest_help{10};

// What makes caches virtual. Throws std::runtime_error where it is neither a configuration nor rules of such.
std::string checked_kv(const RunOptions& options) {
    const bool is_set = std::getenv("WINNOW_KV") != nullptr;
    std::string kv = options.kv ? *options.kv : is_set ? variable("WINNOW_KV") : "winnow";
    if (kv.empty()) return kv;
    check_kv(options.kv ? "--kv " : "WINNOW_KV=", kv);
    return kv;
}

ProgramFlags ask_flags(const std::string& program, const std::vector<std::string>& command) {
    if (!may_be_asked(program)) return {};
    std::vector<std::string> question{command.front()};
    // `llama serve`: the program of all programs knows flags behind the name of one.
    if (command.size() > 1 && fs::path(program).filename() == "llama" && !command[1].starts_with('-'))
        question.push_back(command[1]);
    question.emplace_back("--help");
    return flags_in(output_of(question, longest_help));
}

// A file for the plugin's notes, as long as the program runs.
class NotesFile {
public:
    NotesFile() {
        std::error_code error;
        const fs::path folder = fs::temp_directory_path(error);
        if (error)
            throw std::runtime_error("no folder for temporary files: " + error.message() +
                                     "; expected TMPDIR to name a folder, or to be unset");
        path_ = fs::absolute(folder) / "winnow-run-XXXXXX"; // which the program finds from any folder
        const int file = ::mkstemp(path_.data());
        if (file < 0) throw std::runtime_error("cannot make a file " + path_ + ": " + std::strerror(errno));
        ::close(file);
    }
    ~NotesFile() { ::unlink(path_.c_str()); }
    NotesFile(const NotesFile&) = delete;
    NotesFile& operator=(const NotesFile&) = delete;

    const std::string& path() const { return path_; }
    std::string text() const {
        std::ifstream file(path_, std::ios::binary);
        return {std::istreambuf_iterator<char>(file), {}};
    }

private:
    std::string path_;
};

void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }

void set_plugin_variables(const RunOptions& options, const std::string& plugin, const std::string& kv,
                          const NotesFile& notes) {
    set("GGML_BACKEND_PATH", plugin);
    set("WINNOW_KV", kv);
    set("WINNOW_RUN_LOG", notes.path());
    if (!options.device.empty()) set("WINNOW_DEVICE", options.device);
    if (!options.report.empty()) set("WINNOW_REPORT", options.report);
}

} // namespace

int run_program(const RunOptions& options, std::ostream& err) {
    if (options.command.empty()) {
        err << "winnow run: no program; expected winnow run [OPTIONS] -- PROGRAM [ARGUMENTS]\n";
        return not_started;
    }
    try {
        const std::string program = find_program(options.command.front());
        if (program.empty()) {
            err << "winnow run: there is no program " << options.command.front() << '\n';
            return not_there;
        }
        const std::string kv = checked_kv(options), plugin = chosen_plugin();
        Run run{options.command, ask_flags(program, options.command), {}, {}};
        const NotesFile notes; // not before: a signal while the program is asked would leave it behind
        for (const std::string& flag : flags_to_add(run.flags, options.command)) run.command.push_back(flag);
        set_plugin_variables(options, plugin, kv, notes);
        try {
            run.ended = run_child(run.command);
        } catch (const std::runtime_error& error) {
            err << "winnow run: " << error.what() << '\n';
            return cannot_start;
        }
        run.notes = read_notes(notes.text());
        for (const std::string& warning : run.notes.warnings) err << "winnow: warning: " << warning << '\n';
        const Outcome outcome = outcome_of(run);
        err << "winnow: " << outcome.line << '\n';
        if (!outcome.cure.empty()) err << "winnow: " << outcome.cure << '\n';
        keep_last_run(run, outcome);
        return run.ended.status;
    } catch (const std::exception& error) {
        err << "winnow run: " << error.what() << '\n';
        return not_started;
    }
}

} // namespace winnow::tools
