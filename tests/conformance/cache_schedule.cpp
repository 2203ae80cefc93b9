// Draws and runs schedules.
#include "cache_schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "cache_cases.hpp"
#include "cache_oracle.hpp"
#include "temporary_folder.hpp"

namespace winnow::conformance {
namespace {

class Runner {
public:
    explicit Runner(const Schedule& schedule)
        : schedule_(schedule), setup_(schedule.setup), engine_(schedule.seed), host_(subject(), setup_),
          oracle_(host_) {}

    ScheduleResult run() {
        ScheduleResult result;
        try {
            if (schedule_.is_decode) tell(tokens(0, draw(1, 100), true));
            for (int at = 0; at < schedule_.operations && wrong_.empty(); ++at) tell(one());
            if (wrong_.empty()) tell(oracle_.look());
        } catch (const std::exception& error) {
            tell(error.what());
        }
        if (!wrong_.empty()) {
            std::ostringstream text;
            text << "seed " << schedule_.seed << ", " << setup_.config() << ", " << setup_.layers << " layers, "
                 << setup_.shape(0).q_heads() << " query and " << setup_.shape(0).kv_heads << " KV heads of "
                 << setup_.shape(0).head_size << (setup_.shapes.empty() ? "" : ", in the first layer") << ", context "
                 << setup_.context << ", " << setup_.cells << " cells; the last calls:";
            for (const std::string& each : calls_) text << "\n  " << each;
            text << "\n" << wrong_;
            result.wrong = text.str();
        }
        result.digest = digest_.str() + (wrong_.empty() ? host_.portrait() : "");
        result.evictions = oracle_.evictions();
        result.passes = oracle_.passes();
        result.refusals = oracle_.refusals();
        return result;
    }

private:
    int64_t draw(int64_t low, int64_t high) {
        return low + static_cast<int64_t>(engine_() % static_cast<uint64_t>(high - low + 1));
    }
    bool chance(int64_t percent) { return draw(1, 100) <= percent; }
    void tell(const std::string& wrong) {
        if (wrong_.empty()) wrong_ = wrong;
    }
    void note(const std::string& call) {
        calls_.push_back(call);
        if (calls_.size() > 24) calls_.pop_front();
    }

    std::string one() {
        const int64_t sequence = draw(0, setup_.sequences - 1), kind = draw(1, 100);
        if (setup_.is_told())
            if (const std::string wrong = set_importance(sequence, 40); !wrong.empty()) return wrong;
        if (schedule_.is_decode) return tokens(sequence, 1, true);
        if (schedule_.is_tight) return one_of_tight(sequence, kind);
        if (kind <= 30) return decode(sequence, draw(1, 12));
        if (kind <= 58) return tokens(sequence, draw(1, 100), chance(80));
        if (kind <= 65) return attend(sequence);
        if (!schedule_.edits) return decode(sequence, 3);
        if (kind <= 71) return truncate(sequence);
        if (kind <= 76) return remove(sequence);
        if (kind <= 80) return copy();
        if (kind <= 84) return shift(sequence);
        if (kind <= 86) return anchor(sequence);
        if (kind <= 88) return reserve(sequence);
        if (kind <= 91) return save_and_load();
        if (kind <= 94) return exchange(sequence);
        return schedule_.changes ? change() : decode(sequence, 2);
    }

    std::string one_of_tight(int64_t sequence, int64_t kind) {
        const bool has_cells = setup_.cells > 0;
        if (kind <= 30) return decode(sequence, draw(1, 6));
        if (kind <= 46) return tokens(sequence, draw(1, 3 * setup_.chunk() + 2), chance(70));
        if (kind <= 50) return attend(sequence);
        if (kind <= 57) return has_cells ? remove_tokens(sequence) : truncate(sequence);
        if (kind <= 63) return remove_tokens(sequence);
        if (kind <= 66) return copy();
        if (kind <= 78) return has_cells ? decode(sequence, 2) : shift_anything(sequence);
        if (kind <= 84) return anchor_anything(sequence);
        if (kind <= 85) return has_cells ? decode(sequence, 2) : reserve(sequence);
        if (kind <= 88) return save_and_load();
        if (kind <= 90) return exchange(sequence);
        return kind <= 95 ? restore(sequence) : change();
    }

    int64_t length(int64_t sequence) { return oracle_.length(sequence, 0); }

    StepOptions options(int64_t tokens) {
        StepOptions options;
        if (chance(10)) options.scale = .2f;
        if (chance(10)) options.softcap = 8;
        if (chance(10)) options.window_left = draw(1, 60);
        if (chance(15)) options.draft_tokens = draw(1, tokens);
        options.alibi = chance(10);
        options.head_sink = chance(20);
        options.scores = chance(25) || (setup_.recall && schedule_.tells_picks);
        options.layout = Layout(draw(0, 2));
        options.memory = chance(30) ? Memory::allocated : Memory::host;
        options.no_wait = ++options_drawn_ % 4 == 0;
        return options;
    }

