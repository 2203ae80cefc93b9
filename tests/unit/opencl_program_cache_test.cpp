// The disk cache of compiled programs: keys that differ never meet, and a damaged entry is an absent one.
#include "opencl/program_cache.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>
#include <utility>

#include "temporary_folder.hpp"

namespace winnow::opencl {
namespace {

namespace fs = std::filesystem;

std::vector<std::byte> bytes(size_t size, unsigned seed) {
    std::vector<std::byte> result(size);
    for (std::byte& byte : result) byte = static_cast<std::byte>(seed = seed * 1664525u + 1013904223u, seed >> 24);
    return result;
}

class opencl_program_cache : public testing::Test {
protected:
    fs::path entry() const { return directory_ / key_.file_name(); }

    // Overwrites the byte at `offset` with its complement.
    void damage(uintmax_t offset) const {
        std::fstream file(entry(), std::ios::binary | std::ios::in | std::ios::out);
        file.seekg(static_cast<std::streamoff>(offset));
        const int byte = file.get();
        file.seekp(static_cast<std::streamoff>(offset));
        file.put(static_cast<char>(~byte));
    }

    const TemporaryFolder folder_;
    const fs::path directory_{folder_.path()};
    ProgramKey key_{"hash", "-DX=1", "device", "driver 1", "platform"};
};

TEST_F(opencl_program_cache, returns_what_was_stored) {
    const ProgramCache cache(directory_ / "made" / "on demand");
    EXPECT_EQ(cache.load(key_), std::nullopt);
    const auto binary = bytes(100'000, 1);
    EXPECT_EQ(cache.store(key_, binary), "");
    EXPECT_EQ(cache.load(key_), binary);
    const auto other = bytes(10, 2);
    EXPECT_EQ(cache.store(key_, other), "");
    EXPECT_EQ(cache.load(key_), other);
}

TEST_F(opencl_program_cache, a_symbolic_link_is_read_and_not_replaced) {
    const ProgramCache cache(directory_), elsewhere(directory_ / "elsewhere");
    const auto binary = bytes(100, 1);
    ASSERT_EQ(elsewhere.store(key_, binary), "");
    fs::create_symlink(directory_ / "elsewhere" / key_.file_name(), entry());
    EXPECT_NE(cache.store(key_, bytes(100, 2)).find(" is a symbolic link"), std::string::npos);
    EXPECT_TRUE(fs::is_symlink(entry()));
    EXPECT_EQ(cache.load(key_), binary);
}

TEST_F(opencl_program_cache, what_was_not_used_for_longest_makes_room) {
    constexpr size_t size = 10'000; // and some bytes of header and key
    const ProgramCache cache(directory_, 10 * size);
    std::vector<ProgramKey> keys;
    for (int i = 0; i < 9; ++i) {
        keys.push_back(key_);
        keys.back().options = std::to_string(i);
        ASSERT_EQ(cache.store(keys.back(), bytes(size, 1)), "");
        fs::last_write_time(directory_ / keys.back().file_name(),
                            fs::file_time_type::clock::now() - std::chrono::hours(20 - i));
    }
    std::ofstream(directory_ / "of another program") << std::string(20 * size, 'x');
    EXPECT_NE(cache.load(keys[0]), std::nullopt); // the oldest, now the last used
    ASSERT_EQ(cache.store(key_, bytes(size, 1)), "");
    EXPECT_NE(cache.load(key_), std::nullopt);
    for (int i = 0; i < 9; ++i)
        EXPECT_EQ(cache.load(keys[static_cast<size_t>(i)]).has_value(), i == 0 || i > 3) << "entry " << i;
    EXPECT_TRUE(fs::exists(directory_ / "of another program"));
}

TEST_F(opencl_program_cache, a_program_larger_than_all_room_is_kept) {
    const ProgramCache cache(directory_, 1000);
    const auto binary = bytes(10'000, 1);
    ASSERT_EQ(cache.store(key_, binary), "");
    EXPECT_EQ(cache.load(key_), binary);
}

TEST_F(opencl_program_cache, nothing_is_kept_where_there_is_no_room_at_all) {
    const ProgramCache cache(directory_ / "never made", 0);
    EXPECT_EQ(cache.prepare(), "WINNOW_PROGRAM_CACHE_MIB is 0");
    EXPECT_NE(cache.store(key_, bytes(10, 1)), "");
    EXPECT_EQ(cache.load(key_), std::nullopt);
    EXPECT_FALSE(fs::exists(directory_ / "never made"));
}

TEST_F(opencl_program_cache, the_environment_says_how_much) {
    constexpr const char* variable = "WINNOW_PROGRAM_CACHE_MIB";
    const char* const before = std::getenv(variable);
    const std::string kept = before != nullptr ? before : "";
    for (const auto& [text, mib] : {std::pair{"1", 1},
                                    {"1000", 1000},
                                    {"", 256},
                                    {"0", 0},
                                    {"-1", 256},
                                    {"2x", 256},
                                    {"99999999999999999999", 256}}) {
        ::setenv(variable, text, 1);
        EXPECT_EQ(ProgramCache::default_bytes(), static_cast<uint64_t>(mib) << 20U) << text;
    }
    ::unsetenv(variable);
    EXPECT_EQ(ProgramCache::default_bytes(), uint64_t{256} << 20U);
    if (before != nullptr) ::setenv(variable, kept.c_str(), 1);
}

TEST_F(opencl_program_cache, every_field_of_the_key_counts) {
    const ProgramCache cache(directory_);
    ASSERT_EQ(cache.store(key_, bytes(10, 1)), "");
    for (std::string ProgramKey::*field : {&ProgramKey::source_hash, &ProgramKey::options, &ProgramKey::device,
                                           &ProgramKey::driver_version, &ProgramKey::platform}) {
        ProgramKey other = key_;
        other.*field += "x";
        EXPECT_EQ(cache.load(other), std::nullopt);
        EXPECT_NE(other.file_name(), key_.file_name());
    }
    // A key of the same characters, cut elsewhere.
    ProgramKey shifted = key_;
    shifted.source_hash = "has";
    shifted.options = "h-DX=1";
    EXPECT_NE(shifted.text(), key_.text());
}

TEST_F(opencl_program_cache, an_entry_under_another_keys_name_is_refused) {
    const ProgramCache cache(directory_);
    ASSERT_EQ(cache.store(key_, bytes(10, 1)), "");
    ProgramKey other = key_;
    other.driver_version = "driver 2"; // as long as the first, so that only the content tells
    fs::rename(entry(), directory_ / other.file_name());
    EXPECT_EQ(cache.load(other), std::nullopt);
}

TEST_F(opencl_program_cache, a_damaged_byte_anywhere_makes_the_entry_absent) {
    const ProgramCache cache(directory_);
    const auto binary = bytes(50, 3);
    ASSERT_EQ(cache.store(key_, binary), "");
    const uintmax_t size = fs::file_size(entry());
    for (uintmax_t offset = 0; offset < size; ++offset) {
        damage(offset);
        EXPECT_EQ(cache.load(key_), std::nullopt) << "byte " << offset << " of " << size;
        damage(offset);
    }
    EXPECT_EQ(cache.load(key_), binary) << "the last repair did not work, so the test proves nothing";
}

TEST_F(opencl_program_cache, every_truncation_and_an_extension_make_the_entry_absent) {
    const ProgramCache cache(directory_);
    const auto binary = bytes(50, 4);
    ASSERT_EQ(cache.store(key_, binary), "");
    const uintmax_t size = fs::file_size(entry());
    fs::resize_file(entry(), size + 1);
    EXPECT_EQ(cache.load(key_), std::nullopt);
    for (uintmax_t kept = size; kept-- > 0;) {
        fs::resize_file(entry(), kept);
        EXPECT_EQ(cache.load(key_), std::nullopt) << kept << " of " << size << " bytes";
    }
    EXPECT_EQ(cache.store(key_, binary), ""); // and it is replaced
    EXPECT_EQ(cache.load(key_), binary);
}

TEST_F(opencl_program_cache, an_entry_of_another_format_version_is_absent) {
    const ProgramCache cache(directory_);
    ASSERT_EQ(cache.store(key_, bytes(50, 5)), "");
    std::fstream file(entry(), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(7);
    file.put('2');
    file.close();
    EXPECT_EQ(cache.load(key_), std::nullopt);
}

TEST_F(opencl_program_cache, where_nothing_can_be_written_the_reason_is_returned) {
    const fs::path file = directory_ / "file";
    std::ofstream(file) << "in the way";
    const ProgramCache cache(file / "below");
    EXPECT_NE(cache.store(key_, bytes(10, 1)), "");
    EXPECT_EQ(cache.load(key_), std::nullopt);
    const ProgramCache none{fs::path()};
    EXPECT_NE(none.store(key_, bytes(10, 1)), "");
    EXPECT_EQ(none.load(key_), std::nullopt);
}

TEST_F(opencl_program_cache, an_entry_that_is_a_folder_is_absent) {
    const ProgramCache cache(directory_);
    fs::create_directory(entry());
    EXPECT_EQ(cache.load(key_), std::nullopt);
    EXPECT_NE(cache.store(key_, bytes(10, 1)), "");
    for (const auto& left : fs::directory_iterator(directory_)) EXPECT_EQ(left.path(), entry()) << "left behind";
}

TEST_F(opencl_program_cache, concurrent_writers_leave_one_whole_entry) {
    const ProgramCache cache(directory_);
    const std::vector<std::vector<std::byte>> versions{bytes(100'000, 1), bytes(150'000, 2), bytes(1, 3)};
    ASSERT_EQ(cache.store(key_, versions[0]), "");
    std::atomic<bool> is_over{false};
    std::atomic<int> torn{0};
    std::thread reader([&] {
        while (!is_over) {
            const auto found = cache.load(key_);
            if (!found || std::find(versions.begin(), versions.end(), *found) == versions.end()) ++torn;
        }
    });
    std::vector<std::thread> writers;
    for (const auto& version : versions)
        writers.emplace_back([&] {
            for (int i = 0; i < 100; ++i) EXPECT_EQ(cache.store(key_, version), "");
        });
    for (std::thread& writer : writers) writer.join();
    is_over = true;
    reader.join();
    EXPECT_EQ(torn, 0);
    for (const auto& left : fs::directory_iterator(directory_)) EXPECT_EQ(left.path(), entry()) << "left behind";
}

TEST_F(opencl_program_cache, one_process_at_a_time_makes_a_program) {
    const ProgramCache cache(directory_);
    ProgramKey other = key_;
    other.options += "x";
    int from_child[2], to_child[2];
    ASSERT_EQ(::pipe(from_child), 0);
    ASSERT_EQ(::pipe(to_child), 0);
    const pid_t child = ::fork();
    ASSERT_NE(child, -1);
    char byte = 0;
    if (child == 0) {
        const ProgramCache::Lock held = cache.lock(key_);
        byte = held.is_held() ? 'y' : 'n';
        if (::write(from_child[1], &byte, 1) == 1 && ::read(to_child[0], &byte, 1) == 1) ::_exit(0); // not given back
        ::_exit(1);
    }
    ASSERT_EQ(::read(from_child[0], &byte, 1), 1);
    EXPECT_EQ(byte, 'y');
    EXPECT_FALSE(cache.lock(key_, std::chrono::milliseconds(20)).is_held());
    EXPECT_TRUE(cache.lock(other).is_held()) << "another program waits for it";
    ASSERT_EQ(::write(to_child[1], &byte, 1), 1);
    EXPECT_TRUE(cache.lock(key_).is_held());
    EXPECT_TRUE(cache.lock(key_, std::chrono::milliseconds(0)).is_held()) << "the one before was not given back";
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    for (const int file : {from_child[0], from_child[1], to_child[0], to_child[1]}) ::close(file);
}

TEST_F(opencl_program_cache, where_no_lock_can_be_had_nobody_waits) {
    EXPECT_FALSE(ProgramCache(directory_ / "not made").lock(key_).is_held());
    EXPECT_FALSE(ProgramCache(fs::path()).lock(key_).is_held());
    fs::create_directory(directory_ / "lock");
    EXPECT_FALSE(ProgramCache(directory_).lock(key_).is_held());
}

TEST(opencl_program_cache_directory, follows_the_environment) {
    const auto restore = [](const char* name, const char* value) {
        return value != nullptr ? ::setenv(name, value, 1) : ::unsetenv(name);
    };
    const char* cache = std::getenv("XDG_CACHE_HOME");
    const char* home = std::getenv("HOME");
    const std::string kept_cache = cache != nullptr ? cache : "";
    const std::string kept_home = home != nullptr ? home : "";

    ::setenv("HOME", "/somewhere", 1);
    ::setenv("XDG_CACHE_HOME", "/caches", 1);
    EXPECT_EQ(ProgramCache::default_directory(), "/caches/winnow");
    ::setenv("XDG_CACHE_HOME", "relative", 1);
    EXPECT_EQ(ProgramCache::default_directory(), "/somewhere/.cache/winnow");
    ::unsetenv("XDG_CACHE_HOME");
    EXPECT_EQ(ProgramCache::default_directory(), "/somewhere/.cache/winnow");
    ::unsetenv("HOME");
    EXPECT_EQ(ProgramCache::default_directory(), "");

    restore("XDG_CACHE_HOME", cache != nullptr ? kept_cache.c_str() : nullptr);
    restore("HOME", home != nullptr ? kept_home.c_str() : nullptr);
}

} // namespace
} // namespace winnow::opencl
