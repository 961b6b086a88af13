// For how long does it take to have a disk of a base? Milliseconds each, from asking for it until 4 KiB of it were read past the page cache.
//
//   forks fairlift SOCKET DIR COUNT            forks of export a, which nobody writes
//   forks fairlift-alone SOCKET DIR COUNT      the same without block devices, until they are answered
//   forks fairlift-written SOCKET DIR COUNT    forks of disks of which 16 blocks of 4 KiB are written before each; a new disk every six
//   forks dm-snapshot ORIGIN DIR COUNT         snapshots of a block device: a sparse file, a loop device of it, the snapshot
//   forks loop - DIR COUNT                     sparse files, each by a loop device
//
// Fairlift is asked by HTTP at its control socket, the kernel by what dmsetup and losetup ask it with: no program is started. Each is removed after its read,
// but the last, of which the path is told: "LAST /dev/…".
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <linux/dm-ioctl.h>
#include <linux/loop.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define SIZE (1LL << 30)

static int server = -1;
static const char *what, *of, *dir;
static char device[256];

static int must(int result, const char *what) {
    if (result < 0) err(1, "%s", what);
    return result;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

// What the server answers; `device` becomes its block device, if it tells one.
static void ask(const char *method, const char *path, const char *body) {
    static char answer[65536];
    int length = snprintf(answer, sizeof answer, "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s", method, path, strlen(body), body);
    if (write(server, answer, length) != length) err(1, "%s", path);
    size_t got = 0, whole = 0;
    do {
        ssize_t n = read(server, answer + got, sizeof answer - 1 - got);
        if (n <= 0) err(1, "%s: no answer", path);
        answer[got += n] = 0;
        char *head = strstr(answer, "\r\n\r\n"), *says = strcasestr(answer, "content-length:");
        if (head && says) whole = head + 4 - answer + atol(says + 15);
    } while (!whole || got < whole);
    if (!strstr(answer, " 200 OK")) errx(1, "%s %s: %s", method, path, answer);
    char *told = strstr(answer, "\"block_device\": {"), *at = told ? strstr(told, "\"path\": \"") : NULL;
    if (at) sscanf(at + 9, "%255[^\"]", device);
}

static void read_once(const char *path) {
    static char block[4096] __attribute__((aligned(4096)));
    int fd = must(open(path, O_RDONLY | O_DIRECT), path);
    if (pread(fd, block, sizeof block, 0) != sizeof block) err(1, "reading %s", path);
    close(fd);
}

// A loop device of a new sparse file.
static int loop(int number, dev_t *id) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s%d", dir, what, number);
    int file = must(open(path, O_RDWR | O_CREAT | O_EXCL | O_DIRECT, 0600), path), control = must(open("/dev/loop-control", O_RDWR), "loop-control");
    must(ftruncate(file, SIZE), path);
    snprintf(device, sizeof device, "/dev/loop%d", must(ioctl(control, LOOP_CTL_GET_FREE), "LOOP_CTL_GET_FREE"));
    close(control);
    int fd = must(open(device, O_RDWR), device);
    struct loop_config config = {.fd = file, .block_size = 4096, .info = {.lo_flags = LO_FLAGS_DIRECT_IO}};
    must(ioctl(fd, LOOP_CONFIGURE, &config), "LOOP_CONFIGURE");
    struct stat about;
    must(fstat(fd, &about), device);
    *id = about.st_rdev;
    close(file);
    return fd;
}

static void unloop(int number, int fd) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s%d", dir, what, number);
    must(ioctl(fd, LOOP_CLR_FD), "LOOP_CLR_FD");
    close(fd);
    unlink(path);
}

static void dm(int control, unsigned long order, const char *name, const char *parameters, dev_t *id) {
    struct { struct dm_ioctl head; struct dm_target_spec target; char parameters[256]; } asked = {
        .head = {.version = {DM_VERSION_MAJOR}, .data_size = sizeof asked, .data_start = sizeof asked.head}};
    strcpy(asked.head.name, name);
    if (parameters) {
        asked.head.target_count = 1;
        asked.target.length = SIZE / 512;
        strcpy(asked.target.target_type, "snapshot");
        strcpy(asked.parameters, parameters);
    }
    must(ioctl(control, order, &asked), "device mapper");
    if (id) *id = asked.head.dev;
}

