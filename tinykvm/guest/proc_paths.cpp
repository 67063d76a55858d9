// The parts of /proc that only the guest kernel knows: /proc/self as a link, and the program's descriptors and threads.
// Their folders and files are made when they are looked up, as nameless nodes of the machine's own file system. The
// host answers the rest of /proc.
#include "tinykvm/guest/path_arg.hpp"
#include "tinykvm/guest/pipe.hpp"

namespace gk {
namespace {

using own::Node;

// Builds text in a buffer. Text that does not fit is cut off.
struct Text {
    char* to;
    u64 room, used = 0;
    Text& put(const char* text) {
        while (*text && used + 1 < room)
            to[used++] = *text++;
        to[used] = 0;
        return *this;
    }
    Text& number(u64 value, u32 base = 10) {
        char digits[24];
        u32 n = sizeof(digits);
        digits[--n] = 0;
        do
            digits[--n] = static_cast<char>('0' + value % base);
        while (value /= base);
        return put(digits + n);
    }
};

const char* skip(const char* p) {
    while (*p == '/')
        ++p;
    return p;
}

// Whether the next component at p is `name`. If so, moves p behind it.
bool take_name(const char*& p, const char* name) {
    const char* at = skip(p);
    while (*name && *at == *name)
        ++at, ++name;
    if (*name || (*at && *at != '/'))
        return false;
    p = at;
    return true;
}

bool take_number(const char*& p, u32& value) {
    const char* at = skip(p);
    if (*at < '0' || *at > '9' || (*at == '0' && at[1] >= '0' && at[1] <= '9'))
        return false;
    u64 n = 0;
    for (; *at >= '0' && *at <= '9'; ++at)
        if ((n = n * 10 + static_cast<u64>(*at - '0')) > 0x7fffffff)
            return false;
    if (*at && *at != '/')
        return false;
    value = static_cast<u32>(n);
    p = at;
    return true;
}

Node* make_link(const char* target) {
    Node* n = own::new_node(own::kLink | 0777, nullptr);
    u64 length = 0;
    while (target[length])
        ++length;
    if (!n || !(n->target = static_cast<char*>(allocate(length + 1)))) {
        if (n) {
            own::keep(n);
            own::drop(n);
        }
        return nullptr;
    }
    memcpy(n->target, target, length + 1);
    n->content.size = length;
    n->volume = own::kProcVolume;
    return n;
}

Node* make_folder() {
    Node* n = own::new_node(own::kDirectory | 0555, nullptr);
    if (n) {
        n->parent = n;
        n->volume = own::kProcVolume;
    }
    return n;
}

Node* make_file(const char* content, u64 bytes) {
    Node* n = own::new_node(own::kRegular | 0444, nullptr);
    if (!n)
        return nullptr;
    n->volume = own::kProcVolume;
    IoVec one{address(content), bytes};
    Cursor c{&one, 1, bytes, true};
    own::write_at(n, c, 0);
    return n;
}

bool add(Node* folder, u64 number, Node* n) {
    char name[24];
    Text text{name, sizeof(name)};
    text.number(number);
    if (n && own::add_entry(folder, name, text.used, n) == 0)
        return true;
    if (n) {
        own::keep(n);
        own::drop(n);
    }
    return false;
}

// The target that readlink returns for a descriptor.
void name_of(File* f, char* to, u64 room) {
    Text text{to, room};
    if (own::OwnFile* o = own::own_file(f)) {
        if (own::path_of_node(o->node, to, room) < 0)
            text.put("/ (deleted)");
        return;
    }
    if (f->kind == Kind::host) {
        const i64 n = host_call(abi::kHandlePath, static_cast<u64>(handle_of(f)), address(to), room - 1);
        to[n > 0 && static_cast<u64>(n) < room ? n : 0] = 0;
        return;
    }
    const PipeEnd* end = pipe_end(f);
    if (end && end->node && own::path_of_node(reinterpret_cast<Node*>(end->node), to, room) > 0)
        return;
    const bool socket = f->kind == Kind::socket;
    text.put(socket ? "socket" : f->ops->name);
    if (socket || end)
        text.put(":[").number(inode_of(f)).put("]");
}

Node* link_of(File* f) {
    own::PathBuffer text;
    if (!text.make())
        return nullptr;
    name_of(f, text.text(), own::kMaxPath);
    return make_link(text.text());
}

Node* info_of(File* f) {
    char content[160];
    Text text{content, sizeof(content)};
    const own::OwnFile* o = own::own_file(f);
    const u64 offset = o ? o->offset : f->kind == Kind::host ? static_cast<HostFile*>(f)->offset : 0;
    text.put("pos:\t")
        .number(offset)
        .put("\nflags:\t0")
        .number(f->flags, 8)
        .put("\nmnt_id:\t1\nino:\t")
        .number(o ? o->node->ino : inode_of(f))
        .put("\n");
    return make_file(content, text.used);
}

template <class Make>
Node* folder_of_descriptors(Make make_node) {
    Node* folder = make_folder();
    for (i32 fd = 0; folder && fd < file_limit(); ++fd)
        if (File* f = file_of(fd))
            if (!add(folder, static_cast<u64>(fd), make_node(f)))
                break;
    return folder;
}

Node* folder_of_threads() {
    Node* folder = make_folder();
    for (u32 i = 0; folder && i < thread_limit; ++i)
        if (alive(threads[i]) && !add(folder, threads[i]->tid, make_folder()))
            break;
    return folder;
}

bool is_thread(u32 tid) {
    for (u32 i = 0; i < thread_limit; ++i)
        if (alive(threads[i]) && threads[i]->tid == tid)
            return true;
    return false;
}

} // namespace

u64 inode_of(const File* f) {
    const PipeEnd* end = f->kind == Kind::pipe ? static_cast<const PipeEnd*>(f) : nullptr;
    return (end ? address(end->pipe) : address(f)) >> 5 & 0xffffffff;
}

i64 PathArg::give(Node* n) {
    if (!n)
        return -ENOMEM;
    own::keep(n);
    made_ = n;
    own_ = true;
    place_ = own::Place{};
    place_.node = n;
    return 0;
}

// Continues a path at the file of a descriptor; `rest` is the path beneath it.
i64 PathArg::through(File* f, const char* rest, bool follow) {
    const bool last = *rest == 0;
    if (last && !follow)
        return give(link_of(f));
    if (own::OwnFile* o = own::own_file(f)) {
        if (!last)
            return walk_own(o->node, rest, follow);
        own_ = true;
        place_ = own::Place{};
        place_.node = o->node;
        own::keep(made_ = o->node);
        return 0;
    }
    if (f->kind != Kind::host) {
        file_ = f;
        ref(f);
        return last ? 0 : -ENOTDIR;
    }
    if (!last) {
        rest = skip(rest);
        for (char* to = text_.text(); (*to = *rest); ++to, ++rest) {
        }
        if (*text_.text() == 0)
            memcpy(text_.text(), ".", 2);
        handle_ = handle_of(f);
    } else {
        hosts_file_ = static_cast<HostFile*>(f);
        name_of(f, text_.text(), own::kMaxPath);
    }
    path_ = address(text_.text());
    return 0;
}

i64 PathArg::descriptor(const char* p, bool follow) {
    u32 number = 0;
    if (*skip(p) == 0)
        return give(folder_of_descriptors(link_of));
    File* f = take_number(p, number) ? file_of(static_cast<i32>(number)) : nullptr;
    return f ? through(f, p, follow) : -ENOENT;
}

// Resolves a path in /proc or /dev/fd that the guest kernel answers: 0 or -errno. 1: it does not answer this path.
i64 PathArg::take_proc(bool follow) {
    const char* p = text_.text();
    u32 number = 0;
    if (take_name(p, "dev")) {
        constexpr const char* streams[] = {"stdin", "stdout", "stderr"};
        if (take_name(p, "fd"))
            return descriptor(p, follow);
        for (i32 fd = 0; fd < 3; ++fd)
            if (take_name(p, streams[fd]) && *p == 0 && follow) {
                File* f = file_of(fd);
                return !f                                                              ? -ENOENT
                       : f->kind == Kind::host && !static_cast<HostFile*>(f)->seekable ? 1
                                                                                       : through(f, p, follow);
            }
        return 1;
    }
    if (!take_name(p, "proc"))
        return 1;
    const bool self = take_name(p, "self"), thread = !self && take_name(p, "thread-self");
    if (!self && !thread && (!take_number(p, number) || number != gk_shared_page.pid))
        return 1;
    if (*p == 0 && !follow && (self || thread)) {
        char target[48];
        Text text{target, sizeof(target)};
        text.number(gk_shared_page.pid);
        if (thread)
            text.put("/task/").number(current->tid);
        return give(make_link(target));
    }
    if (take_name(p, "fd"))
        return descriptor(p, follow);
    if (take_name(p, "fdinfo")) {
        if (*skip(p) == 0)
            return give(folder_of_descriptors(info_of));
        File* f = take_number(p, number) ? file_of(static_cast<i32>(number)) : nullptr;
        return f && *skip(p) == 0 ? give(info_of(f)) : -ENOENT;
    }
    if (take_name(p, "cwd")) {
        own::PathBuffer target;
        if (!target.make())
            return -ENOMEM;
        Node* n = own::current_folder();
        const i64 length = n ? own::path_of(n, target.text(), own::kMaxPath)
                             : host_call(abi::kHandlePath, abi::kHandleCwd, address(target.text()), own::kMaxPath - 1);
        if (length < 0)
            return length;
        if (!n)
            target.text()[length] = 0;
        if (*p == 0 && !follow)
            return give(make_link(target.text()));
        if (n)
            return walk_own(n, p, follow);
        p = skip(p);
        for (char* to = text_.text(); (*to = *p); ++to, ++p) {
        }
        if (*text_.text() == 0)
            memcpy(text_.text(), ".", 2);
        path_ = address(text_.text());
        return 0;
    }
    if (take_name(p, "task")) {
        if (*skip(p) == 0)
            return give(folder_of_threads());
        if (!take_number(p, number) || !is_thread(number))
            return -ENOENT;
        if (*skip(p) == 0)
            return give(make_folder());
        if (take_name(p, "fd"))
            return descriptor(p, follow);
        // A thread's other files are those of the process.
        char head[] = "/proc/self";
        p = skip(p);
        own::PathBuffer whole;
        if (!whole.make())
            return -ENOMEM;
        Text text{whole.text(), own::kMaxPath};
        text.put(head).put("/").put(p);
        memcpy(text_.text(), whole.text(), text.used + 1);
        path_ = address(text_.text());
        return 0;
    }
    return 1;
}

PathArg::~PathArg() {
    if (made_)
        own::drop(made_);
    if (file_)
        unref(file_);
}

} // namespace gk
