#include "src/unique/v8_scopes.hpp"

#include <set>

namespace kvmserver::unique::v8 {

using tinykvm::GuestVirt;

namespace {

// limit each for strings, names and scopes: a hostile program must not keep us busy
constexpr std::size_t kMaxFound = 1 << 16;
constexpr std::size_t kMaxSteps = 1 << 22;                            // steps from one name to the next
constexpr int kMaxInline = 75, kMaxNames = 16384, kContextHeader = 4; // header: map, length, scope info, previous
constexpr int kMaxHeader = 8;                                         // words of a ScopeInfo before its names

// A set of addresses with a quick test for words that may point to one.
template <class Word>
class Targets {
public:
    void add(GuestVirt at) {
        if (at_.size() < kMaxFound && at_.insert(at).second)
            filter_.insert(static_cast<Word>(at.value + 1));
    }
    bool empty() const { return at_.empty(); }
    bool leads_there(Word word, GuestVirt near) const {
        return filter_.may_have(word) && at_.contains(Heap<Word>::object(word, near));
    }

private:
    std::set<GuestVirt> at_;
    PointerFilter<Word> filter_;
};

template <class Word>
class Search {
    using H = Heap<Word>;
    // The names of a scope: in a row, or in a hash table (a second search finds the ScopeInfo that points to the
    // table).
    struct Names {
        std::map<std::string_view, int> index; // indexes of wanted names
        int count = 0;                         // number of all names
    };

public:
    Search(const MemoryView& memory, std::span<const NamesTogether> wanted) : heap_{memory}, wanted_(wanted) {
        for (const NamesTogether& names : wanted)
            names_.insert(names.begin(), names.end());
    }

    std::vector<Scope<Word>> run() {
        find_strings();
        if (strings_.empty())
            return {};
        for_words([&](GuestVirt at, Word word) {
            if (strings_.leads_there(word, at))
                found_name(at);
        });
        if (!tables_.empty())
            for_words([&](GuestVirt at, Word word) {
                if (table_targets_.leads_there(word, at))
                    scope_infos_before(at, tables_.at(H::object(word, at)), true);
            });
        std::vector<Scope<Word>> scopes;
        if (infos_.empty())
            return scopes;
        for_words([&](GuestVirt at, Word word) {
            if (info_targets_.leads_there(word, at) && scopes.size() < kMaxFound)
                found_context(at, H::object(word, at), scopes);
        });
        return scopes;
    }

private:
    // Visits all of the heap. Parts may be read-only: those from V8's own snapshot.
    template <class Fn>
    void for_words(Fn fn) const {
        const auto each = [&](GuestVirt begin, std::span<const std::byte> bytes) {
            const std::span words(reinterpret_cast<const Word*>(bytes.data()), bytes.size() / sizeof(Word));
            for (std::size_t i = 0; i < words.size(); ++i)
                fn(begin + i * sizeof(Word), words[i]);
        };
        for (const Written& run : heap_.memory.written())
            each(run.begin, run.bytes);
        for (const Area& area : heap_.memory.areas())
            if (area.prot == 1 && !area.name.starts_with('/') && area.end.value - area.begin.value <= kMaxReadOnly)
                each(area.begin, area.bytes);
    }

    // Finds sequential one-byte strings that are one of the names.
    void find_strings() {
        std::bitset<1 << 16> beginnings;
        for (const std::string_view name : names_)
            for (unsigned second = 0; second < 256; ++second) // a name of one character is followed by padding
                if (name.size() == 1 || static_cast<std::uint8_t>(name[1]) == second)
                    beginnings.set(static_cast<std::uint8_t>(name[0]) | second << 8);
        for_words([&](GuestVirt at, Word word) {
            if (!beginnings[word & 0xffff] || at.value < H::kStringHeader)
                return;
            const GuestVirt string(at.value - H::kStringHeader);
            if (names_.contains(heap_.string(string)))
                strings_.add(string);
        });
    }

    bool all_of_one(const Names& names) const {
        return std::any_of(wanted_.begin(), wanted_.end(), [&](const NamesTogether& wanted) {
            return std::all_of(wanted.begin(), wanted.end(),
                               [&](std::string_view name) { return names.index.contains(name); });
        });
    }

    void add_if_wanted(Names& names, std::string_view name, int index) const {
        if (names_.contains(name))
            names.index.emplace(name, index);
    }

    bool may_go_on() { return steps_ < kMaxSteps && ++steps_ != 0; }

    std::string_view name_at(GuestVirt at, std::int64_t index) const {
        const auto string = heap_.follow(at, index);
        return string ? heap_.string(*string) : std::string_view();
    }

    void found_name(GuestVirt at) {
        in_row(at);
        if (heap_.small(at, 1))
            in_table(at);
    }

