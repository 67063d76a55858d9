// Several names of one file in the machine's own /tmp: what /proc/self/fd and inotify say of it.
#include "own.h"

#include <sys/inotify.h>

static int watch;

static void name_of(const char *what, int fd) {
    char link[40], path[300] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) < 0) strcpy(path, "/no name");
    SAY("%s is '%s'", what, strrchr(path, '/') + 1);
}

static void make(const char *name, const char *content) {
    const int fd = MUST(open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600));
    MUST(write(fd, content, strlen(content)));
    close(fd);
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

int main(void) {
    own_enter("/tmp");
    watch = MUST(inotify_init1(IN_NONBLOCK));
    several_names();
    return 0;
}
