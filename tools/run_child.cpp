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
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace winnow::tools {

namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;

// How long a sender may take to reach one process of a group after another.
constexpr std::chrono::milliseconds group_grace{150};

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

// A second child, which only blocks these signals. One that is pending there was sent to the process group, or to all
// processes of a service, and not to this process alone.
class SignalWitness {
public:
    SignalWitness() { start(); }
    ~SignalWitness() { stop(); }
    SignalWitness(const SignalWitness&) = delete;
    SignalWitness& operator=(const SignalWitness&) = delete;

    bool has_seen(int signal) const {
        std::ifstream status("/proc/" + std::to_string(process_) + "/status");
        for (std::string key, value; status >> key && std::getline(status, value);)
            if (key == "ShdPnd:") return (std::strtoull(value.c_str(), nullptr, 16) >> (signal - 1) & 1U) != 0;
        return false;
    }
    void forget() {
        stop();
        start();
    }

private:
    void start() {
        const pid_t own = ::getpid();
        process_ = ::fork();
        if (process_ != 0) return;
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (::getppid() == own) ::pause();
        ::_exit(0);
    }
    void stop() const {
        if (process_ < 0) return;
        ::kill(process_, SIGKILL);
        ::waitpid(process_, nullptr, 0);
    }

    pid_t process_ = -1;
};

// Takes further signals of this number until the sender has reached every process, or the program has ended.
void let_signal_spread(int signal, pid_t child) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    sigaddset(&set, SIGCHLD);
    const auto end = Clock::now() + group_grace;
    for (auto left = end - Clock::now(); left.count() > 0; left = end - Clock::now()) {
        const timespec most{0, std::chrono::nanoseconds(left).count()};
        siginfo_t ended{};
        if (sigtimedwait(&set, nullptr, &most) == SIGCHLD &&
            ::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
            ended.si_pid == child)
            return;
    }
}

Ended ended_with(int status) {
    if (WIFSIGNALED(status)) return {128 + WTERMSIG(status), WTERMSIG(status)};
    return {WEXITSTATUS(status), 0};
}

} // namespace

std::string find_program(const std::string& name) {
    std::error_code unknown; // such a file counts as none
    if (name.find('/') != std::string::npos) return fs::exists(name, unknown) ? name : "";
    const char* const path = std::getenv("PATH");
    std::istringstream folders(path ? path : "");
    std::string not_executable;
    for (std::string folder; std::getline(folders, folder, ':');) {
        const fs::path found = fs::path(folder.empty() ? "." : folder) / name;
        if (!fs::is_regular_file(found, unknown)) continue;
        if (::access(found.c_str(), X_OK) == 0) return found;
        if (not_executable.empty()) not_executable = found;
    }
    return not_executable;
}

Ended run_child(const std::vector<std::string>& command) {
    std::vector<std::string> copy = command;
    const std::vector<char*> arguments = pointers_to(copy);
    const sigset_t waited = waited_signals();
    sigset_t before;
    std::signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_BLOCK, &waited, &before);
    SignalWitness witness;
    Pipe refusal; // the program closes it as it starts; the witness must not have it
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
        if (signal < 0) continue;
        if (signal != SIGCHLD) let_signal_spread(signal, child);
        int status = 0;
        if (::waitpid(child, &status, WNOHANG) == child) {
            if (is_refused) throw std::runtime_error("cannot start " + command[0] + ": " + std::strerror(code));
            return ended_with(status);
        }
        if (signal == SIGCHLD) continue;
        const bool is_of_terminal = info.si_code > 0;
        const bool has_program = is_of_terminal || (witness.has_seen(signal) && ::getpgid(child) == ::getpgrp());
        if (!has_program) ::kill(child, signal);
        witness.forget();
    }
}

std::string output_of(const std::vector<std::string>& command, std::chrono::milliseconds most) {
    std::vector<std::string> copy = command;
    const std::vector<char*> arguments = pointers_to(copy);
    Pipe output;
    const pid_t own = ::getpid(), child = ::fork();
    if (child < 0) return "";
    if (child == 0) {
        ::setpgid(0, 0);
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != own) ::_exit(1);
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
    const auto end = Clock::now() + most;
    for (char part[4096]; !is_whole;) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
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