    // Names in a row: [map][flags, counts, positions][name]...[Smi for each name]
    void in_row(GuestVirt at) {
        int before = 0;
        while (before < kMaxInline && may_go_on() && !name_at(at, -before - 1).empty())
            ++before;
        const GuestVirt first(at.value - static_cast<std::uint64_t>(before) * H::kSlot);
        int count = 1 + before;
        while (count <= kMaxInline && may_go_on() && !name_at(first, count).empty())
            ++count;
        if (count > kMaxInline || !heap_.small(first, count))
            return;
        for (int i = 1; i <= 4; ++i) { // the count is one of the numbers before the names
            if (heap_.small(first, -i) != count)
                continue;
            Names names{{}, count};
            for (int name = 0; name < count; ++name)
                add_if_wanted(names, name_at(first, name), name);
            if (all_of_one(names))
                scope_infos_before(first, names, false);
            return;
        }
    }

    // Names in a hash table: [map][length][elements][deleted][capacity], then for each entry [name][Smi], or the same
    // word twice.
    void in_table(GuestVirt at) {
        const auto entry = [&](std::int64_t index) {
            const auto key = heap_.slot(at, index), value = heap_.slot(at, index + 1);
            return key && value && H::is_pointer(*key) && (H::is_smi(*value) || *value == *key);
        };
        int before = 0;
        while (before < 4 * kMaxNames && may_go_on() && entry(-2 * before - 2))
            ++before;
        const GuestVirt table(at.value - static_cast<std::uint64_t>(5 + 2 * before) * H::kSlot);
        const auto length = heap_.small(table, 1), elements = heap_.small(table, 2), capacity = heap_.small(table, 4);
        if (!length || !elements || !capacity || *capacity <= before || *capacity > 4 * kMaxNames ||
            *length != 4 + 2 * *capacity - 1 || *elements <= kMaxInline - 1 || *elements > kMaxNames ||
            !heap_.small(table, 3))
            return;
        if (!heap_.has_map(table) || tables_.contains(table) || tables_.size() >= kMaxFound)
            return;
        Names names{{}, *elements};
        for (int i = 0; i < *capacity && may_go_on(); ++i)
            if (const auto index = heap_.small(table, 6 + 2 * i); index && *index >= 0 && *index < *elements)
                add_if_wanted(names, name_at(table, 5 + 2 * i), *index);
        if (!all_of_one(names))
            return;
        tables_.emplace(table, std::move(names));
        table_targets_.add(table);
    }

    // A ScopeInfo may begin at several places in front of the names. A context that points to one of them decides.
    void scope_infos_before(GuestVirt names_at, const Names& names, bool table) {
        for (int i = 4; i <= kMaxHeader; ++i) {
            const GuestVirt info(names_at.value - static_cast<std::uint64_t>(i) * H::kSlot);
            if (!heap_.has_map(info) || infos_.size() >= kMaxFound)
                continue;
            bool counted = false;
            for (int word = 1; word < i; ++word)
                counted = counted || heap_.small(info, word) == names.count;
            if (counted || table) {
                infos_.emplace(info, names);
                info_targets_.add(info);
            }
        }
    }

    void found_context(GuestVirt slot, GuestVirt info, std::vector<Scope<Word>>& scopes) const {
        const GuestVirt context(slot.value - 2 * H::kSlot);
        const auto found = infos_.find(info);
        const auto length = heap_.small(context, 1);
        if (found == infos_.end() || !length || !heap_.has_map(context))
            return;
        // 1 if there is a slot for variables that eval() declares
        const int extension = *length - 2 - found->second.count;
        if (extension != 0 && extension != 1)
            return;
        Scope<Word> scope{heap_, context, {}};
        for (const auto& [name, index] : found->second.index)
            scope.slots.emplace(name, kContextHeader + extension + index);
        scopes.push_back(std::move(scope));
    }

    static constexpr std::uint64_t kMaxReadOnly = 16 << 20;
    H heap_;
    std::span<const NamesTogether> wanted_;
    std::set<std::string_view> names_;
    std::size_t steps_ = 0;
    Targets<Word> strings_, table_targets_, info_targets_;
    std::map<GuestVirt, Names> tables_, infos_;
};

} // namespace

template <std::unsigned_integral Word>
std::vector<Scope<Word>> scopes_with(const MemoryView& memory, std::span<const NamesTogether> wanted) {
    return Search<Word>(memory, wanted).run();
}

template std::vector<Scope<std::uint64_t>> scopes_with(const MemoryView&, std::span<const NamesTogether>);
template std::vector<Scope<std::uint32_t>> scopes_with(const MemoryView&, std::span<const NamesTogether>);

} // namespace kvmserver::unique::v8
