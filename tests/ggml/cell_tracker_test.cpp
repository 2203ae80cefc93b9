// What is read off cells and masks, on masks made as llama.cpp makes them: by positions and sequences, which the
// tracker is not told.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "cell_tracker.hpp"
#include "lost_cells.hpp"

namespace {

using winnow::ggml::CellTracker;
using winnow::ggml::LostCells;
using winnow::ggml::MaskSlice;

constexpr int64_t cells = 32;
constexpr int64_t sinks = 2;

void expect(bool condition, const std::string &text) {
    if (condition) return;
    std::fprintf(stderr, "FAILED: %s\n", text.c_str());
    std::exit(1);
}

std::string to_string(const std::set<int64_t> &numbers) {
    std::string text;
    for (const int64_t number : numbers) text.append(1, ' ').append(std::to_string(number));
    return text.empty() ? " none" : text;
}

// The host's side: cells with sequences and positions, and a batch after it was placed.
class Host {
public:
    // chunk: a token sees no further back than to the last multiple of it.
    explicit Host(bool is_alone, int64_t window = cells, bool is_known = false, int64_t chunk = cells)
        : tracker_(cells, is_alone, sinks, is_known), window_(window), chunk_(chunk) {}

    struct Token {
        int32_t cell;
        int sequence;
    };
    // What the tracker says of a batch: dead cells that hold something, and cells to be anchored.
    struct Answer {
        std::set<int64_t> dead, anchors, guessed;
        int64_t taken_back = 0;
        bool is_empty = false; // all is dead
    };
    Answer append(const std::vector<Token> &batch, int64_t columns = cells) {
        std::vector<int32_t> its;
        const auto before = resident_;
        for (const Token &token : batch) {
            its.push_back(token.cell);
            resident_[token.cell] = {{token.sequence}, next_[token.sequence]++};
        }
        std::vector<uint16_t> rows(batch.size() * static_cast<size_t>(columns), 0xfc00);
        for (size_t row = 0; row < batch.size(); ++row) {
            const int64_t position = resident_.at(batch[row].cell).position;
            for (const auto &[cell, resident] : resident_) {
                const bool is_mate = resident.sequences.count(batch[row].sequence) > 0;
                const int64_t oldest = std::max(position - window_ + 1, position / chunk_ * chunk_);
                if (!is_mate || resident.position > position || resident.position < oldest) continue;
                rows[row * static_cast<size_t>(columns) + static_cast<size_t>(cell)] = 0;
            }
        }
        ggml_tensor mask{};
        mask.type = GGML_TYPE_F16;
        mask.data = rows.data();
        const int64_t shape[4] = {columns, static_cast<int64_t>(batch.size()), 1, 1};
        for (int axis = 0; axis < 4; ++axis) mask.ne[axis] = shape[axis];
        mask.nb[0] = 2;
        mask.nb[1] = static_cast<size_t>(columns) * 2;
        mask.nb[2] = mask.nb[3] = rows.size() * 2;
        return answer_to(tracker_.open(its, MaskSlice(&mask, 0)), before);
    }

    // A state of one sequence, which has just been removed, comes back in these cells.
    Answer restore(const std::vector<Token> &state, bool replaces = true) {
        std::vector<int32_t> its;
        const auto before = resident_;
        for (const Token &token : state) {
            its.push_back(token.cell);
            resident_[token.cell] = {{token.sequence}, next_[token.sequence]++};
        }
        return answer_to(tracker_.restore(its, replaces), before);
    }

    int64_t count_before(int64_t cell) const { return tracker_.count_before(cell); }

    // Positions of a sequence from `begin` on.
    void remove(int sequence, int64_t begin) {
        for (auto at = resident_.begin(); at != resident_.end();) {
            auto &[sequences, position] = at->second;
            if (position >= begin) sequences.erase(sequence);
            if (sequences.empty()) removed_.insert(at->first);
            at = sequences.empty() ? resident_.erase(at) : std::next(at);
        }
        next_[sequence] = begin;
    }

