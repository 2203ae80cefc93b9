// The handler may interrupt anything, so it reads a list whose entries stay for the life of the process, and calls
// functions that POSIX allows there alone.
#include "access_fault.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string_view>
#include <unistd.h>

namespace winnow::ggml {

struct ReservedRange::Entry {
    std::atomic<uintptr_t> begin{0}, end{0}; // 0: not in use
    std::array<char, 64> name{};
    std::atomic<bool> is_told{false};
    Entry* next = nullptr;
};

namespace {

using Entry = ReservedRange::Entry;

std::atomic<Entry*> entries{nullptr};

struct Installation {
    std::mutex mutex;
    int ranges = 0;
    bool is_installed = false;
};
Installation& installation() {
    static Installation& one = *new Installation; // buffers may end while the process does
    return one;
}

struct sigaction before; // the handler that was there

void write_all(std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return;
        text.remove_prefix(static_cast<size_t>(written));
    }
}

void explain(uintptr_t address) {
    for (Entry* each = entries.load(); each; each = each->next) {
        if (address < each->begin.load() || address >= each->end.load()) continue;
        if (each->is_told.exchange(true)) return;
        for (const std::string_view part :
             {std::string_view("winnow: the program uses "), std::string_view(each->name.data()),
              std::string_view(" by its address, but WINNOW_KV makes this cache virtual and its memory is only "
                               "reserved; read it with ggml_backend_tensor_get, or run without WINNOW_KV\n")})
            write_all(part);
        return;
    }
}

// As if this handler were not there: by default a signal that was sent ends the process at once, and an access is
// repeated and ends it then.
void hand_on(int signal, siginfo_t* info, void* context) {
    const struct sigaction its = before;
    const bool takes_info = (its.sa_flags & SA_SIGINFO) != 0, is_sent = info->si_code <= 0;
    const bool is_default = !takes_info && (its.sa_handler == SIG_DFL || its.sa_handler == SIG_IGN);
    if (is_default && is_sent && its.sa_handler == SIG_IGN) return;
    if (is_default || (its.sa_flags & static_cast<int>(SA_RESETHAND)) != 0) {
        struct sigaction standard {};
        standard.sa_handler = SIG_DFL;
        sigaction(signal, &standard, nullptr);
    }
    if (takes_info)
        its.sa_sigaction(signal, info, context);
    else if (!is_default)
        its.sa_handler(signal);
    else if (is_sent)
        raise(signal);
}

void on_fault(int signal, siginfo_t* info, void* context) {
    const int error = errno;
    if (info->si_code > 0) explain(reinterpret_cast<uintptr_t>(info->si_addr));
    hand_on(signal, info, context);
    errno = error;
}

bool is_ours(const struct sigaction& action) {
    return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == on_fault;
}

// A handler that came after this one may hand on to it, and is left alone. Where one ended by the default action, this
// one is installed again.
void install() {
    struct sigaction now {};
    if (sigaction(SIGSEGV, nullptr, &now) != 0) return;
    const bool is_default = (now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_DFL;
    if (installation().is_installed && !is_default) return;
    before = now;
    struct sigaction ours = before; // the same signals are blocked
    ours.sa_flags = (before.sa_flags & (SA_NODEFER | SA_RESTART)) | SA_SIGINFO | SA_ONSTACK;
    ours.sa_sigaction = on_fault;
    installation().is_installed = sigaction(SIGSEGV, &ours, nullptr) == 0;
}

// Where another handler came later, it may hand on to this one, which stays then.
void uninstall() {
    struct sigaction now {};
    if (!installation().is_installed || sigaction(SIGSEGV, nullptr, &now) != 0 || !is_ours(now)) return;
    installation().is_installed = sigaction(SIGSEGV, &before, nullptr) != 0;
}

Entry& unused_entry() {
    for (Entry* each = entries.load(); each; each = each->next)
        if (each->end.load() == 0) return *each;
    auto* made = new Entry;
    made->next = entries.load();
    entries.store(made);
    return *made;
}

} // namespace

ReservedRange::ReservedRange(const void* begin, size_t size, const char* name) {
    const std::lock_guard lock(installation().mutex);
    entry_ = &unused_entry();
    const size_t length = std::min(std::strlen(name), entry_->name.size() - 1);
    std::copy_n(name, length, entry_->name.begin());
    entry_->name[length] = '\0';
    entry_->is_told.store(false);
    entry_->begin.store(reinterpret_cast<uintptr_t>(begin));
    entry_->end.store(reinterpret_cast<uintptr_t>(begin) + size);
    if (installation().ranges++ == 0) install();
}

ReservedRange::~ReservedRange() {
    const std::lock_guard lock(installation().mutex);
    entry_->begin.store(0);
    entry_->end.store(0);
    if (--installation().ranges == 0) uninstall();
}

} // namespace winnow::ggml
