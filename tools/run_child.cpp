// fork, execvp, and waiting for signals.
#include "run_child.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <stdexcept>

namespace winnow::tools {

namespace fs = std::filesystem;

namespace {

std::vector<char*> pointers_to(std::vector<std::string>& command) {
    std::vector<char*> pointers;
    pointers.reserve(command.size() + 1);
    for (std::string& each : command) pointers.push_back(each.data());
    pointers.push_back(nullptr);
    return pointers;
}

struct Pipe {
    Pipe() {
        if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error(std::string("no pipe: ") + std::strerror(errno));
    }
    ~Pipe() {
        close_end(0);
        close_end(1);
    }
    Pipe(const Pipe&) = delete;
    Pipe& operator=(const Pipe&) = delete;
    void close_end(int which) {
        if (ends[which] >= 0) ::close(ends[which]);
        ends[which] = -1;
    }
    int ends[2] = {-1, -1};
};

// Those that users and service managers send. What a terminal sends goes to the program as well as to this process.
sigset_t waited_signals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int each : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) sigaddset(&set, each);
    return set;
}

Ended ended_with(int status) {
    if (WIFSIGNALED(status)) return {128 + WTERMSIG(status), WTERMSIG(status)};
    return {WEXITSTATUS(status), 0};
}

} // namespace

std::string find_program(const std::string& name) {
    if (name.find('/') != std::string::npos) return ::access(name.c_str(), X_OK) == 0 ? name : "";
    const char* const path = std::getenv("PATH");
    std::istringstream folders(path ? path : "");
    for (std::string folder; std::getline(folders, folder, ':');) {
        const fs::path found = fs::path(folder.empty() ? "." : folder) / name;
        if (fs::is_regular_file(found) && ::access(found.c_str(), X_OK) == 0) return found;
    }
    return "";
}

Ended run_child(const std::vector<std::string>& command) {
    std::vector<std::string> copy = command;
    const std::vector<char*> arguments = pointers_to(copy);
    Pipe refusal; // the program closes it as it starts
    const sigset_t waited = waited_signals();
    sigset_t before;
    std::signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_BLOCK, &waited, &before);
    const pid_t own = ::getpid(), child = ::fork();
    if (child < 0) throw std::runtime_error(std::string("cannot start a process: ") + std::strerror(errno));
    if (child == 0) {
        sigprocmask(SIG_SETMASK, &before, nullptr);
        ::prctl(PR_SET_PDEATHSIG, SIGTERM); // no program outlives the command that was to wait for it
        if (::getppid() != own) ::_exit(1);
        ::execvp(arguments[0], arguments.data());
        const int code = errno;
        static_cast<void>(!::write(refusal.ends[1], &code, sizeof code));
        ::_exit(1);
    }
    refusal.close_end(1);
    int code = 0;
    const bool is_refused = ::read(refusal.ends[0], &code, sizeof code) == sizeof code;
    for (;;) {
        siginfo_t info{};
        const int signal = sigwaitinfo(&waited, &info);
        if (signal == SIGCHLD) {
            int status = 0;
            if (::waitpid(child, &status, WNOHANG) != child) continue;
            if (is_refused) throw std::runtime_error("cannot start " + command[0] + ": " + std::strerror(code));
            return ended_with(status);
        }
        if (signal > 0 && info.si_code <= 0) ::kill(child, signal); // of a process, not of the terminal
    }
}

std::string output_of(const std::vector<std::string>& command, std::chrono::milliseconds most) {
    std::vector<std::string> copy = command;
    const std::vector<char*> arguments = pointers_to(copy);
    Pipe output;
    const pid_t child = ::fork();
    if (child < 0) return "";
    if (child == 0) {
        ::setpgid(0, 0);
        ::unsetenv("GGML_BACKEND_PATH");
        const int nothing = ::open("/dev/null", O_RDONLY);
        ::dup2(nothing, STDIN_FILENO);
        ::dup2(output.ends[1], STDOUT_FILENO);
        ::dup2(output.ends[1], STDERR_FILENO);
        ::execvp(arguments[0], arguments.data());
        ::_exit(1);
    }
    output.close_end(1);
    std::string text;
    bool is_whole = false;
    const auto end = std::chrono::steady_clock::now() + most;
    for (char part[4096]; !is_whole;) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
        pollfd ready{output.ends[0], POLLIN, 0};
        if (left.count() <= 0 || ::poll(&ready, 1, static_cast<int>(left.count())) <= 0) break;
        const ssize_t count = ::read(output.ends[0], part, sizeof part);
        if (count > 0) text.append(part, static_cast<size_t>(count));
        is_whole = count == 0;
    }
    ::kill(-child, SIGKILL); // with what it has started; one that has ended stays to be waited for
    ::waitpid(child, nullptr, 0);
    return is_whole ? text : "";
}

} // namespace winnow::tools
