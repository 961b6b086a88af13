/* lg.h - shared parts of the load generators: histogram, RNG, CPU / block-device
 * sampling of a server process tree, JSON output. Linux only, no dependencies. */
#ifndef LG_H
#define LG_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include <time.h>
#include <errno.h>
#include <dirent.h>
#include <sys/resource.h>

static inline uint64_t now_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000ull + ts.tv_nsec;
}
static inline uint64_t rng_next(uint64_t *s) { /* splitmix64 */
    uint64_t z = (*s += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* ---- log-linear histogram, 64 sub-buckets per power of two (<1.6 % error) ---- */
#define H_SUB 6
#define H_N (60 << H_SUB)
typedef struct {
    uint64_t n, sum, max, err, bytes;
    uint32_t b[H_N];
} hist_t;
static inline unsigned h_idx(uint64_t v) {
    if (v < (1u << H_SUB)) return (unsigned)v;
    int m = 63 - __builtin_clzll(v);
    return ((unsigned)(m - H_SUB + 1) << H_SUB) + (unsigned)((v >> (m - H_SUB)) & ((1u << H_SUB) - 1));
}
static inline uint64_t h_val(unsigned i) {
    if (i < (1u << H_SUB)) return i;
    unsigned e = (i >> H_SUB) - 1;
    return (((uint64_t)(1u << H_SUB) + (i & ((1u << H_SUB) - 1))) << e) + (e ? (1ull << (e - 1)) : 0);
}
static inline void h_add(hist_t *h, uint64_t ns, uint64_t bytes) {
    h->n++;
    h->sum += ns;
    h->bytes += bytes;
    if (ns > h->max) h->max = ns;
    h->b[h_idx(ns)]++;
}
static inline void h_merge(hist_t *d, const hist_t *s) {
    d->n += s->n;
    d->sum += s->sum;
    d->err += s->err;
    d->bytes += s->bytes;
    if (s->max > d->max) d->max = s->max;
    for (unsigned i = 0; i < H_N; i++) d->b[i] += s->b[i];
}
static inline double h_pct(const hist_t *h, double p) { /* us */
    if (!h->n) return 0;
    uint64_t want = (uint64_t)(p / 100.0 * h->n);
    if (want >= h->n) want = h->n - 1;
    uint64_t c = 0;
    for (unsigned i = 0; i < H_N; i++) {
        c += h->b[i];
        if (c > want) {
            uint64_t v = h_val(i);
            if (v > h->max) v = h->max;
            return v / 1000.0;
        }
    }
    return h->max / 1000.0;
}
static inline void h_json(FILE *f, const char *name, const hist_t *h, double secs, int comma) {
    fprintf(f,
            "\"%s\":{\"n\":%llu,\"per_s\":%.1f,\"mb_s\":%.1f,\"errors\":%llu,\"mean_us\":%.1f,\"p50_us\":%."
            "1f,\"p90_us\":%.1f,\"p99_us\":%.1f,\"p999_us\":%.1f,\"max_us\":%.1f}%s",
            name, (unsigned long long)h->n, h->n / secs, h->bytes / secs / 1e6, (unsigned long long)h->err,
            h->n ? h->sum / 1000.0 / h->n : 0.0, h_pct(h, 50), h_pct(h, 90), h_pct(h, 99), h_pct(h, 99.9),
            h->max / 1000.0, comma ? "," : "");
}

/* ---- server process tree: CPU (utime+stime), RSS, threads ---- */
typedef struct {
    double cpu_s;
    long rss_kb, pss_kb;
    int threads, procs;
    long vcsw, ivcsw;
} psample_t;
static void ps_add(long pid, psample_t *o) {
    char p[128], buf[2048];
    snprintf(p, sizeof p, "/proc/%ld/stat", pid);
    FILE *f = fopen(p, "r");
    if (!f) return;
    size_t n = fread(buf, 1, sizeof buf - 1, f);
    fclose(f);
    buf[n] = 0;
    char *q = strrchr(buf, ')');
    if (!q) return;
    unsigned long ut, st;
    long cut, cst, nthr;
    char stt;
    if (sscanf(q + 2, "%c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %ld %ld %*d %*d %ld", &stt, &ut,
               &st, &cut, &cst, &nthr) != 6)
        return;
    if (stt == 'Z') return;
    o->cpu_s += (double)(ut + st + cut + cst) / sysconf(_SC_CLK_TCK);
    o->threads += nthr;
    o->procs++;
    snprintf(p, sizeof p, "/proc/%ld/status", pid);
    f = fopen(p, "r");
    if (f) {
        while (fgets(buf, sizeof buf, f)) {
            long v;
            if (sscanf(buf, "VmRSS: %ld", &v) == 1) o->rss_kb += v;
        }
        fclose(f);
    }
    snprintf(p, sizeof p, "/proc/%ld/smaps_rollup", pid);
    f = fopen(p, "r");
    if (f) {
        while (fgets(buf, sizeof buf, f)) {
            long v;
            if (sscanf(buf, "Pss: %ld", &v) == 1) o->pss_kb += v;
        }
        fclose(f);
    }
    snprintf(p, sizeof p, "/proc/%ld/task", pid);
    DIR *d = opendir(p);
    if (!d) return;
    struct dirent *e;
    while ((e = readdir(d))) {
        if (e->d_name[0] == '.') continue;
        snprintf(p, sizeof p, "/proc/%ld/task/%s/status", pid, e->d_name);
        f = fopen(p, "r");
        if (f) {
            while (fgets(buf, sizeof buf, f)) {
                long v;
                if (sscanf(buf, "voluntary_ctxt_switches: %ld", &v) == 1) o->vcsw += v;
                if (sscanf(buf, "nonvoluntary_ctxt_switches: %ld", &v) == 1) o->ivcsw += v;
            }
            fclose(f);
        }
        snprintf(p, sizeof p, "/proc/%ld/task/%s/children", pid, e->d_name);
        f = fopen(p, "r");
        if (f) {
            long c;
            while (fscanf(f, "%ld", &c) == 1) ps_add(c, o);
            fclose(f);
        }
    }
    closedir(d);
}
static inline psample_t ps_take(long pid) {
    psample_t o = {0};
    if (pid > 0) ps_add(pid, &o);
    return o;
}
static inline double self_cpu_s(void) {
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return r.ru_utime.tv_sec + r.ru_utime.tv_usec / 1e6 + r.ru_stime.tv_sec + r.ru_stime.tv_usec / 1e6;
}

/* ---- whole-machine CPU: busy (everything but idle/iowait/steal) and steal, in core-seconds ---- */
typedef struct {
    double busy, steal;
} sysc_t;
static inline sysc_t sys_take(void) {
    sysc_t o = {0};
    unsigned long long v[8] = {0};
    FILE *f = fopen("/proc/stat", "r");
    if (!f) return o;
    if (fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5],
               &v[6], &v[7]) == 8) {
        double hz = sysconf(_SC_CLK_TCK);
        o.busy = (v[0] + v[1] + v[2] + v[5] + v[6]) / hz;
        o.steal = v[7] / hz;
    }
    fclose(f);
    return o;
}
/* ---- /sys/block/DEV/stat ---- */
typedef struct {
    unsigned long long rd, rd_sec, wr, wr_sec, fl, fl_ms;
} blk_t;
static inline blk_t blk_take(const char *dev) {
    blk_t b = {0};
    if (!dev) return b;
    char p[128];
    snprintf(p, sizeof p, "/sys/block/%s/stat", dev);
    FILE *f = fopen(p, "r");
    if (!f) return b;
    unsigned long long v[17] = {0};
    for (int i = 0; i < 17 && fscanf(f, "%llu", &v[i]) == 1; i++);
    fclose(f);
    b.rd = v[0];
    b.rd_sec = v[2];
    b.wr = v[4];
    b.wr_sec = v[6];
    b.fl = v[15];
    b.fl_ms = v[16];
    return b;
}
static inline uint64_t parse_size(const char *s) {
    char *e;
    double v = strtod(s, &e);
    switch (*e) {
    case 'k':
    case 'K': v *= 1024; break;
    case 'm':
    case 'M': v *= 1048576; break;
    case 'g':
    case 'G': v *= 1073741824.0; break;
    }
    return (uint64_t)v;
}
#define DIE(...)                                                                                             \
    do {                                                                                                     \
        fprintf(stderr, __VA_ARGS__);                                                                        \
        fputc('\n', stderr);                                                                                 \
        exit(2);                                                                                             \
    } while (0)
#endif