static double snapshot(int number, int keep) {
    char name[32], parameters[256];
    snprintf(name, sizeof name, "snapshot%d", number);
    int control = must(open("/dev/mapper/control", O_RDWR), "/dev/mapper/control");
    struct stat origin;
    must(stat(of, &origin), of);
    dev_t store, made;
    double begun = now();
    int fd = loop(number, &store);
    dm(control, DM_DEV_CREATE, name, NULL, &made);
    // Persistent, in chunks of 4 KiB.
    snprintf(parameters, sizeof parameters, "%d:%d %d:%d P 8", major(origin.st_rdev), minor(origin.st_rdev), major(store), minor(store));
    dm(control, DM_TABLE_LOAD, name, parameters, NULL);
    dm(control, DM_DEV_SUSPEND, name, NULL, NULL); // without the flag: resume
    snprintf(device, sizeof device, "/dev/dm-%d", minor(made));
    read_once(device);
    double took = now() - begun;
    if (!keep) {
        dm(control, DM_DEV_REMOVE, name, NULL, NULL);
        unloop(number, fd);
    }
    close(control);
    return took;
}

static double looped(int number, int keep) {
    dev_t id;
    double begun = now();
    int fd = loop(number, &id);
    read_once(device);
    double took = now() - begun;
    if (!keep) unloop(number, fd);
    return took;
}

static void write_some(const char *path) {
    static char block[4096] __attribute__((aligned(4096)));
    int fd = must(open(path, O_WRONLY | O_DIRECT), path);
    for (int n = 0; n < 16; n++) {
        memset(block, rand(), sizeof block);
        if (pwrite(fd, block, sizeof block, rand() % (SIZE / 4096) * 4096) != sizeof block) err(1, "writing %s", path);
    }
    close(fd);
}

static double forked(int number, int keep) {
    int written = !strcmp(what, "fairlift-written"), alone = !strcmp(what, "fairlift-alone");
    static char disk[256], disk_device[256];
    char path[512], body[1024];
    if (!written) strcpy(disk, "a");
    if (written && number % 6 == 0) {
        if (number) {
            snprintf(path, sizeof path, "/v1/exports/%s", disk);
            ask("DELETE", path, "");
        }
        snprintf(disk, sizeof disk, "disk%d", number);
        snprintf(body, sizeof body, "{\"name\": \"%s\", \"backing\": \"overlay:base=%s/base,top=%s/%s.top\", \"group\": \"/a\", \"ublk\": true}", disk, dir, dir, disk);
        ask("POST", "/v1/exports", body);
        strcpy(disk_device, device);
    }
    if (written) write_some(disk_device);
    snprintf(path, sizeof path, "/v1/exports/%s/fork", disk);
    snprintf(body, sizeof body, "{\"name\": \"%s-%s%d\"%s}", disk, what, number, alone ? "" : ", \"ublk\": true");
    double begun = now();
    ask("POST", path, body);
    if (!alone) read_once(device);
    double took = now() - begun;
    snprintf(path, sizeof path, "/v1/exports/%s-%s%d", disk, what, number);
    if (!keep) ask("DELETE", path, "");
    return took;
}

int main(int count, char **words) {
    if (count != 5) errx(2, "see the comment at its top");
    what = words[1], of = words[2], dir = words[3];
    int times = atoi(words[4]), by_server = !strncmp(what, "fairlift", 8);
    if (by_server) {
        struct sockaddr_un at = {.sun_family = AF_UNIX};
        strncpy(at.sun_path, of, sizeof at.sun_path - 1);
        server = must(socket(AF_UNIX, SOCK_STREAM, 0), "socket");
        must(connect(server, (struct sockaddr *)&at, sizeof at), of);
    }
    double took[times];
    for (int n = 0; n < times; n++) {
        int keep = n == times - 1;
        took[n] = by_server ? forked(n, keep) : !strcmp(what, "loop") ? looped(n, keep) : snapshot(n, keep);
    }
    printf("TIMES %s", what);
    for (int n = 0; n < times; n++) printf(" %.3f", took[n]);
    printf("\nLAST %s\n", device);
}