    std::string run(Step& step) {
        const std::string wrong = oracle_.step(step);
        if (!wrong.empty()) return "layer " + std::to_string(step.layer) + ": " + wrong;
        if (step.out) step.out.each([&](const Index& at) { hash_ = (hash_ ^ bits_of(step.out, at)) * 1099511628211u; });
        return "";
    }

    static uint64_t bits_of(const TestTensor& tensor, const Index& at) {
        uint64_t bits = 0;
        std::copy_n(tensor.element(at), tensor.type() == WINNOW_TYPE_F32 ? 4 : 2, reinterpret_cast<std::byte*>(&bits));
        return bits;
    }

    // Cells for so many tokens.
    std::vector<int64_t> draw_cells(int64_t count) {
        std::vector<int64_t> cells(static_cast<size_t>(setup_.cells));
        std::iota(cells.begin(), cells.end(), static_cast<int64_t>(0));
        std::shuffle(cells.begin(), cells.end(), engine_);
        cells.resize(static_cast<size_t>(count));
        return cells;
    }

    static TestTensor as_tensor(const std::vector<int64_t>& cells) {
        TestTensor tensor(WINNOW_TYPE_I32, {1, 1, 1, static_cast<int64_t>(cells.size())});
        tensor.each([&](const Index& at) { tensor.set(at, static_cast<double>(cells[static_cast<size_t>(at[3])])); });
        return tensor;
    }

    // A query sees its own cell and most others; a mask of one column shows all cells or none.
    void set_mask(Step& step, const std::vector<int64_t>& own) {
        step.alibi = TestTensor();
        step.options.window_left = 0;
        if (step.queries == 0) return;
        const int64_t columns = chance(10) ? 1 : setup_.cells;
        step.mask = TestTensor(WINNOW_TYPE_BOOL, {1, 1, step.queries, columns});
        step.mask.each([&](const Index& at) {
            const bool is_own = !own.empty() && own[static_cast<size_t>(at[2])] == at[3];
            step.mask.set(at, is_own || !chance(25) ? 1 : 0);
        });
    }

    int64_t most_appended(int64_t sequence) {
        return setup_.cells > 0 ? setup_.cells : setup_.context - length(sequence);
    }

    // Layer after layer, as a model does.
    std::string tokens(int64_t sequence, int64_t count, bool attends) {
        count = std::min(count, most_appended(sequence));
        if (count <= 0) return "";
        const std::vector<int64_t> cells = draw_cells(setup_.cells > 0 ? count : 0);
        note("append " + std::to_string(count) + (attends ? " and attend" : "") + ", sequence " +
             std::to_string(sequence) + " of " + std::to_string(length(sequence)) + " tokens");
        const StepOptions drawn = options(count);
        for (int64_t layer = 0; layer < setup_.layers; ++layer)
            for (int64_t first = 0; first < count; first += setup_.chunk()) {
                const int64_t part = std::min(setup_.chunk(), count - first);
                StepOptions own = drawn;
                own.draft_tokens = std::clamp<int64_t>(drawn.draft_tokens - (count - first - part), 0, part);
                Step step = draw_step(setup_, engine_, layer, sequence, part, attends ? part : 0, own,
                                      columns(oracle_.length(sequence, layer) + part));
                if (setup_.cells > 0) {
                    const std::vector<int64_t> named(cells.begin() + first, cells.begin() + first + part);
                    step.cells = as_tensor(named);
                    set_mask(step, named);
                }
                if (const std::string wrong = run(step); !wrong.empty()) return wrong;
            }
        digest_ << hash_ << " ";
        return oracle_.look();
    }

    // How many columns scores_out gets.
    int64_t columns(int64_t length) { return setup_.cells > 0 ? setup_.cells : length + draw(0, 3); }

    std::string decode(int64_t sequence, int64_t count) {
        for (int64_t at = 0; at < count; ++at)
            if (const std::string wrong = tokens(sequence, 1, true); !wrong.empty()) return wrong;
        return "";
    }

    std::string attend(int64_t sequence) {
        if (length(sequence) == 0) return "";
        const int64_t count = draw(1, std::min<int64_t>(length(sequence), 40));
        note("attend with the last " + std::to_string(count) + ", sequence " + std::to_string(sequence));
        const StepOptions drawn = options(count);
        for (int64_t layer = 0; layer < setup_.layers; ++layer) {
            Step step = draw_step(setup_, engine_, layer, sequence, 0, count, drawn, columns(length(sequence)));
            if (setup_.cells > 0) set_mask(step, {});
            if (const std::string wrong = run(step); !wrong.empty()) return wrong;
        }
        return oracle_.look();
    }