    // What is left of a sequence moves down, to position 0.
    void shift(int sequence) {
        std::vector<int32_t> moved;
        int64_t first = next_[sequence];
        for (const auto &[cell, resident] : resident_)
            if (resident.sequences.count(sequence) > 0) first = std::min(first, resident.position);
        for (auto &[cell, resident] : resident_) {
            if (resident.sequences.count(sequence) == 0) continue;
            resident.position -= first;
            moved.push_back(cell);
        }
        next_[sequence] -= first;
        tracker_.note_shift(moved);
    }
    // The first `count` positions of a sequence come behind its last.
    void move_to_end(int sequence, int64_t count) {
        std::vector<int32_t> moved;
        for (auto &[cell, resident] : resident_) {
            if (resident.sequences.count(sequence) == 0 || resident.position >= count) continue;
            resident.position += next_[sequence];
            moved.push_back(cell);
        }
        next_[sequence] += count;
        tracker_.note_shift(moved);
    }
    // The first tokens of a sequence are gone.
    void remove_front(int sequence, int64_t end) {
        for (auto at = resident_.begin(); at != resident_.end();) {
            const bool goes = at->second.sequences.count(sequence) > 0 && at->second.position < end;
            if (goes) removed_.insert(at->first);
            at = goes ? resident_.erase(at) : std::next(at);
        }
    }

    void overwrite(int32_t cell) { resident_.erase(cell); }

    void copy(int from, int to, int64_t begin = 0) {
        for (auto &[cell, resident] : resident_) {
            if (resident.sequences.count(from) && resident.position >= begin) resident.sequences.insert(to);
        }
        next_[to] = next_[from];
    }

private:
    struct Held {
        std::set<int> sequences;
        int64_t position;
    };

    Answer answer_to(const CellTracker::Opening &opening, const std::map<int32_t, Held> &before) {
        Answer answer;
        for (const auto &range : opening.dead) {
            answer.is_empty = answer.is_empty || (range.begin == 0 && range.end == cells);
            for (int64_t cell = range.begin; cell < range.end; ++cell) {
                if (before.count(static_cast<int32_t>(cell)) || removed_.count(cell)) answer.dead.insert(cell);
            }
        }
        answer.anchors.insert(opening.anchors.begin(), opening.anchors.end());
        answer.taken_back = opening.taken_back;
        answer.guessed.insert(opening.guessed.begin(), opening.guessed.end());
        for (const int64_t cell : answer.dead) removed_.erase(cell);
        return answer;
    }

