// Tries what its arguments name, two words each, and says how it went.
#include "server.h"

#include <dirent.h>
#include <sys/stat.h>

static int folder = -1;

static int try(const char *what, const char *name) {
    struct stat st;
    char c;
    if (strcmp(what, "read") == 0) {
        int fd = open(name, O_RDONLY);
        return fd < 0 ? -1 : read(fd, &c, 1) < 0 ? -1 : close(fd);
    }
    if (strcmp(what, "write") == 0) {
        int fd = open(name, O_WRONLY | O_CREAT, 0600);
        return fd < 0 ? -1 : write(fd, "written", 7) < 0 ? -1 : close(fd);
    }
    if (strcmp(what, "stat") == 0) return stat(name, &st);
    if (strcmp(what, "list") == 0) {
        DIR *dir = opendir(name);
        return dir && readdir(dir) ? closedir(dir) : -1;
    }
    if (strcmp(what, "mkdir") == 0) return mkdir(name, 0700);
    if (strcmp(what, "unlink") == 0) return unlink(name);
    if (strcmp(what, "symlink-to") == 0) return symlink(name, "made-link");
    if (strcmp(what, "chdir") == 0) return chdir(name);
    if (strcmp(what, "folder") == 0) return (folder = open(name, O_RDONLY | O_DIRECTORY)) < 0 ? -1 : 0;
    if (strcmp(what, "below") == 0) {
        int fd = openat(folder, name, O_RDONLY);
        return fd < 0 ? -1 : close(fd);
    }
    if (strcmp(what, "wait-for") == 0) {  // until the file is there
        for (int i = 0; i < 1000 && stat(name, &st) < 0; i++) usleep(10000);
        return stat(name, &st);
    }
    if (strcmp(what, "env") == 0) {
        printf("%s is '%s': ", name, getenv(name) ? getenv(name) : "");
        errno = ENODATA;
        return getenv(name) ? 0 : -1;
    }
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(name)), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0) return -1;
    if (strcmp(what, "connect") == 0) return connect(fd, (struct sockaddr *)&address, sizeof address);
    if (strcmp(what, "listen") == 0)
        return bind(fd, (struct sockaddr *)&address, sizeof address) < 0 ? -1 : listen(fd, 1);
    errno = ENOTSUP;
    return -1;
}

int main(int argc, char **argv) {
    for (int i = 1; i + 1 < argc; i += 2) {
        printf("%s %s: ", argv[i], argv[i + 1]);
        int result = try(argv[i], argv[i + 1]);
        printf("%s\n", result == 0 ? "ok" : strerrorname_np(errno));
        fflush(stdout);
    }
}