    std::string truncate(int64_t sequence) {
        const int64_t to =
            chance(80) ? std::max<int64_t>(length(sequence) - draw(0, 20), 0) : draw(0, length(sequence));
        note("truncate sequence " + std::to_string(sequence) + " to " + std::to_string(to));
        return oracle_.truncate(sequence, to);
    }

    std::string remove(int64_t sequence) {
        if (chance(10)) {
            note("remove all of sequence " + std::to_string(sequence));
            return oracle_.remove(sequence, 0, -1);
        }
        if (length(sequence) < 2) return "";
        const int64_t begin = draw(0, length(sequence) - 2), end = draw(begin + 1, length(sequence) - 1);
        note("remove [" + std::to_string(begin) + ", " + std::to_string(end) + ") of sequence " +
             std::to_string(sequence));
        return oracle_.remove(sequence, begin, end);
    }

    std::string copy() {
        if (setup_.sequences < 2) return "";
        const int64_t from = draw(0, setup_.sequences - 1), to = (from + 1) % setup_.sequences;
        note("copy sequence " + std::to_string(from) + " to " + std::to_string(to));
        return oracle_.copy(from, to);
    }

    // As a host does whose context is full: a part in the middle goes, and what follows moves down.
    std::string shift(int64_t sequence) {
        const int64_t length_now = length(sequence);
        if (length_now < 20) return "";
        if (chance(25) && length_now + 5 < setup_.context) { // a gap
            const int64_t begin = draw(0, length_now - 1);
            note("shift sequence " + std::to_string(sequence) + " from " + std::to_string(begin) + " up by 5");
            return oracle_.shift(sequence, begin, -1, 5);
        }
        const int64_t begin = draw(0, 10), end = draw(begin + 1, length_now - 1);
        note("remove [" + std::to_string(begin) + ", " + std::to_string(end) + ") of sequence " +
             std::to_string(sequence) + " and shift what follows down");
        const std::string wrong = oracle_.remove(sequence, begin, end);
        return wrong.empty() ? oracle_.shift(sequence, end, -1, begin - end) : wrong;
    }

    // The end of the positions, or cells.
    int64_t token_id_count() const { return setup_.cells > 0 ? setup_.cells : setup_.context; }

    // Some that lie together, a few behind the last among them.
    std::string remove_tokens(int64_t sequence) {
        const int64_t some = setup_.cells > 0 ? setup_.cells : std::min(length(sequence) + 2, setup_.context);
        const int64_t begin = draw(0, some - 1), end = chance(10) ? -1 : draw(begin + 1, std::min(begin + 8, some));
        note("remove [" + std::to_string(begin) + ", " + std::to_string(end) + ") of sequence " +
             std::to_string(sequence));
        return oracle_.remove(sequence, begin, end);
    }

    // Up or down, often everything and back again; before it moves down, what is there may be removed.
    std::string shift_anything(int64_t sequence) {
        const int64_t last = std::min(length(sequence) + 1, setup_.context - 1);
        int64_t begin = chance(40) ? draw(0, std::min(setup_.sink, last)) : draw(0, last);
        int64_t end = chance(60) ? -1 : draw(begin + 1, last + 1), delta = chance(50) ? draw(1, 6) : -draw(1, 6);
        if (moved_up_ > 0 && chance(50)) {
            begin = moved_up_;
            delta = -moved_up_;
            end = -1;
        } else if (delta < 0 && chance(70)) {
            delta = std::max(delta, -begin);
            if (delta == 0) return "";
            note("remove [" + std::to_string(begin + delta) + ", " + std::to_string(begin) + ") of sequence " +
                 std::to_string(sequence));
            if (const std::string wrong = oracle_.remove(sequence, begin + delta, begin); !wrong.empty()) return wrong;
        }
        moved_up_ = begin == 0 && end == -1 && delta > 0 ? delta : 0;
        note("shift [" + std::to_string(begin) + ", " + std::to_string(end) + ") of sequence " +
             std::to_string(sequence) + " by " + std::to_string(delta));
        return oracle_.shift(sequence, begin, end, delta);
    }

    // Anchors tokens that are there, that are not any more, and that are still to come.
    std::string anchor_anything(int64_t sequence) {
        const int64_t most = chance(70) ? std::min(length(sequence) + 4, token_id_count()) : token_id_count();
        std::vector<int64_t> positions;
        for (int64_t at = draw(1, 2); at > 0; --at) positions.push_back(draw(0, most - 1));
        note("anchor " + std::to_string(positions.front()) + " and " + std::to_string(positions.back()) +
             " of sequence " + std::to_string(sequence));
        return oracle_.anchor(sequence, positions);
    }