    CellTracker tracker_;
    int64_t window_, chunk_;
    std::map<int32_t, Held> resident_;
    std::map<int, int64_t> next_;
    std::set<int64_t> removed_; // by the host, and not yet named dead
};

std::vector<Host::Token> tokens(int32_t first, int32_t count, int sequence) {
    std::vector<Host::Token> batch;
    batch.reserve(static_cast<size_t>(count));
    for (int32_t i = 0; i < count; ++i) batch.push_back({first + i, sequence});
    return batch;
}

std::set<int64_t> range(int64_t begin, int64_t end) {
    std::set<int64_t> numbers;
    for (int64_t number = begin; number < end; ++number) numbers.insert(number);
    return numbers;
}

void expect_dead(const char *what, const Host::Answer &answer, const std::set<int64_t> &wanted) {
    expect(answer.dead == wanted,
           std::string(what) + ": dead are" + to_string(answer.dead) + ", expected" + to_string(wanted));
}

void expect_counts(const std::string &what, const Host &host, const std::vector<int64_t> &expected) {
    for (size_t cell = 0; cell < expected.size(); ++cell) {
        const int64_t found = host.count_before(static_cast<int64_t>(cell));
        expect(found == expected[cell], what + ": " + std::to_string(found) + " tokens before that of cell " +
                                            std::to_string(cell) + ", expected " + std::to_string(expected[cell]));
    }
}

void test_alone() {
    Host host(true);
    expect_dead("a first prompt", host.append(tokens(0, 10, 0)), {});
    host.remove(0, 4);
    const auto shorter = host.append(tokens(4, 2, 0));
    expect_dead("a shorter tail", shorter, {});
    expect(shorter.taken_back == 4, std::to_string(shorter.taken_back) + " tokens were taken back, expected 4");
    expect(host.append(tokens(6, 1, 0)).taken_back == 0, "tokens were taken back twice");
    host.remove(0, 0);
    const auto another = host.append(tokens(0, 3, 0));
    expect_dead("another prompt, as far as masks tell", another, {});
    expect(another.anchors == range(0, 2), "anchored are" + to_string(another.anchors) + ", expected 0 1");
    host.remove(0, 0);
    const auto third = host.append(tokens(0, 3, 0), 3);
    expect(third.is_empty, "a prompt over all that is left did not make the stream as new");
    expect(third.anchors.empty(), "sinks of a stream were anchored, too");
}

void test_window() {
    Host host(true, 4);
    host.append(tokens(0, 10, 0));
    const auto answer = host.append(tokens(10, 1, 0));
    expect_dead("tokens that left the window", answer, {});
    expect(answer.taken_back == 0, "tokens that left the window were taken back");
    host.remove(0, 7);
    expect_dead("a tail within the window", host.append(tokens(7, 1, 0)), {});
}

// A batch that begins where a chunk does sees nothing older, and all of it lives.
void test_chunk() {
    for (const int32_t batch : {1, 2, 8}) {
        Host host(true, cells, false, 8);
        for (int32_t first = 0; first < 8; first += batch) host.append(tokens(first, batch, 0));
        expect_dead("a chunk begins", host.append(tokens(8, batch, 0)), {});
        expect_counts("beyond the chunk's edge", host, {0, 1, 2, 3, 4, 5, 6, 7, 8});
        host.remove(0, 6);
        expect_dead("back behind the chunk's edge", host.append(tokens(6, 1, 0)), {});
    }
}

// The same around the ring of a window's cache: cells are used again, and no batch there begins a sequence.
void test_chunk_in_a_ring() {
    for (const int64_t chunk : {16, 12}) { // the edge at the ring's first cell, and behind it
        Host host(true, cells, true, chunk);
        for (int32_t token = 0; token < 40; ++token) {
            const auto answer = host.append(tokens(token % cells, 1, 0));
            expect(answer.anchors.empty(), "anchored behind a chunk's edge are" + to_string(answer.anchors));
        }
        expect_counts("around the ring", host, {32, 33, 34, 35, 36, 37, 38, 39, 8, 9});
        host.remove(0, 0);
        host.append(tokens(0, 2, 0));
        expect_counts("another prompt", host, {0, 1});
    }
}

void test_shared_chunk() {
    Host host(false, cells, false, 8);
    host.append(tokens(0, 8, 0));
    expect_dead("a chunk begins over the cells of the one before", host.append({{8, 0}, {0, 0}}), {});
    expect_dead("another sequence in a cell behind the edge", host.append(tokens(1, 1, 1)), {});
}

// llama.cpp moves positions wherever it is told to.
void test_moved() {
    Host host(true, 4);
    host.append(tokens(0, 10, 0));
    host.move_to_end(0, 5);
    expect_dead("tokens that were moved to the end", host.append(tokens(10, 1, 0)), {});
    host.remove(0, 10);
    expect_dead("back to where they were moved", host.append(tokens(11, 1, 0)), {});
}

void test_columns() {
    Host host(false);
    host.append(tokens(0, 20, 0));
    host.remove(0, 5);
    expect_dead("cells beyond the mask", host.append(tokens(5, 1, 0), 8), range(8, 20));
}

void test_shared() {
    Host host(false);
    expect(host.append(tokens(0, 6, 0)).anchors.empty(), "sinks of the stream were anchored, too");
    const auto second = host.append(tokens(6, 6, 1));
    expect_dead("a second sequence", second, {});
    expect(second.anchors == range(6, 8), "anchored are" + to_string(second.anchors) + ", expected 6 7");
    expect_dead("the first goes on", host.append(tokens(12, 1, 0)), {});
    host.copy(0, 2);
    host.remove(0, 0); // what sequence 2 shares stays
    expect_dead("one of two that share goes", host.append(tokens(13, 2, 0)), {});
    host.remove(2, 0);
    expect_dead("another prompt over the first's beginning, which others may share", host.append(tokens(0, 2, 2)), {});
    expect_dead("the second sequence is as it was", host.append(tokens(15, 1, 1)), {});
    host.remove(1, 2);
    expect_dead("a tail is overwritten", host.append(tokens(8, 1, 1)), {});
    host.remove(1, 0);
    const auto third = host.append(tokens(6, 2, 1));
    expect_dead("another prompt over the second's beginning", third, range(6, 8)); // which was anchored
    expect(third.anchors == range(6, 8), "the new beginning is not anchored");
}

// Sequences whose first token is gone and whose rest lives.
void test_shared_without_beginning() {
    Host host(false);
    host.append(tokens(0, 6, 0));
    host.remove_front(0, 2);
    expect_dead("another sequence where the first token was", host.append(tokens(0, 2, 1)), {});
    host.copy(0, 2, 4);
    host.remove(0, 0);
    expect_dead("another one where the copy does not reach", host.append(tokens(2, 2, 1)), {});
    expect_dead("the copy goes on", host.append(tokens(9, 1, 2)), {});
}

// Cells that left a window are used again, by whomever: of a sequence without its beginning the rest stays.
void test_shared_window() {
    Host host(false, 4);
    host.append(tokens(0, 6, 0));
    host.append(tokens(6, 3, 1));
    expect_dead("a beginning that left its window", host.append(tokens(0, 1, 1)), {});
    expect_dead("the sequence without its beginning goes on", host.append(tokens(9, 1, 0)), {});
}

// A sequence as long as its window: its next token will not see the first one, whose cell is free to all by then. No
// mask has shown a window so far.
void test_shared_full_window() {
    Host host(false, 4);
    host.append(tokens(0, 4, 0));
    host.append(tokens(4, 3, 1));
    expect_dead("a beginning that is about to leave its window", host.append(tokens(0, 1, 1)), {});
    expect_dead("the sequence without its beginning goes on", host.append(tokens(9, 1, 0)), {});
}

// Of a sequence whose beginning was cut off, and whose rest moved down, another one may take the first cell.
void test_shared_shift() {
    Host host(false);
    host.append(tokens(0, 6, 0));
    host.append(tokens(6, 1, 1));
    host.remove_front(0, 2);
    host.shift(0);
    expect_dead("another sequence where the first token was", host.append(tokens(0, 2, 1)), {});
    expect_dead("the rest goes on", host.append(tokens(7, 1, 0)), {});
    host.remove(0, 0);
    expect_dead("gone, and not known to be", host.append(tokens(2, 1, 1)), {});
}

void test_all_over() {
    Host host(false);
    host.append(tokens(0, 4, 0));
    host.remove(0, 0);
    expect(host.append(tokens(0, 4, 0)).is_empty, "a stream that is overwritten as a whole is not as new");
}

void test_restored_alone() {
    Host host(true);
    host.append(tokens(0, 10, 0));
    host.remove(0, 0);
    const auto answer = host.restore(tokens(2, 5, 0));
    expect(answer.is_empty, "a state did not replace what the stream held");
    expect(answer.anchors.empty(), "sinks of a stream were anchored, too");
    expect_dead("the restored sequence goes on", host.append(tokens(7, 1, 0)), {});
    host.remove(0, 4);
    expect_dead("its tail goes", host.append(tokens(6, 1, 0)), {});
    Host late(true);
    late.append(tokens(2, 1, 0));
    expect_dead("a state that was there before the batch", late.restore(tokens(0, 2, 0), false), {});
}

void test_restored_shared() {
    Host host(false);
    host.append(tokens(0, 6, 0));
    host.append(tokens(6, 6, 1));
    host.remove(0, 0);
    const auto answer = host.restore(tokens(0, 3, 0));
    expect_dead("a state over the first's beginning", answer, range(3, 6));
    expect(answer.guessed == range(3, 6), "guessed are" + to_string(answer.guessed) + ", expected 3 4 5");
    expect(answer.anchors == range(0, 2), "anchored are" + to_string(answer.anchors) + ", expected 0 1");
    expect_dead("the second is as it was", host.append(tokens(12, 1, 1)), {});
    expect_dead("the restored one goes on", host.append(tokens(13, 1, 0)), {});
    host.remove(0, 0); // that cell 0 had its first token is not known
    expect_dead("another prompt over the state's beginning", host.append(tokens(0, 1, 0)), {0}); // which was anchored
}

// What a window has passed may be overwritten while the rest lives.
void test_restored_shared_window() {
    Host host(false, 4, true);
    host.append(tokens(0, 6, 0));
    const auto answer = host.restore(tokens(0, 2, 1));
    expect_dead("a state of another sequence where the first token was", answer, {});
    expect(answer.anchors.empty(), "tokens that leave a window are anchored:" + to_string(answer.anchors));
}

// The window's ring was written by cells: the newest tokens come first.
void test_restored_window() {
    Host host(true, 4);
    const auto ring = std::vector<Host::Token>{{4, 0}, {5, 0}, {2, 0}, {3, 0}};
    host.restore(ring);
    expect_dead("a token leaves the window", host.append(tokens(6, 1, 0)), {});
    expect_dead("another one", host.append(tokens(7, 1, 0)), {});
}

// Rows of a state in the order of cells, which another sequence had used before.
void test_restored_over_cells_that_were_used_again() {
    Host host(false);
    host.append(tokens(0, 2, 1));
    host.restore({{6, 0}, {7, 0}, {2, 0}, {3, 0}});
    host.append(tokens(8, 1, 0));
    host.overwrite(6);
    expect_dead("a cell of the sequence's end is used by another", host.append(tokens(6, 1, 1)), {});
}

void test_count_before() {
    Host alone(true);
    alone.append(tokens(0, 3, 0));
    alone.append(tokens(3, 2, 0));
    expect_counts("alone", alone, {0, 1, 2, 3, 4});
    alone.remove(0, 0);
    alone.append(tokens(0, 2, 0));
    expect_counts("anew", alone, {0, 1});
    alone.remove(0, 0);
    alone.append(tokens(0, 2, 0));
    expect_counts("anew over anchors", alone, {0, 1});
    Host shared(false);
    shared.append(tokens(0, 3, 0));
    shared.append(tokens(3, 2, 1));
    shared.append(tokens(5, 1, 0));
    shared.append(tokens(6, 1, 1));
    expect_counts("shared", shared, {0, 1, 2, 0, 1, 5, 3});
}

// What is said of a batch of two tokens, the second of which sees these cells.
std::string said_of(const LostCells &lost, const std::set<int64_t> &seen, int64_t count,
                    const std::vector<int32_t> &overwritten) {
    std::vector<float> rows(2 * cells, -INFINITY);
    for (const int64_t cell : seen) rows[static_cast<size_t>(cells + cell)] = 0;
    ggml_tensor mask{};
    mask.data = rows.data();
    mask.ne[0] = cells;
    mask.ne[1] = 2;
    mask.ne[2] = mask.ne[3] = 1;
    mask.nb[0] = sizeof(float);
    mask.nb[1] = cells * sizeof(float);
    try {
        lost.expect_unseen(MaskSlice(&mask, 0), count, overwritten);
    } catch (const std::runtime_error &error) {
        return error.what();
    }
    return "";
}

void test_lost_cells() {
    LostCells lost;
    lost.add(std::vector<int32_t>{9, 3, 4}, "a reason");
    const std::set<int64_t> seen = {0, 4, 5, 9};
    const auto expect_said = [&](const std::string &found, const std::string &part) {
        expect(part.empty() ? found.empty() : found.find(part) != std::string::npos, "lost cells: " + found);
    };
    expect_said(said_of(lost, {0, 5, 31}, 2, {}), "");
    expect_said(said_of(lost, seen, 1, {}), "");
    expect_said(said_of(lost, seen, 2, {}), "needs cell 4,");
    expect_said(said_of(lost, seen, 2, {}), "a reason");
    expect_said(said_of(lost, seen, 2, {0, 4, 8}), "needs cell 9,");
    expect_said(said_of(lost, seen, 2, {4, 9, 10}), "");
    lost.forget({4, 9});
    expect_said(said_of(lost, seen, 2, {}), "needs cell 9,");
    // A batch in other cells, from whose last columns on no cell is in use. It has seen none: a later one may.
    lost.note_batch(std::vector<int32_t>{3}, 9);
    expect_said(said_of(lost, {3}, 2, {}), "");
    lost.add(std::vector<int32_t>{9, 3, 4}, "a reason");
    lost.note_batch(std::vector<int32_t>{5}, 9);
    expect_said(said_of(lost, {4}, 2, {}), "needs cell 4,");
    expect_said(said_of(lost, {9}, 2, {}), "");
}

} // namespace

int main() {
    test_lost_cells();
    test_count_before();
    test_alone();
    test_window();
    test_chunk();
    test_chunk_in_a_ring();
    test_moved();
    test_columns();
    test_shared();
    test_shared_chunk();
    test_shared_without_beginning();
    test_shared_window();
    test_shared_full_window();
    test_shared_shift();
    test_all_over();
    test_restored_alone();
    test_restored_window();
    test_restored_shared_window();
    test_restored_over_cells_that_were_used_again();
    test_restored_shared();
    return 0;
}
