// Names of files in the machine's own /tmp: several of one file, and two that change places; what /proc/self/fd, getcwd
// and inotify say of them.
#include "own.h"

#include <sys/inotify.h>

static int watch;

static void name_of(const char *what, int fd) {
    char link[40], path[300] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) < 0) strcpy(path, "/no name");
    SAY("%s is '%s'", what, strrchr(path, '/') + 1);
}

static void here(void) {
    char path[300] = "";
    CHECK(getcwd(path, sizeof path) != NULL);
    const size_t length = strlen(own_folder);
    SAY("in '%s'", strncmp(path, own_folder, length) == 0 ? path + length : "elsewhere");
}

static void make(const char *name, const char *content) {
    const int fd = MUST(open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600));
    MUST(write(fd, content, strlen(content)));
    close(fd);
}

static void show(const char *name) {
    char content[20] = "";
    const int fd = open(name, O_RDONLY);
    if (fd >= 0 && read(fd, content, sizeof content - 1) < 0) strcpy(content, "?");
    SAY("%s: %s", name, fd < 0 ? strerrorname_np(errno) : content);
    if (fd >= 0) close(fd);
}

// All events so far. Cookies become 1, 2 ... in the order in which they are first seen.
static void events(void) {
    char room[4096] __attribute__((aligned(8)));
    const ssize_t bytes = read(watch, room, sizeof room);
    uint32_t cookies[8] = {0};
    for (ssize_t at = 0; at < bytes;) {
        const struct inotify_event *e = (const void *)(room + at);
        int cookie = 0;
        while (cookie < 7 && cookies[cookie] && cookies[cookie] != e->cookie) ++cookie;
        cookies[cookie] = e->cookie;
        SAY("event: watch %d, %#x, move %d, '%s'", e->wd, e->mask, e->cookie ? cookie + 1 : 0, e->len ? e->name : "");
        at += (ssize_t)sizeof *e + e->len;
    }
    if (bytes < 0) SAY("no event");
}

static void several_names(void) {
    section("several names");
    make("first", "1");
    const int fd = MUST(open("first", O_RDWR));
    CALL(link("first", "second"));
    CALL(link("first", "third"));
    CALL(unlink("second"));
    CALL(unlink("third"));
    name_of("the file", fd);
    MUST(inotify_add_watch(watch, ".", IN_MODIFY));
    CALL(write(fd, "x", 1));
    events();
    CALL(mkdir("folder", 0700));
    CALL(link("first", "folder/inside"));
    CALL(rename("folder/inside", "folder/inner"));
    CALL(unlink("folder/inner"));
    CALL(rmdir("folder"));
    name_of("the file", fd);
    CALL(rename("first", "moved"));
    name_of("the file", fd);
    CALL(link("moved", "first"));
    CALL(rename("moved", "first")); // both are the same file: nothing happens
    CALL(unlink("first"));
    name_of("the file", fd);
    CALL(unlink("moved"));
    struct stat s;
    MUST(fstat(fd, &s));
    SAY("%d links", (int)s.st_nlink);
    close(fd);
}

static void exchanged(void) {
    section("exchanged");
    make("one", "content of one");
    make("two", "content of two");
    MUST(mkdir("left", 0700));
    MUST(mkdir("right", 0700));
    MUST(mkdir("left/deep", 0700));
    const int one = MUST(open("one", O_RDONLY)), left = MUST(open("left", O_RDONLY | O_DIRECTORY));
    CALL(chdir("left/deep"));
    CALL(renameat2(left, "../one", left, "../right/x", RENAME_EXCHANGE));
    MUST(chdir("../.."));
    const uint32_t moves = IN_MOVE | IN_MOVE_SELF | IN_CREATE | IN_DELETE | IN_DELETE_SELF;
    const char *watched[] = {".", "one", "two", "left", "right"};
    for (int i = 0; i < 5; i++) MUST(inotify_add_watch(watch, watched[i], moves));
    CALL(renameat2(AT_FDCWD, "one", AT_FDCWD, "two", RENAME_EXCHANGE));
    show("one");
    show("two");
    name_of("the file that was one", one);
    events();
    CALL(renameat2(AT_FDCWD, "two", AT_FDCWD, "right", RENAME_EXCHANGE));
    show("right");
    name_of("the file that was one", one);
    struct stat s;
    CHECK(stat("two", &s) == 0 && S_ISDIR(s.st_mode));
    MUST(stat(".", &s));
    SAY("%d links of the folder", (int)s.st_nlink);
    events();
    CALL(renameat2(AT_FDCWD, "right", AT_FDCWD, "left/deep", RENAME_EXCHANGE)); // a file and a folder of another folder
    name_of("the file that was one", one);
    MUST(stat("left", &s));
    SAY("%d links of left", (int)s.st_nlink);
    MUST(stat(".", &s));
    SAY("%d links of the folder", (int)s.st_nlink);
    CALL(chdir("right"));
    here();
    CALL(chdir("../left"));
    events();
    CALL(renameat2(AT_FDCWD, "deep", AT_FDCWD, "..", RENAME_EXCHANGE));
    CALL(renameat2(AT_FDCWD, "deep", AT_FDCWD, "missing", RENAME_EXCHANGE));
    CALL(renameat2(AT_FDCWD, "../left", AT_FDCWD, "deep", RENAME_EXCHANGE));
    CALL(renameat2(AT_FDCWD, "deep", AT_FDCWD, "../left", RENAME_EXCHANGE));
    CALL(renameat2(AT_FDCWD, "../left", AT_FDCWD, "../two", RENAME_EXCHANGE));
    here();
    events();
    close(one), close(left);
}

static void replaced(void) {
    section("replaced");
    MUST(chdir(own_folder));
    make("new", "new");
    make("old", "old");
    events();
    const uint32_t all = IN_MOVE_SELF | IN_DELETE_SELF | IN_ATTRIB;
    MUST(inotify_add_watch(watch, ".", IN_MOVE | IN_CREATE | IN_DELETE | IN_ATTRIB));
    MUST(inotify_add_watch(watch, "old", all));
    MUST(inotify_add_watch(watch, "new", all));
    CALL(rename("new", "old"));
    show("old");
    show("new");
    events();
    CALL(link("old", "other"));
    CALL(unlink("old"));
    events();
    // Without IN_DELETE: whether it comes before IN_DELETE_SELF depends on the file system.
    MUST(inotify_add_watch(watch, ".", IN_MOVE | IN_CREATE | IN_ATTRIB));
    CALL(unlink("other"));
    events();
    MUST(mkdir("from", 0700));
    MUST(mkdir("to", 0700));
    const int to = MUST(open("to", O_RDONLY | O_DIRECTORY));
    struct stat before, after;
    MUST(stat(".", &before));
    MUST(inotify_add_watch(watch, "from", all));
    CALL(rename("from", "to"));
    MUST(stat(".", &after));
    SAY("%d link of the folder is gone", (int)(before.st_nlink - after.st_nlink));
    CALL(openat(to, "new", O_CREAT | O_WRONLY, 0600));
    CALL(fchdir(to));
    CHECK(getcwd((char[300]){0}, 300) != NULL);
    close(to);
    MUST(chdir(own_folder));
    events();
}

int main(void) {
    own_enter("/tmp");
    watch = MUST(inotify_init1(IN_NONBLOCK));
    several_names();
    exchanged();
    replaced();
    return 0;
}