    // Rows that no cache gave, to some of the heads.
    std::string restore(int64_t sequence) {
        const int64_t count = std::min(draw(1, 3 * setup_.chunk() + 2), most_appended(sequence));
        if (count <= 0) return "";
        note("restore " + std::to_string(count) + " tokens of sequence " + std::to_string(sequence));
        const std::vector<int64_t> cells = draw_cells(setup_.cells > 0 ? count : 0);
        for (int64_t layer = 0; layer < setup_.layers; ++layer) {
            std::vector<int64_t> token_ids(static_cast<size_t>(count), 0);
            TokenRows rows = make_token_rows(setup_, layer, sequence, token_ids, setup_.type);
            rows.tokens = setup_.cells > 0 ? as_tensor(cells) : TestTensor();
            fill_token_rows(rows, engine_, true);
            if (const std::string wrong = oracle_.restore(rows); !wrong.empty())
                return "layer " + std::to_string(layer) + ": " + wrong;
        }
        return oracle_.look();
    }

    std::string anchor(int64_t sequence) {
        if (length(sequence) == 0) return "";
        const int64_t position = draw(0, length(sequence) - 1);
        // At most two in a sequence: more may be refused where the budget is small.
        if (oracle_.anchors(sequence) >= 2) return "";
        note("anchor position " + std::to_string(position) + " of sequence " + std::to_string(sequence));
        return oracle_.anchor(sequence, {position});
    }

    std::string reserve(int64_t sequence) {
        const int64_t count = draw(1, setup_.context);
        note("reserve " + std::to_string(count) + " for sequence " + std::to_string(sequence));
        return oracle_.reserve(sequence, count);
    }

    std::string exchange(int64_t sequence) {
        const int64_t layer = draw(0, setup_.layers - 1);
        note("read and write rows of layer " + std::to_string(layer) + " of sequence " + std::to_string(sequence));
        std::string wrong = oracle_.read(sequence, layer, WINNOW_TYPE_F16);
        if (wrong.empty()) wrong = oracle_.write(sequence, layer, engine_);
        return wrong.empty() ? set_importance(sequence, 50) : wrong;
    }

    // Of all layers, where the policy keeps one, in so many of a hundred cases.
    std::string set_importance(int64_t sequence, int64_t percent) {
        if (!setup_.keeps_importance() || !chance(percent)) return "";
        note("set importances of sequence " + std::to_string(sequence));
        return in_each_layer(sequence, &CacheOracle::set_importance);
    }

    std::string in_each_layer(int64_t sequence, std::string (CacheOracle::*call)(int64_t, int64_t, std::mt19937_64&)) {
        for (int64_t layer = 0; layer < setup_.layers; ++layer)
            if (const std::string wrong = (oracle_.*call)(sequence, layer, engine_); !wrong.empty())
                return "layer " + std::to_string(layer) + ": " + wrong;
        return "";
    }

    std::string save_and_load() {
        const bool disturb = chance(50);
        note(std::string("save, ") + (disturb ? "remove all but two tokens, " : "") + "load");
        return oracle_.save_and_load(folder_.file("cache"), disturb);
    }

    std::string change() {
        if (setup_.policy == Policy::hierarchical && chance(50)) {
            const double pressure = static_cast<double>(draw(0, 10)) / 10;
            note("set_pressure " + std::to_string(pressure));
            return oracle_.set_pressure(pressure);
        }
        const std::optional<CacheSetup> other =
            schedule_.is_tight ? draw_tight_change(setup_, engine_) : draw_change(setup_, engine_);
        if (!other) return decode(0, 2);
        note("set_config " + other->config());
        const std::string wrong = oracle_.set_config(*other);
        setup_ = oracle_.setup();
        return wrong;
    }

    Schedule schedule_;
    CacheSetup setup_;
    std::mt19937_64 engine_;
    TemporaryFolder folder_;
    CacheHost host_;
    CacheOracle oracle_;
    int64_t options_drawn_ = 0;
    int64_t moved_up_ = 0; // by how much a whole sequence was, in the last shift
    std::deque<std::string> calls_;
    std::string wrong_;
    std::ostringstream digest_;
    uint64_t hash_ = 14695981039346656037u;
};

} // namespace

ScheduleResult run_schedule(const Schedule& schedule) {
    try {
        return Runner(schedule).run();
    } catch (const std::exception& error) {
        return {error.what(), "", 0, 0, 0};
    }
}

void run_in_both_tiers(Schedule schedule) {
    const ScheduleResult result = run_schedule(schedule);
    if (!result.wrong.empty()) FAIL() << result.wrong;
    const TemporaryFolder folder;
    schedule.setup.recall->cold_tier = folder.path();
    const ScheduleResult in_file = run_schedule(schedule);
    if (!in_file.wrong.empty()) FAIL() << in_file.wrong;
    EXPECT_EQ(result.digest, in_file.digest);
    EXPECT_TRUE(folder.names().empty()) << folder.names().front();
}

} // namespace winnow::conformance
